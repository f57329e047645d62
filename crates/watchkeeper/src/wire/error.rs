//! What did the API server answer instead? One classifier, wherever the answer arrived.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use http::StatusCode;
use hyper_util::client::legacy;
use kube_core::request::Error as RequestError;
use serde::Deserialize;

use super::pieces::SplitError;
use crate::object::JsonError;

/// The class of an [`ApiError`]: what a caller may want to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The resource version or continue token asked for is no longer served: list again.
    Expired,
    /// The server does not know the resource version asked for yet.
    VersionTooLarge,
    /// Slow down; [`ApiError::retry_after`] may say for how long.
    TooManyRequests,
    /// The caller may not do this.
    Forbidden,
    /// The caller is not known.
    Unauthorized,
    /// There is no such object, or no such kind.
    NotFound,
    /// An object of this name exists.
    AlreadyExists,
    /// The object was changed meanwhile.
    Conflict,
    /// The request or object is not valid.
    Invalid,
    /// Took too long; whether a write was applied is unknown.
    Timeout,
    /// Nobody listens at the server's address: nothing was sent.
    ConnectionRefused,
    /// No connection could be made for another reason, such as its name, its route, its certificate or the time that it took: nothing was sent.
    Unreachable,
    /// The connection broke; whether a write was applied is unknown.
    ConnectionLost,
    /// The answer could not be read.
    Undecodable,
    /// Anything else.
    Other,
}

/// An answer of an API server that is not the one asked for, or the lack of any answer.
///
/// Its text names the reason and the server's message; it never carries a body that could not be read as a Status.
#[derive(Debug)]
pub struct ApiError {
    class: Class,
    code: Option<u16>,
    reason: String,
    message: String,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    kind: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    code: Option<u16>,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
    causes: Option<Vec<Cause>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
}

impl Status {
    fn read(bytes: &[u8]) -> Option<Self> {
        // serde takes an array for a struct, too.
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let status = first.filter(|first| **first == b'{').and_then(|_| serde_json::from_slice(bytes).ok());
        status.filter(|status: &Self| status.kind.as_deref() == Some("Status"))
    }
}

const TOO_LARGE: &str = "Too large resource version";

impl ApiError {
    /// From an HTTP answer that is not a success, with the `Retry-After` header in seconds where there was one.
    pub fn from_response(code: StatusCode, retry_after: Option<u64>, body: &[u8]) -> Self {
        let mut error = match Status::read(body) {
            Some(mut status) => {
                status.code.get_or_insert(code.as_u16());
                Self::from(status)
            }
            None => {
                // So a server answers that has no such kind.
                let hint = if code == StatusCode::NOT_FOUND { ": is the kind's CRD installed?" } else { "" };
                Self {
                    message: format!("HTTP {code} without a readable Status{hint}"),
                    ..Self::from(Status { code: Some(code.as_u16()), ..Status::default() })
                }
            }
        };
        error.retry_after = error.retry_after.or(retry_after.map(Duration::from_secs));
        error
    }

    /// From the object of an ERROR event in a watch stream.
    pub fn from_event(object: &[u8]) -> Self {
        match Status::read(object) {
            Some(status) => Self::from(status),
            None => Self::new(Class::Undecodable, "an ERROR event that carries no Status"),
        }
    }

    /// From a failure to send the request or to read the answer.
    pub fn from_transport(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = error.into();
        let (mut class, mut connecting) = (Class::Other, false);
        let mut cause: Option<&(dyn Error + 'static)> = Some(error.as_ref());
        while let Some(link) = cause {
            connecting |= link.downcast_ref().is_some_and(legacy::Error::is_connect);
            if let Some(found) = transport_class(link) {
                class = found;
            }
            cause = link.source();
        }
        if connecting && class != Class::ConnectionRefused {
            class = Class::Unreachable;
        }
        Self { source: Some(error), ..Self::new(class, "cannot reach the API server") }
    }

    /// A successful answer whose body could not be read as what was asked for.
    pub fn undecodable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(error.into()),
            ..Self::new(Class::Undecodable, "cannot read the API server's answer")
        }
    }

    fn unsendable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(error.into()), ..Self::new(Class::Invalid, "cannot build the request") }
    }

    /// An error of a given class, for sources that are not an API server.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { class, code: None, reason: String::new(), message, retry_after: None, source: None }
    }

    /// What kind of answer this is.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The HTTP or Status code, where there was an answer.
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// The Status reason, such as `NotFound`; empty where there was none.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The server's message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the object or kind asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.class == Class::NotFound
    }

    /// Whether the server failed over something of its own: the reason `InternalError`, or the code 500 without a reason.
    pub fn is_internal(&self) -> bool {
        self.reason == "InternalError" || (self.reason.is_empty() && self.code == Some(500))
    }

    /// Whether the version asked for cannot be served: only another list helps.
    pub fn is_version_unusable(&self) -> bool {
        matches!(self.class, Class::Expired | Class::VersionTooLarge)
    }
}

