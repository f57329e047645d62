//! Who may read a protected page: the API server is asked, as kubebuilder's `WithAuthenticationAndAuthorization` does.
//!
//! A TokenReview tells whose the bearer token is, a SubjectAccessReview whether that user may `get` the path, or `post` to it.

use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use k8s_openapi::api::authentication::v1::{TokenReview, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use lru::LruCache;
use parking_lot::Mutex;
use ring::hmac;
use serde_json::json;
use tokio::sync::Semaphore;

use super::pages::text;
use crate::clock::Instant;
use crate::env::Env;
use crate::source::{Client, Requests};
use crate::wire::ApiError;

/// How long it is remembered whose a token is, or that it is nobody's.
const TOKEN: Duration = Duration::from_secs(60);
/// How long it is remembered that a user may read a page, and that one may not.
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
/// How long the API server may take for an answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not zero");
/// How many questions are open at the same time: invented tokens must not flood the API server.
const AT_ONCE: usize = 4;

/// Asks the API server who may read a page, and remembers its answers for a while.
pub(super) struct Access {
    requests: Requests,
    env: Env,
    /// Tokens are remembered by their digest under this key only.
    key: hmac::Key,
    users: Answers<Option<UserInfo>>,
    grants: Answers<bool>,
    turns: Semaphore,
}

/// The answers by what was asked. Errors are not among them.
struct Answers<T>(Mutex<LruCache<Digest, (Instant, T)>>);

type Digest = [u8; 32];

/// Why a page is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no token, or it is nobody's.
    Unauthorized,
    Forbidden,
    /// The API server could not be asked.
    Unknown,
}

impl Refusal {
    pub(super) fn answer(self) -> Response<Full<Bytes>> {
        let (status, body) = match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "send a bearer token of the cluster\n"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "you may not do this with this page\n"),
            Self::Unknown => {
                (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked who you are\n")
            }
        };
        let mut answer = text(status, body.to_owned());
        if self == Self::Unauthorized {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

impl Access {
    /// Asks through `client`, whose writes must be free: a review is one.
    pub(super) fn new(client: &Client) -> Self {
        let env = client.env().fork("admin access");
        let mut key = Digest::default();
        env.generator.fill(&mut key);
        Self {
            requests: client.requests().clone().deadline(DEADLINE),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            users: Answers::new(),
            grants: Answers::new(),
            turns: Semaphore::new(AT_ONCE),
            env,
        }
    }

    /// Returns the name of the user who sent these headers, if it may do `verb` with the page at `path`.
    pub(super) async fn check(
        &self,
        headers: &HeaderMap,
        verb: &'static str,
        path: &str,
    ) -> Result<String, Refusal> {
        let token = bearer(headers).ok_or(Refusal::Unauthorized)?;
        let user = self.user(token).await.map_err(|error| self.unknown("whose a token is", &error))?;
        let user = user.ok_or(Refusal::Unauthorized)?;
        let name = user.username.clone().unwrap_or_default();
        let is_allowed = self.is_allowed(user, verb, path).await;
        match is_allowed.map_err(|error| self.unknown("who may read a page", &error))? {
            true => Ok(name),
            false => Err(Refusal::Forbidden),
        }
    }

    /// Returns whose a token is, if anybody's.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, ApiError> {
        let digest = self.digest(&[token.as_bytes()]);
        self.remembered(&self.users, digest, async || {
            // The type of the token depends on the version of the API.
            let review: TokenReview =
                serde_json::from_value(json!({"metadata": {}, "spec": {"token": token}}))
                    .map_err(ApiError::undecodable)?;
            let status = self.requests.api::<TokenReview>().create(&review).await?.status.unwrap_or_default();
            let user = status.user.filter(|_| status.authenticated == Some(true));
            Ok((user, TOKEN))
        })
        .await
    }

    async fn is_allowed(&self, user: UserInfo, verb: &str, path: &str) -> Result<bool, ApiError> {
        // A user can be written as JSON; the digest of nothing would make all users equal.
        let name = serde_json::to_vec(&user).map_err(ApiError::undecodable)?;
        let digest = self.digest(&[&name, verb.as_bytes(), path.as_bytes()]);
        self.remembered(&self.grants, digest, async || {
            let attributes =
                NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
            let spec = SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(attributes),
                ..Default::default()
            };
            let review = SubjectAccessReview { spec, ..Default::default() };
            let answered = self.requests.api::<SubjectAccessReview>().create(&review).await?;
            let is_allowed = answered.status.is_some_and(|status| status.allowed);
            Ok((is_allowed, if is_allowed { ALLOWED } else { DENIED }))
        })
        .await
    }

    /// Returns the remembered answer, or asks, and remembers the answer for as long as it says.
    async fn remembered<T: Clone>(
        &self,
        answers: &Answers<T>,
        digest: Digest,
        ask: impl AsyncFnOnce() -> Result<(T, Duration), ApiError>,
    ) -> Result<T, ApiError> {
        if let Some(answer) = answers.get(&digest, self.env.clock.now()) {
            return Ok(answer);
        }
        // It is never closed.
        let _turn = self.turns.acquire().await;
        // Another request may have asked the same meanwhile.
        if let Some(answer) = answers.get(&digest, self.env.clock.now()) {
            return Ok(answer);
        }
        let (answer, lasts) = ask().await?;
        answers.put(digest, self.env.clock.now() + lasts, answer.clone());
        Ok(answer)
    }

    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    fn unknown(&self, question: &str, error: &ApiError) -> Refusal {
        self.env.reporter.error("admin", question, error);
        Refusal::Unknown
    }
}

impl<T: Clone> Answers<T> {
    fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }

    fn get(&self, digest: &Digest, now: Instant) -> Option<T> {
        self.0.lock().get(digest).filter(|(until, _)| now < *until).map(|(_, answer)| answer.clone())
    }

    fn put(&self, digest: Digest, until: Instant, answer: T) {
        self.0.lock().put(digest, (until, answer));
    }
}

/// Returns the bearer token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
