//! Requests without a token, which a web page could have made: only those of local programs are served.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Method, Request};
use http_body::Body;

use crate::codec::media_type::{BODIES, content_type};
use crate::failure::{Failure, quoted};

/// Why a request is refused; none if a local program made it.
///
/// A page reaches a loopback address under its own name (DNS rebinding), which `Host` tells, or from another origin, which `Origin` tells.
/// A browser asks before it sends a page's JSON, and sends a POST without a type unasked; all other methods with a body it asks about.
pub(crate) fn refusal<B: Body>(request: &Request<B>) -> Option<Box<Failure>> {
    let headers = request.headers();
    let Some(host) = only(headers, HOST.as_str()) else {
        return Some(Failure::bad_request("a request over plain HTTP needs one Host header"));
    };
    let mut named = request.uri().authority().map(Authority::as_str).into_iter().chain([host]);
    if let Some(host) = named.find(|host| !is_loopback(host)) {
        return Some(forbidden(&format!(
            "the host {} is not a loopback name: over plain HTTP use localhost, 127.0.0.1 or [::1]",
            quoted(host)
        )));
    }
    let is_own = |origin: &str| origin.eq_ignore_ascii_case(&format!("http://{host}"));
    if headers.contains_key(ORIGIN) && !only(headers, ORIGIN.as_str()).is_some_and(is_own) {
        return Some(forbidden("over plain HTTP pages of another origin are not served"));
    }
    let is_untyped = content_type(headers).is_empty() && !request.body().is_end_stream();
    (request.method() == Method::POST && is_untyped).then(|| Failure::unsupported_media_type(BODIES))
}

fn forbidden(why: &str) -> Box<Failure> {
    Failure::new(403, "Forbidden", why)
}

/// The value of a header that stands there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

fn is_loopback(authority: &str) -> bool {
    let Ok(parsed) = authority.parse::<Authority>() else { return false };
    let host = parsed.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_local = host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_local && !authority.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_mean_this_machine_are_loopback_names() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1", "127.9.9.9:6443", "[::1]", "[::1]:80"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com:80",
            "user@localhost",
            "localhost@example.com",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "::1",
            "[::ffff:127.0.0.1]",
            "2130706433",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
