//! Media types of request bodies.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The media types that a request body may have, as error messages list them.
pub(crate) const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Returns the media type of a request body without its parameters, or an empty string.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}