fn transport_class(error: &(dyn Error + 'static)) -> Option<Class> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Class::ConnectionRefused),
            io::ErrorKind::TimedOut => Some(Class::Timeout),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::UnexpectedEof => Some(Class::ConnectionLost),
            _ => None,
        };
    }
    if let Some(api) = error.downcast_ref::<ApiError>() {
        return Some(api.class);
    }
    // hyper and hyper-util do not tell their kinds apart by type.
    let text = error.to_string();
    let lost = [
        "connection closed",
        "incomplete message",
        "connection error",
        "canceled",
        "channel closed",
        "end of file",
    ];
    if text.contains("timed out") || text.contains("deadline") {
        return Some(Class::Timeout);
    }
    lost.iter().any(|lost| text.contains(lost)).then_some(Class::ConnectionLost)
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        let (reason, code) = (status.reason.unwrap_or_default(), status.code);
        let message = status.message.unwrap_or_default();
        let details = status.details.unwrap_or_default();
        let too_large = message.contains(TOO_LARGE)
            || details.causes.unwrap_or_default().iter().any(|cause| {
                cause.reason.as_deref() == Some("ResourceVersionTooLarge")
                    || cause.message.as_deref().is_some_and(|m| m.contains(TOO_LARGE))
            });
        let class = match (reason.as_str(), code) {
            _ if too_large => Class::VersionTooLarge,
            ("Expired" | "Gone", _) => Class::Expired,
            ("TooManyRequests", _) => Class::TooManyRequests,
            ("Forbidden", _) => Class::Forbidden,
            ("Unauthorized", _) => Class::Unauthorized,
            ("NotFound", _) => Class::NotFound,
            ("AlreadyExists", _) => Class::AlreadyExists,
            ("Conflict", _) => Class::Conflict,
            ("Invalid" | "BadRequest", _) => Class::Invalid,
            ("Timeout" | "ServerTimeout", _) => Class::Timeout,
            (_, Some(410)) => Class::Expired,
            (_, Some(429)) => Class::TooManyRequests,
            (_, Some(403)) => Class::Forbidden,
            (_, Some(401)) => Class::Unauthorized,
            (_, Some(404)) => Class::NotFound,
            (_, Some(409)) => Class::Conflict,
            (_, Some(400 | 422)) => Class::Invalid,
            (_, Some(408 | 504)) => Class::Timeout,
            _ => Class::Other,
        };
        let retry_after = details.retry_after_seconds.filter(|s| *s > 0).map(Duration::from_secs);
        Self { class, code, reason, message, retry_after, source: None }
    }
}

impl From<kube_core::Status> for Status {
    fn from(status: kube_core::Status) -> Self {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let cause = |cause: kube_core::response::StatusCause| Cause {
            reason: given(cause.reason),
            message: given(cause.message),
        };
        let details = status.details.map(|details| Details {
            retry_after_seconds: Some(details.retry_after_seconds.into()),
            causes: Some(details.causes.into_iter().map(cause).collect()),
        });
        Self {
            kind: None,
            message: given(status.message),
            reason: given(status.reason),
            code: Some(status.code).filter(|code| *code > 0),
            details,
        }
    }
}

/// What kube gives as the reason where a body could not be read as a Status; its message is that body.
const NO_STATUS: &str = "Failed to parse error data";

