//! Fault responses that replace the server's own.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use serde_json::{Value, json};

use crate::net::BoxError;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

fn answer(code: StatusCode, content_type: &'static str, body: String) -> Answer {
    let body = Full::from(body).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn status(code: StatusCode, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    answer(code, "application/json", status.to_string())
}

/// 410: a watch from an expired version.
pub(crate) fn expired() -> Answer {
    status(StatusCode::GONE, "Expired", "too old resource version")
}

/// 409: a write whose version is outdated, or that lost to other writers.
pub(crate) fn conflict() -> Answer {
    let message = "Operation cannot be fulfilled: the object has been modified; \
                   please apply your changes to the latest version and try again";
    status(StatusCode::CONFLICT, "Conflict", message)
}

/// 429: too many requests, in plain text, as API priority and fairness answers.
pub(crate) fn throttled(seconds: u64) -> Answer {
    let message = "Too many requests, please try again later.\n";
    let mut answer = answer(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", message.to_owned());
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// 500: an internal error, before or after the server has acted.
pub(crate) fn failed() -> Answer {
    let message = "Internal error occurred: simulated";
    status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
}

/// Returns whether a real server may answer the request with a conflict: a patch, or an update with a resourceVersion.
pub(crate) async fn may_conflict(request: Request<Body>) -> Result<(bool, Request<Body>), BoxError> {
    if request.method() == Method::PATCH {
        return Ok((true, request));
    }
    if request.method() != Method::PUT {
        return Ok((false, request));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    let has_version =
        object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty());
    Ok((has_version, Request::from_parts(head, Body::from(body))))
}
