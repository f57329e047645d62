//! The sender of all requests of a process, with a deadline for each.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube_client::Client;
use kube_client::client::Body;

use super::api::Api;
use super::connection::SentWith;
use super::credentials::Credentials;
use super::gate::WriteGate;
use super::user_agent::UserAgent;
use crate::clock::Clock;
use crate::env::Env;
use crate::object::Kind;
use crate::wire::{ApiError, Class, OBJECT_CAP};

/// Sends requests to an API server, each with a deadline. Clones share the client.
///
/// ```no_run
/// # use std::time::Duration;
/// # use watchkeeper::Client;
/// # fn set_up(client: &Client) -> watchkeeper::source::Requests {
/// let requests = client.requests().clone().manager("website-operator").deadline(Duration::from_secs(10));
/// # requests
/// # }
/// ```
#[derive(Clone)]
pub struct Requests {
    kube: Client,
    agent: UserAgent,
    clock: Clock,
    deadline: Duration,
    manager: Option<Arc<str>>,
    credentials: Option<Credentials>,
    /// What writes must pass; all may if there is none.
    gate: Option<WriteGate>,
}

impl Requests {
    pub(super) fn kube(&self) -> &Client {
        &self.kube
    }

    pub(super) fn agent(&self) -> &UserAgent {
        &self.agent
    }

    /// Returns the field manager of writes.
    pub(crate) fn field_manager(&self) -> Option<&str> {
        self.manager.as_deref()
    }

    pub(super) fn new(kube: Client, env: &Env, agent: UserAgent) -> Self {
        Self {
            kube,
            agent,
            clock: env.clock.clone(),
            deadline: Duration::from_secs(30),
            manager: None,
            credentials: None,
            gate: None,
        }
    }

    /// Sends writes only while `gate` is open.
    pub(super) fn gated(mut self, gate: &WriteGate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    pub(super) fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Returns a future that ends when there are other credentials than those that `answer` was requested with, if that
    /// can be.
    pub(super) fn renewal<B>(
        &self,
        answer: &Response<B>,
    ) -> Option<impl Future<Output = ()> + Send + use<B>> {
        let credentials = self.credentials.as_ref().filter(|credentials| credentials.can_change())?;
        let SentWith(number) = answer.extensions().get()?;
        Some(credentials.renewal(*number))
    }

    /// Returns the clock of deadlines.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets the deadline of each request; 30 s by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the field manager of writes.
    #[must_use]
    pub fn manager(mut self, name: &str) -> Self {
        self.manager = Some(name.into());
        self
    }

    /// Returns requests about objects of kind `K`, known at compile time.
    pub fn api<K: Kind<DynamicType: Default>>(&self) -> Api<'_, K> {
        self.api_of(K::DynamicType::default())
    }

    /// Returns requests about objects of a kind known at run time.
    pub fn api_of<K: Kind>(&self, kind: K::DynamicType) -> Api<'_, K> {
        Api::new(self, kind)
    }

    /// Sends one request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        self.through_gate(request, async |request| {
            let body = self.exchange(request.map(Body::from)).await?.into_body();
            let whole = Limited::new(body, OBJECT_CAP).collect().await;
            whole.map(|body| body.to_bytes()).map_err(ApiError::from_transport)
        })
        .await
    }

    /// Sends one request and reads the answer to its end without keeping it.
    pub(super) async fn send_and_discard(&self, request: Request<Vec<u8>>) -> Result<(), ApiError> {
        self.through_gate(request, async |request| {
            let mut body = self.exchange(request.map(Body::from)).await?.into_body();
            while let Some(frame) = body.frame().await {
                frame.map_err(ApiError::from_transport)?;
            }
            Ok(())
        })
        .await
    }

    /// Sends a request within the deadline and, if it is a write, while the gate is open.
    async fn through_gate<T>(
        &self,
        request: Request<Vec<u8>>,
        send: impl AsyncFnOnce(Request<Vec<u8>>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let gate = self.gate.as_ref().filter(|_| !request.method().is_safe());
        // On the heap: each of the futures around it has room for it twice, and moves it when it starts.
        let exchange = self.within_deadline(Box::pin(send(request)));
        match gate {
            Some(gate) => gate.pass(exchange).await,
            None => exchange.await,
        }
    }

    /// Sends a request with the program's `User-Agent`. Returns the answer if it is a success, and its error otherwise.
    pub(super) async fn exchange(&self, request: Request<Body>) -> Result<Response<Body>, ApiError> {
        let answer = self.kube.send(self.agent.sign(request)).await;
        checked(answer.map_err(ApiError::from_transport)?).await
    }

    /// Returns the result of `answer`, unless the deadline expires first.
    pub(super) async fn within_deadline<T>(
        &self,
        answer: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let late = |_| ApiError::new(Class::Timeout, format!("no answer within {:?}", self.deadline));
        self.clock.timeout(self.deadline, answer).await.map_err(late)?
    }
}

/// No Status is larger, but the error page of a proxy may be.
const STATUS_CAP: usize = 1 << 20;

/// Returns the answer if it is a success, and its error otherwise.
async fn checked(response: Response<Body>) -> Result<Response<Body>, ApiError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    // If the body breaks off, the code still counts.
    let body = Limited::new(body, STATUS_CAP).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Err(ApiError::from_response(parts.status, retry_after(&parts.headers), &body))
}

fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