impl From<kube_client::Error> for ApiError {
    /// For those who use kube's client beside ours: the same classes, and no values of a body either.
    fn from(error: kube_client::Error) -> Self {
        use kube_client::Error;
        match error {
            Error::Api(status) if status.reason == NO_STATUS => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Self::from_response(code, None, b"")
            }
            Error::Api(status) => Self::from(Status::from(*status)),
            Error::SerdeError(error) => Self::undecodable(JsonError::from(error)),
            Error::FromUtf8(error) => Self::undecodable(error.utf8_error()),
            Error::BuildRequest(error) => Self::from(error),
            Error::HttpError(error) => Self::unsendable(error),
            other => Self::from_transport(other),
        }
    }
}

impl From<RequestError> for ApiError {
    /// Without the values of a body that could not be encoded.
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::SerializeBody(error) => {
                Self::new(Class::Invalid, format!("cannot encode the request: {}", JsonError::from(error)))
            }
            other => Self::unsendable(other),
        }
    }
}

impl From<SplitError> for ApiError {
    fn from(error: SplitError) -> Self {
        match error {
            SplitError::Truncated => Self {
                source: Some(error.into()),
                ..Self::new(Class::ConnectionLost, "the answer broke off")
            },
            other => Self::undecodable(other),
        }
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
    use super::*;
    use crate::object::Malformed;

    fn status(code: u16, reason: &str) -> Vec<u8> {
        serde_json::to_vec_pretty(&serde_json::json!({
            "kind": "Status", "status": "Failure", "message": "m", "reason": reason, "code": code,
        }))
        .unwrap()
    }

    #[test]
    fn a_status_is_classified_the_same_wherever_it_arrives() {
        for (code, reason, class) in [
            (410, "Expired", Class::Expired),
            (410, "Gone", Class::Expired),
            (410, "", Class::Expired),
            (429, "TooManyRequests", Class::TooManyRequests),
            (403, "Forbidden", Class::Forbidden),
            (401, "Unauthorized", Class::Unauthorized),
            (404, "NotFound", Class::NotFound),
            (409, "AlreadyExists", Class::AlreadyExists),
            (409, "Conflict", Class::Conflict),
            (422, "Invalid", Class::Invalid),
            (504, "Timeout", Class::Timeout),
            (500, "InternalError", Class::Other),
        ] {
            let body = status(code, reason);
            let event = ApiError::from_event(&body);
            assert_eq!(event.class(), class, "event {code} {reason}");
            assert_eq!(event.is_version_unusable(), class == Class::Expired);
            let http = StatusCode::from_u16(code).unwrap();
            assert_eq!(ApiError::from_response(http, None, &body).class(), class, "answer {code} {reason}");
        }
    }

    #[test]
    fn every_code_has_one_class_in_whatever_body_it_comes() {
        for (code, reason, class) in [
            (400, "BadRequest", Class::Invalid),
            (401, "Unauthorized", Class::Unauthorized),
            (403, "Forbidden", Class::Forbidden),
            (404, "NotFound", Class::NotFound),
            (405, "MethodNotAllowed", Class::Other),
            (409, "Conflict", Class::Conflict),
            (410, "Expired", Class::Expired),
            (413, "RequestEntityTooLarge", Class::Other),
            (415, "UnsupportedMediaType", Class::Other),
            (422, "Invalid", Class::Invalid),
            (429, "TooManyRequests", Class::TooManyRequests),
            (500, "InternalError", Class::Other),
            (502, "", Class::Other),
            (503, "ServiceUnavailable", Class::Other),
            (504, "Timeout", Class::Timeout),
        ] {
            let compact = format!(r#"{{"kind":"Status","code":{code},"reason":"{reason}","message":"m"}}"#);
            let pretty = String::from_utf8(status(code, reason)).unwrap();
            let http = StatusCode::from_u16(code).unwrap();
            for body in [&compact, &pretty, "<html>secret</html>", &compact[..20], ""] {
                let error = ApiError::from_response(http, Some(7), body.as_bytes());
                assert_eq!((error.class(), error.code()), (class, Some(code)), "{code} {body:?}");
                assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
                assert!(!format!("{error} {error:?}").contains("secret"));
            }
            for body in [&compact, &pretty] {
                assert_eq!(ApiError::from_event(body.as_bytes()).class(), class, "{code} {body:?}");
            }
        }
    }

    #[test]
    fn an_error_of_kubes_client_is_classified_the_same_and_keeps_bodies_to_itself() {
        let read = |body: &[u8]| serde_json::from_slice::<kube_core::Status>(body).unwrap();
        for (code, reason, class) in [
            (404, "NotFound", Class::NotFound),
            (409, "AlreadyExists", Class::AlreadyExists),
            (409, "Conflict", Class::Conflict),
            (410, "Expired", Class::Expired),
            (429, "", Class::TooManyRequests),
        ] {
            let body = status(code, reason);
            let error = ApiError::from(kube_client::Error::Api(Box::new(read(&body))));
            let ours = ApiError::from_response(StatusCode::from_u16(code).unwrap(), None, &body);
            assert_eq!((error.class(), error.to_string()), (class, ours.to_string()));
        }
        let busy = br#"{"kind":"Status","code":504,"details":{"retryAfterSeconds":3,"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        let error = ApiError::from(kube_client::Error::Api(Box::new(read(busy))));
        assert_eq!(
            (error.class(), error.retry_after()),
            (Class::VersionTooLarge, Some(Duration::from_secs(3)))
        );
        let page = kube_core::Status::failure("<html>secret</html>", NO_STATUS).with_code(502);
        let text = serde_json::from_str::<u32>("\"secret\"").unwrap_err();
        let bytes = String::from_utf8(b"secret\xff".to_vec()).unwrap_err();
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        for (error, class) in [
            (kube_client::Error::Api(Box::new(page)), Class::Other),
            (kube_client::Error::SerdeError(text), Class::Undecodable),
            (kube_client::Error::FromUtf8(bytes), Class::Undecodable),
            (kube_client::Error::Service(Box::new(reset)), Class::ConnectionLost),
        ] {
            let error = ApiError::from(error);
            assert_eq!(error.class(), class);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn an_answer_without_a_status_is_classified_by_its_code_and_keeps_its_body_to_itself() {
        for body in ["", "<html>secret</html>", "{\"kind\":\"Sta", "{\"data\":\"secret\"}"] {
            let error = ApiError::from_response(StatusCode::GONE, Some(3), body.as_bytes());
            assert_eq!((error.class(), error.code()), (Class::Expired, Some(410)));
            assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_reason_or_a_code_alone_is_enough() {
        for (reason, codes, class) in [
            ("Expired", &[410][..], Class::Expired),
            ("Gone", &[410], Class::Expired),
            ("TooManyRequests", &[429], Class::TooManyRequests),
            ("Forbidden", &[403], Class::Forbidden),
            ("Unauthorized", &[401], Class::Unauthorized),
            ("NotFound", &[404], Class::NotFound),
            ("Conflict", &[409], Class::Conflict),
            ("Invalid", &[422], Class::Invalid),
            ("BadRequest", &[400], Class::Invalid),
            ("Timeout", &[504, 408], Class::Timeout),
            ("ServerTimeout", &[], Class::Timeout),
        ] {
            let reason = format!(r#"{{"kind":"Status","reason":"{reason}"}}"#);
            assert_eq!(ApiError::from_event(reason.as_bytes()).class(), class, "{reason}");
            for code in codes {
                let code = format!(r#"{{"kind":"Status","code":{code}}}"#);
                assert_eq!(ApiError::from_event(code.as_bytes()).class(), class, "{code}");
            }
        }
    }

    #[test]
    fn an_error_tells_what_the_server_told() {
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
    fn a_status_may_begin_with_white_space_and_be_of_no_other_kind() {
        assert_eq!(ApiError::from_event(b"\r\n {\"kind\":\"Status\",\"code\":410}").class(), Class::Expired);
        assert_eq!(ApiError::from_event(br#"{"kind":"Pod","code":410}"#).class(), Class::Undecodable);
        assert_eq!(ApiError::from_event(br#"["Status","m","Gone",410]"#).class(), Class::Undecodable);
    }

    #[test]
    fn a_delay_in_the_status_outranks_the_header_unless_it_is_none() {
        let delay = |seconds: u64| {
            let body =
                format!(r#"{{"kind":"Status","code":429,"details":{{"retryAfterSeconds":{seconds}}}}}"#);
            ApiError::from_response(StatusCode::TOO_MANY_REQUESTS, Some(7), body.as_bytes()).retry_after()
        };
        assert_eq!(delay(1), Some(Duration::from_secs(1)));
        assert_eq!(delay(0), Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_version_from_the_future_is_recognised_in_all_its_forms() {
        for body in [
            r#"{"kind":"Status","reason":"Timeout","code":504,"message":"Too large resource version: 9, current: 5"}"#,
            r#"{"kind":"Status","reason":"Timeout","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}}"#,
            r#"{"kind":"Status","reason":"Timeout","code":504,"details":{"causes":[{"message":"Too large resource version"}]}}"#,
        ] {
            let error = ApiError::from_event(body.as_bytes());
            assert!(error.class() == Class::VersionTooLarge && error.is_version_unusable());
        }
    }

    #[test]
    fn transport_failures_are_found_anywhere_in_the_chain() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        for (kind, class) in [
            (io::ErrorKind::ConnectionRefused, Class::ConnectionRefused),
            (io::ErrorKind::ConnectionReset, Class::ConnectionLost),
            (io::ErrorKind::HostUnreachable, Class::ConnectionLost),
            (io::ErrorKind::NetworkUnreachable, Class::ConnectionLost),
            (io::ErrorKind::NetworkDown, Class::ConnectionLost),
            (io::ErrorKind::TimedOut, Class::Timeout),
            (io::ErrorKind::PermissionDenied, Class::Other),
        ] {
            let error = ApiError::from_transport(Outer(kind.into()));
            assert_eq!((error.class(), error.code()), (class, None));
            assert_eq!(error.source().unwrap().to_string(), "outer");
        }
    }

    #[tokio::test]
    async fn without_a_connection_nothing_was_sent() {
        use hyper_util::rt::{TokioExecutor, TokioIo};
        for (kind, class) in [
            (io::ErrorKind::ConnectionRefused, Class::ConnectionRefused),
            (io::ErrorKind::HostUnreachable, Class::Unreachable),
            (io::ErrorKind::TimedOut, Class::Unreachable),
            (io::ErrorKind::ConnectionReset, Class::Unreachable),
            // So the resolver fails.
            (io::ErrorKind::Other, Class::Unreachable),
        ] {
            let no_stream = move |_: http::Uri| {
                std::future::ready(Err::<TokioIo<tokio::net::TcpStream>, _>(io::Error::from(kind)))
            };
            let client = legacy::Client::builder(TokioExecutor::new()).build(tower::service_fn(no_stream));
            let client: legacy::Client<_, http_body_util::Empty<bytes::Bytes>> = client;
            let error = client.get(http::Uri::from_static("http://server.test")).await.unwrap_err();
            assert_eq!(ApiError::from_transport(error).class(), class, "{kind:?}");
        }
    }

    #[test]
    fn transport_failures_without_a_type_are_told_by_their_text() {
        for (text, class) in [
            ("operation timed out", Class::Timeout),
            ("deadline has elapsed", Class::Timeout),
            ("connection closed before message completed", Class::ConnectionLost),
            ("no such host", Class::Other),
        ] {
            assert_eq!(ApiError::from_transport(text).class(), class, "{text}");
        }
        let known = ApiError::new(Class::Unauthorized, "no token");
        assert_eq!(ApiError::from_transport(known).class(), Class::Unauthorized);
    }

    #[test]
    fn an_answer_that_breaks_off_is_a_lost_connection_and_one_that_makes_no_sense_undecodable() {
        let broken = Malformed { what: "expected an object", at: 0 };
        for (error, class, text) in [
            (SplitError::Truncated, Class::ConnectionLost, SplitError::Truncated.to_string()),
            (broken.into(), Class::Undecodable, broken.to_string()),
        ] {
            let error = ApiError::from(error);
            assert_eq!((error.class(), error.source().unwrap().to_string()), (class, text));
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

    #[test]
    fn an_error_event_without_a_status_is_undecodable() {
        assert_eq!(ApiError::from_event(b"{\"a\":1}").class(), Class::Undecodable);
        assert_eq!(ApiError::from_event(b"7").class(), Class::Undecodable);
    }
}
