//! What the admin server does on request: it has an object reconciled, if the program permits that.
//!
//! A request is a POST to `/controllers/NAME/reconcile?key=NAMESPACE/NAME`. It is refused unless it comes from the page itself
//! or from a program that is no browser, so that no other site can send it in the name of a user (`is_own`).

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{ACCEPT, HOST, LOCATION, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use percent_encoding::percent_decode_str;

use super::page::explain_link;
use super::pages::{Pages, text};
use crate::explain::{ExplainError, ExplainSource};

/// Who may have objects reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actions {
    /// Nobody.
    Off,
    /// Whoever reaches the loopback interface.
    Local,
    /// Those whom the API server permits to `post` to the path.
    Permitted,
}

impl Actions {
    /// Returns who may at this address. In plain text elsewhere than on a loopback address, nobody may.
    pub(super) fn at(address: SocketAddr, pages: &Pages, is_secure: bool) -> Self {
        match (pages.actions, is_secure) {
            (false, _) => Self::Off,
            (true, true) => Self::Permitted,
            (true, false) if address.ip().to_canonical().is_loopback() => Self::Local,
            (true, false) => {
                tracing::warn!(%address, "no actions on the admin page: everybody could reach them");
                Self::Off
            }
        }
    }
}

/// Returns the controller that a path is about, if it is that of a request to reconcile.
pub(super) fn controller(path: &str) -> Option<String> {
    let name = path.strip_prefix("/controllers/")?.strip_suffix("/reconcile")?;
    Some(percent_decode_str(name).decode_utf8_lossy().into_owned())
}

/// Has an object reconciled, in the name of `user`.
pub(super) fn reconcile(
    source: &dyn ExplainSource,
    (controller, query): (&str, &str),
    headers: &HeaderMap,
    actions: Actions,
    user: &str,
) -> Response<Full<Bytes>> {
    if actions == Actions::Off {
        return refused(&ExplainError::NoActions);
    }
    if !is_own(headers, actions) {
        return text(StatusCode::FORBIDDEN, "this request comes from another site\n".to_owned());
    }
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let key = pairs.find(|(name, _)| name == "key").map(|(_, key)| key.into_owned()).unwrap_or_default();
    if key.is_empty() {
        return refused(&ExplainError::MissingParameter("key".to_owned()));
    }
    if let Err(error) = source.reconcile_now(controller, &key) {
        return refused(&error);
    }
    tracing::info!(controller, key, user, "a reconcile was asked for on the admin page");
    accepted(source, controller, &key, headers)
}

fn refused(error: &ExplainError) -> Response<Full<Bytes>> {
    let status = match error {
        error if error.is_not_found() => StatusCode::NOT_FOUND,
        ExplainError::NotRunning { .. } => StatusCode::CONFLICT,
        ExplainError::NoActions => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    text(status, format!("{error}\n"))
}

/// Leads a browser back to the object.
fn accepted(
    source: &dyn ExplainSource,
    controller: &str,
    key: &str,
    headers: &HeaderMap,
) -> Response<Full<Bytes>> {
    let is_browser = one(headers, ACCEPT).is_some_and(|accept| accept.contains("text/html"));
    if !is_browser {
        return text(StatusCode::ACCEPTED, format!("{key} is reconciled as soon as a worker is free\n"));
    }
    let controllers = source.overview().controllers;
    let kind = controllers.iter().find(|view| view.name == controller).map(|view| view.kind.resource());
    let link = explain_link(&kind.unwrap_or_default(), key);
    let mut answer = text(StatusCode::SEE_OTHER, String::new());
    if let Ok(link) = HeaderValue::from_str(&link) {
        answer.headers_mut().insert(LOCATION, link);
    }
    answer
}

/// Returns whether a request comes from the page itself, or from a program that is no browser.
///
/// A browser names the origin of every POST. On a loopback address it must also be the name of one: else another site could
/// let its own name lead there.
fn is_own(headers: &HeaderMap, actions: Actions) -> bool {
    let Some(host) = one(headers, HOST) else { return false };
    if actions == Actions::Local && !names_loopback(headers) {
        return false;
    }
    let is_here =
        |origin: &str| origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host));
    let fetched = one(headers, HeaderName::from_static("sec-fetch-site"));
    match headers.contains_key(ORIGIN) {
        true => one(headers, ORIGIN).is_some_and(is_here),
        // A browser that names no origin says at least from where.
        false => fetched.is_none_or(|site| site == "same-origin"),
    }
}

/// Returns whether a request names a loopback address as its host, or `localhost`. Otherwise another site may have let its own
/// name lead to a loopback address, so that a browser takes what is there for a part of that site (DNS rebinding).
pub(super) fn names_loopback(headers: &HeaderMap) -> bool {
    one(headers, HOST).is_some_and(is_loopback)
}

/// Returns whether a host is a loopback address, or the name of one.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Returns the value of a header that is there once.
fn one(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_own_with(actions: Actions, pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        is_own(&headers, actions)
    }

    #[test]
    fn only_the_page_itself_and_programs_that_are_no_browsers_are_heard() {
        let local = |pairs: &[(&'static str, &'static str)]| is_own_with(Actions::Local, pairs);
        assert!(local(&[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")]));
        assert!(local(&[("host", "localhost:8080"), ("origin", "http://localhost:8080")]));
        assert!(local(&[("host", "[::1]:8080")]), "curl");
        assert!(!local(&[("host", "localhost:8080"), ("origin", "http://evil.example")]));
        assert!(!local(&[("host", "localhost:8080"), ("origin", "null")]));
        assert!(!local(&[("host", "localhost:8080"), ("origin", "http://localhost:80")]), "another port");
        assert!(!local(&[("host", "localhost:8080"), ("sec-fetch-site", "cross-site")]));
        assert!(!local(&[("origin", "http://localhost:8080")]), "no host");
        let twice =
            [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")];
        assert!(!local(&twice));
    }

    #[test]
    fn a_name_that_leads_to_a_loopback_address_is_not_one() {
        let rebound = [("host", "evil.example:8080"), ("origin", "http://evil.example:8080")];
        assert!(!is_own_with(Actions::Local, &rebound));
        assert!(is_own_with(Actions::Permitted, &rebound), "whoever sends it must show a token");
        assert!(!is_own_with(Actions::Local, &[("host", "127.0.0.1.evil.example")]));
        assert!(!is_own_with(Actions::Local, &[("host", "")]));
    }

    #[test]
    fn in_plain_text_for_everybody_there_are_no_actions() {
        let mut pages = Pages::default();
        let (here, there) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
        assert_eq!(Actions::at(here, &pages, true), Actions::Off, "they are off by default");
        pages.actions = true;
        let at = |address, is_secure| Actions::at(address, &pages, is_secure);
        assert_eq!([at(here, false), at(there, false)], [Actions::Local, Actions::Off]);
        assert_eq!([at(here, true), at(there, true)], [Actions::Permitted, Actions::Permitted]);
    }

    #[test]
    fn the_controller_of_a_request_stands_in_its_path() {
        assert_eq!(controller("/controllers/a%2Fb/reconcile").as_deref(), Some("a/b"));
        assert_eq!(controller("/controllers/reconcile"), None);
        assert_eq!(controller("/controllers/a"), None);
    }
}
