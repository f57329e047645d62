//! Answers of the page, with the headers that keep everything else out of it.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use maud::Markup;

/// The body of an answer of the admin server: whole, or a stream.
pub(in super::super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Nothing but the page's own files is loaded, and nothing runs that is not one of them. No other site can show the page, or
/// send its forms elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With `no-referrer`, forms would be sent without their origin.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Returns an answer as one that may also be a stream.
pub(in super::super) fn whole(answer: Response<Full<Bytes>>) -> Response<Body> {
    answer.map(BodyExt::boxed_unsync)
}

pub(super) fn html(status: StatusCode, page: Markup) -> Response<Body> {
    let body = Full::from(page.into_string()).boxed_unsync();
    answer(status, "text/html; charset=utf-8", "no-store", body)
}

pub(super) fn answer(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: Body,
) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    answer
}
