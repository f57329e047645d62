//! ID tokens of OpenID Connect, renewed with a refresh token.

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode, Uri};
use jiff::Timestamp;
use kube_client::Config;
use kube_client::client::Body;
use kube_client::config::AuthProviderConfig;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::outside::Outside;
use super::problem::Problem;

/// ID tokens of one user at one provider.
pub(super) struct Oidc {
    issuer: String,
    client: String,
    secret: SecretString,
    authority: Option<Authority>,
    tokens: Mutex<Tokens>,
}

/// The certificates of the provider's authority.
enum Authority {
    File(String),
    /// In base64.
    Data(String),
}

#[derive(Clone)]
struct Tokens {
    id: Option<SecretString>,
    /// Providers may issue a new one with each ID token, and accept each only once.
    refresh: SecretString,
}

#[derive(Deserialize)]
struct Discovered {
    token_endpoint: String,
}

#[derive(Deserialize)]
struct Issued {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    exp: f64,
}

impl Oidc {
    /// Returns the tokens of `provider`, if it has a refresh token.
    pub(super) fn new(provider: &AuthProviderConfig) -> Option<Self> {
        let set = |name: &str| provider.config.get(name).filter(|text| !text.is_empty()).cloned();
        let refresh = SecretString::from(set("refresh-token")?);
        let data = set("idp-certificate-authority-data").map(Authority::Data);
        Some(Self {
            issuer: set("idp-issuer-url").unwrap_or_default().trim_end_matches('/').to_owned(),
            client: set("client-id").unwrap_or_default(),
            secret: set("client-secret").unwrap_or_default().into(),
            authority: data.or_else(|| set("idp-certificate-authority").map(Authority::File)),
            tokens: Mutex::new(Tokens { id: set("id-token").map(SecretString::from), refresh }),
        })
    }

    /// Returns the last ID token, if there is one, and when it expires.
    pub(super) fn current(&self) -> (Option<SecretString>, Option<Timestamp>) {
        let id = self.tokens.lock().id.clone();
        let expires = id.as_ref().map(|id| expiry(id.expose_secret()));
        (id, expires.unwrap_or(Some(Timestamp::UNIX_EPOCH)))
    }

    /// Asks the provider for a new ID token.
    pub(super) async fn renew(&self, outside: &dyn Outside) -> Result<(), Problem> {
        let provider = |url: &str| self.provider(url, outside);
        let (config, uri) = provider(&format!("{}/.well-known/openid-configuration", self.issuer))?;
        let request =
            Request::get(uri).body(Body::empty()).map_err(|_| Problem::Provider("its address is no URL"))?;
        let answer = outside.ask(config, request).await.map_err(Problem::Unanswered)?;
        let found: Discovered = read(&answer)?;

        let refresh = self.tokens.lock().refresh.clone();
        // Some providers accept the client's secret in a header only, others in the form only.
        let mut last = Err(Problem::Provider("it refused the refresh token"));
        for in_header in [true, false] {
            let (config, uri) = provider(&found.token_endpoint)?;
            let request = self.refreshing(uri, &refresh, in_header)?;
            let answer = outside.ask(config, request).await.map_err(Problem::Unanswered)?;
            if answer.status() == StatusCode::OK {
                last = read(&answer);
                break;
            }
        }
        let issued: Issued = last?;
        let id = issued.id_token.ok_or(Problem::Provider("it gave no ID token"))?;
        let mut tokens = self.tokens.lock();
        tokens.id = Some(id.into());
        if let Some(refresh) = issued.refresh_token {
            tokens.refresh = refresh.into();
        }
        Ok(())
    }

    fn refreshing(
        &self,
        uri: Uri,
        refresh: &SecretString,
        in_header: bool,
    ) -> Result<Request<Body>, Problem> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", refresh.expose_secret());
        let mut request = Request::post(uri).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let secret = self.secret.expose_secret();
        if in_header {
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(&self.client), encoded(secret)));
            request = request.header(AUTHORIZATION, format!("Basic {pair}"));
        } else {
            form.append_pair("client_id", &self.client).append_pair("client_secret", secret);
        }
        let body = Body::from(form.finish().into_bytes());
        request.body(body).map_err(|_| Problem::Provider("its address is no URL"))
    }

    /// Returns how to reach the provider at `url`, which must be secure: a token is sent there.
    fn provider(&self, url: &str, outside: &dyn Outside) -> Result<(Config, Uri), Problem> {
        let uri: Uri = url.parse().map_err(|_| Problem::Provider("its address is no URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(Problem::Provider("its address is not https"));
        }
        let mut config = Config::new(uri.clone());
        let pem = match &self.authority {
            None => return Ok((config, uri)),
            Some(Authority::Data(data)) => {
                BASE64_STANDARD.decode(data).map_err(|_| Problem::Provider("its authority is not base64"))?
            }
            Some(Authority::File(file)) => {
                outside.read(file.as_ref()).map_err(|source| Problem::Read { file: file.into(), source })?
            }
        };
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let found = found.map_err(|_| Problem::Provider("its authority holds no certificate"))?;
        config.root_cert = Some(found.iter().map(|certificate| certificate.to_vec()).collect());
        Ok((config, uri))
    }
}

fn read<T: for<'a> Deserialize<'a>>(answer: &Response<Bytes>) -> Result<T, Problem> {
    if answer.status() != StatusCode::OK {
        return Err(Problem::Provider("it answered with an error"));
    }
    serde_json::from_slice(answer.body()).map_err(|_| Problem::Provider("its answer is not as it should be"))
}

/// Returns when a token in the form of a JWT expires.
pub(super) fn expiry(token: &str) -> Option<Timestamp> {
    let claims = token.split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.exp as i64).ok()
}
