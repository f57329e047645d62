//! Access control: which requests on a socket are served.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use http_body::Body;
use subtle::ConstantTimeEq as _;

use crate::failure::Failure;

mod local;

/// Returns why a request is refused, or `None` if it is served: it needs the bearer token, or without one, on the plain
/// HTTP listener, must come from a local program.
pub(crate) fn refusal<B: Body>(request: &Request<B>, token: Option<&str>) -> Option<Box<Failure>> {
    match token {
        Some(token) => (!has_token(request.headers(), token)).then(Failure::unauthorized),
        None => local::refusal(request),
    }
}

/// Compares in constant time.
fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, sent)) = authorization.and_then(|text| text.split_once(' ')) else { return false };
    scheme.eq_ignore_ascii_case("bearer") && sent.trim().as_bytes().ct_eq(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_token_is_admitted() {
        let admits = |authorization: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(authorization) = authorization {
                headers.insert(AUTHORIZATION, authorization.parse().unwrap());
            }
            has_token(&headers, "0123456789abcdef")
        };
        let right = "Bearer 0123456789abcdef";
        assert!(admits(Some(right)));
        for wrong in [None, Some(""), Some("Bearer x"), Some("Basic abc"), Some(&right[..right.len() - 1])] {
            assert!(!admits(wrong));
        }
    }
}
