//! Requests with the credentials of a client, which are read again once after a refusal.

use std::error::Error;
use std::io;

use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use kube_client::client::Body;
use rustls::AlertDescription;
use tower::BoxError;

use super::super::credentials::{Credentials, Presented};
use super::pool::{Answer, Pool};

/// The number of the credentials that a request was sent with, in the extensions of its answer.
#[derive(Clone, Copy)]
pub(crate) struct SentWith(pub(crate) u64);

/// Sends requests with the credentials of a client.
#[derive(Clone)]
pub(super) struct Signed {
    pub(super) pool: Pool,
    pub(super) credentials: Credentials,
}

impl Signed {
    /// Sends a request. If the server refuses its credentials, and there are others by now, it is sent once more.
    pub(super) async fn send(self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let presented = self.credentials.fresh().await?;
        let copy = if self.credentials.can_change() { copy_of(&request) } else { None };
        let answer = self.present(request, &presented).await;
        let is_refused = match &answer {
            Ok(answer) => answer.status() == StatusCode::UNAUTHORIZED,
            Err(error) => is_about_certificates(error.as_ref()),
        };
        let Some(copy) = copy.filter(|_| is_refused) else { return answer };
        if !self.credentials.after_refusal(&presented).await {
            return answer;
        }
        self.present(copy, &self.credentials.current()).await
    }

    async fn present(
        &self,
        mut request: Request<Body>,
        presented: &Presented,
    ) -> Result<Response<Answer>, BoxError> {
        if let Some(authorization) = presented.authorization() {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let mut answer = self.pool.clone().send(request, presented).await?;
        answer.extensions_mut().insert(SentWith(presented.number));
        Ok(answer)
    }
}

/// Returns the same request again, unless its body is a stream.
fn copy_of(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Returns whether one side of a connection does not trust the other, so that no request was looked at.
fn is_about_certificates(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(link) = cause {
        let inner = link.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = link.downcast_ref().or_else(|| inner?.downcast_ref::<rustls::Error>());
        if tls.is_some_and(is_distrust) {
            return true;
        }
        cause = link.source();
    }
    false
}

fn is_distrust(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(_) => true,
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::DecryptError
                | AlertDescription::HandshakeFailure
                | AlertDescription::NoCertificate
        ),
        _ => false,
    }
}
