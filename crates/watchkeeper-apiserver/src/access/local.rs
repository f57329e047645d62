//! Protection of the plain HTTP listener, which needs no token, from requests of web pages.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Method, Request};
use http_body::Body;

use crate::codec::media_type::{BODIES, content_type};
use crate::failure::{Failure, quoted};

/// Returns why a request is refused, or `None` if a local program sent it.
///
/// A web page can reach a loopback address by DNS rebinding, which shows in `Host`, or as a cross-origin request, which
/// shows in `Origin`. Browsers send a POST without a content type without a preflight request; JSON bodies and other
/// methods with a body need one.
pub(super) fn refusal<B: Body>(request: &Request<B>) -> Option<Box<Failure>> {
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
        return Some(forbidden("cross-origin requests are not served over plain HTTP"));
    }
    let is_untyped = content_type(headers).is_empty() && !request.body().is_end_stream();
    (request.method() == Method::POST && is_untyped).then(|| Failure::unsupported_media_type(BODIES))
}

fn forbidden(why: &str) -> Box<Failure> {
    Failure::new(403, "Forbidden", why)
}

/// Returns the value of a header that occurs exactly once.
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
