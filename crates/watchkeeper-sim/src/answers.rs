//! Fault responses that replace the server's own.

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::fault::Reason;
use crate::net::AnswerBody;

pub(crate) type Answer = Response<AnswerBody>;

fn answer(code: u16, content_type: &'static str, body: String) -> Answer {
    let body = Full::from(body).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn status(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    answer(code, "application/json", status.to_string())
}

/// The answer of a server that refuses a request with this status.
pub(crate) fn refused(code: u16, what: &str) -> Answer {
    match code {
        401 => status(code, "Unauthorized", "Unauthorized"),
        403 => status(code, "Forbidden", &format!("{what} is forbidden: simulated")),
        // A kind that is not served, unlike an object that does not exist.
        404 => answer(code, "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
        409 => status(
            code,
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; \
             please apply your changes to the latest version and try again",
        ),
        429 => throttled(),
        503 => status(code, "ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => status(code, "Timeout", "Timeout: request did not complete within the allotted timeout"),
        _ => status(code, "InternalError", "Internal error occurred: simulated"),
    }
}

/// The answer of a server that has forgotten a version, as today's servers or as older ones say it.
pub(crate) fn expired(reason: Reason) -> Answer {
    status(410, &format!("{reason:?}"), "too old resource version: 1 (2)")
}

/// Too many requests, in plain text, as API priority and fairness answers.
fn throttled() -> Answer {
    let message = "Too many requests, please try again later.\n";
    let mut answer = answer(429, "text/plain; charset=utf-8", message.to_owned());
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
    answer
}

/// The answer of a server that has not reached a version yet.
pub(crate) fn too_large() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 504, "reason": "Timeout",
        "message": "Timeout: Too large resource version: 2, current: 1",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                    "retryAfterSeconds": 1},
    });
    answer(504, "application/json", status.to_string())
}
