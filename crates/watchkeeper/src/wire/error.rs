//! The one classifier of failures and error responses.

mod convert;
mod status;
mod transport;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::StatusCode;

use status::Status;

pub(crate) use transport::CannotConnect;

/// The class of an [`ApiError`], by which a caller decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The requested resource version or continue token has expired: list again.
    Expired,
    /// The requested resource version is newer than the server's state.
    VersionTooLarge,
    /// The server asks to slow down; [`ApiError::retry_after`] may have the time to wait.
    TooManyRequests,
    /// The caller is not authorized for this request.
    Forbidden,
    /// The caller is not authenticated.
    Unauthorized,
    /// The object or the kind does not exist.
    NotFound,
    /// An object of this name already exists.
    AlreadyExists,
    /// The object has changed since it was read.
    Conflict,
    /// The request or object is not valid.
    Invalid,
    /// The request took too long; whether a write was applied is unknown.
    Timeout,
    /// Nothing listens at the server's address: nothing was sent.
    ConnectionRefused,
    /// Connecting failed for another reason, such as DNS, routing, the certificate or a timeout: nothing was sent.
    Unreachable,
    /// The connection broke; whether a write was applied is unknown.
    ConnectionLost,
    /// The answer could not be decoded.
    Undecodable,
    /// This process does not lead, or not any more: the write was not sent.
    NotLeader,
    /// Anything else.
    Other,
}

/// A failed request: an error response of the API server, or no response at all.
///
/// Its text has the server's message and reason. It never contains a body that is not a Status.
///
/// ```
/// use watchkeeper::http::StatusCode;
/// use watchkeeper::wire::{ApiError, Class};
///
/// let body = br#"{"kind":"Status","reason":"Conflict","code":409,"message":"the object has been modified"}"#;
/// let error = ApiError::from_response(StatusCode::CONFLICT, None, body);
/// assert_eq!(error.class(), Class::Conflict);
/// assert_eq!(error.to_string(), "the object has been modified (409 Conflict)");
/// ```
#[derive(Debug)]
pub struct ApiError {
    class: Class,
    code: Option<u16>,
    reason: String,
    message: String,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ApiError {
    /// Returns the error of an HTTP response that is not a success, with the `Retry-After` header in seconds if it has
    /// one.
    pub fn from_response(code: StatusCode, retry_after: Option<u64>, body: &[u8]) -> Self {
        let mut error = match Status::read(body) {
            Some(mut status) => {
                status.code.get_or_insert(code.as_u16());
                Self::from(status)
            }
            None => {
                // The response of a server without this kind.
                let hint = if code == StatusCode::NOT_FOUND { ": is the kind's CRD installed?" } else { "" };
                Self {
                    message: format!("HTTP {code} without a readable Status{hint}"),
                    ..Self::from(Status::of_code(code.as_u16()))
                }
            }
        };
        error.retry_after = error.retry_after.or(retry_after.map(Duration::from_secs));
        error
    }

    /// Returns the error in the object of an ERROR event of a watch stream.
    pub fn from_event(object: &[u8]) -> Self {
        match Status::read(object) {
            Some(status) => Self::from(status),
            None => Self::new(Class::Undecodable, "an ERROR event that carries no Status"),
        }
    }

    /// Returns the error of a failure to send the request or to read the answer.
    pub fn from_transport(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = transport::unwrapped(error.into());
        let class = transport::classify(error.as_ref());
        Self { source: Some(error), ..Self::new(class, "cannot reach the API server") }
    }

    /// Returns the error of a successful response whose body could not be decoded.
    pub fn undecodable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(error.into()),
            ..Self::new(Class::Undecodable, "cannot read the API server's answer")
        }
    }

    fn unsendable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(error.into()), ..Self::new(Class::Invalid, "cannot build the request") }
    }

    /// Returns an error of a given class, for sources that are not an API server.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { class, code: None, reason: String::new(), message, retry_after: None, source: None }
    }

    /// Returns the class of the error.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the code of the HTTP response or the Status, if there was a response.
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// Returns the reason of the Status, such as `NotFound`; empty if there was none.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the server's message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the time that the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns whether the requested object or kind does not exist. What is true of an object that is gone may be wrong here, as its kind may
    /// merely not be served for a while: see [`is_missing_object`](Self::is_missing_object).
    pub fn is_not_found(&self) -> bool {
        self.class == Class::NotFound
    }

    /// Returns whether an object does not exist, and the server serves its kind: only then it gives a reason.
    ///
    /// ```
    /// use http::StatusCode;
    /// use watchkeeper::wire::ApiError;
    ///
    /// let status = br#"{"kind":"Status","code":404,"reason":"NotFound","message":"pods \"a\" not found"}"#;
    /// assert!(ApiError::from_response(StatusCode::NOT_FOUND, None, status).is_missing_object());
    /// // The definition of the kind is not installed, or is about to be.
    /// let error = ApiError::from_response(StatusCode::NOT_FOUND, None, b"404 page not found");
    /// assert!(error.is_not_found() && !error.is_missing_object());
    /// ```
    pub fn is_missing_object(&self) -> bool {
        self.is_not_found() && self.reason == "NotFound"
    }

    /// Returns whether this is an internal error of the server: the reason `InternalError`, or the code 500 without a
    /// reason.
    pub fn is_internal(&self) -> bool {
        self.reason == "InternalError" || (self.reason.is_empty() && self.code == Some(500))
    }

    /// Returns whether the requested version cannot be served, so that only another list helps.
    pub fn is_version_unusable(&self) -> bool {
        matches!(self.class, Class::Expired | Class::VersionTooLarge)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match (self.reason.as_str(), self.code) {
            ("", None) => Ok(()),
            ("", Some(code)) => write!(f, " ({code})"),
            (reason, None) => write!(f, " ({reason})"),
            (reason, Some(code)) => write!(f, " ({code} {reason})"),
        }
    }
}

impl Error for ApiError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::status::tests::status;
    use super::*;

    #[test]
    fn an_error_has_the_details_of_the_server() {
        let body = br#"{"kind":"Status","reason":"NotFound","code":404,"message":"no pod a"}"#;
        let error = ApiError::from_event(body);
        assert_eq!((error.code(), error.reason(), error.message()), (Some(404), "NotFound", "no pod a"));
        assert_eq!(error.retry_after(), None);
        assert!(error.is_not_found() && !ApiError::from_event(&status(403, "Forbidden")).is_not_found());
        for (text, error) in [
            ("no pod a (404 NotFound)", error),
            ("m (NotFound)", ApiError::from_event(br#"{"kind":"Status","reason":"NotFound","message":"m"}"#)),
            (
                "HTTP 502 Bad Gateway without a readable Status (502)",
                ApiError::from_response(StatusCode::BAD_GATEWAY, None, b"<html>"),
            ),
            (
                "HTTP 404 Not Found without a readable Status: is the kind's CRD installed? (404)",
                ApiError::from_response(StatusCode::NOT_FOUND, None, b"404 page not found"),
            ),
            ("m", ApiError::new(Class::Other, "m")),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn an_internal_error_has_that_reason_or_the_code_500_and_none() {
        let is_internal = |code: u16, body: &[u8]| {
            ApiError::from_response(StatusCode::from_u16(code).unwrap(), None, body).is_internal()
        };
        assert!(is_internal(500, b"") && is_internal(500, &status(500, "InternalError")));
        assert!(!is_internal(503, b"") && !is_internal(500, &status(500, "StoreReadError")));
    }
}
