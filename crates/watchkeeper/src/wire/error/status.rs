//! The Status of an error response, and its class.

use std::time::Duration;

use serde::Deserialize;

use super::{ApiError, Class};

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    kind: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    pub(super) code: Option<u16>,
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
    /// Returns the Status of a response that has none.
    pub(super) fn of_code(code: u16) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        // serde accepts an array as a struct, too.
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let status = first.filter(|first| **first == b'{').and_then(|_| serde_json::from_slice(bytes).ok());
        status.filter(|status: &Self| status.kind.as_deref() == Some("Status"))
    }
}

const TOO_LARGE: &str = "Too large resource version";

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

#[cfg(test)]
pub(super) mod tests {
    use http::StatusCode;

    use super::*;

    pub(in crate::wire::error) fn status(code: u16, reason: &str) -> Vec<u8> {
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
    fn an_error_event_without_a_status_is_undecodable() {
        assert_eq!(ApiError::from_event(b"{\"a\":1}").class(), Class::Undecodable);
        assert_eq!(ApiError::from_event(b"7").class(), Class::Undecodable);
    }
}
