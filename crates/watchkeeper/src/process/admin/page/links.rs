//! The URLs of the views.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::explain::KeyState;

/// The keys on a page of a controller.
pub(super) const LIMIT: usize = 50;

pub(super) fn controller(name: &str) -> String {
    format!("/controllers/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// Which keys of a controller are listed, and in which order. An empty text is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listing<'a> {
    pub(super) state: Option<KeyState>,
    pub(super) q: &'a str,
    pub(super) sort: &'a str,
    pub(super) is_reversed: bool,
}

/// Returns the URL of the first page of keys.
pub(super) fn keys(name: &str, listing: Listing<'_>) -> String {
    more_keys(name, listing, "", 1)
}

/// Returns the URL of a further page of keys.
pub(super) fn more_keys(name: &str, listing: Listing<'_>, from: &str, page: usize) -> String {
    let Listing { state, q, sort, is_reversed } = listing;
    let state = state.map(KeyState::as_str).unwrap_or_default();
    let reverse = if is_reversed { "true" } else { "" };
    let page = if page > 1 { page.to_string() } else { String::new() };
    let mut query = form_urlencoded::Serializer::new(String::new());
    let parameters = [
        ("state", state),
        ("q", q),
        ("sort", sort),
        ("reverse", reverse),
        ("continue", from),
        ("page", &page),
    ];
    for (name, value) in parameters {
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    let (path, query) = (controller(name), query.finish());
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

/// Returns the URL to which a request to reconcile a key is posted.
pub(super) fn reconcile(controller_name: &str, key: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("key", key);
    format!("{}/reconcile?{}", controller(controller_name), query.finish())
}

pub(in super::super) fn explain(kind: &str, key: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("kind", kind).append_pair("key", key);
    format!("/explain?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_a_url() {
        assert_eq!(controller("a/b?c"), "/controllers/a%2Fb%3Fc");
        assert_eq!(keys("a", Listing::default()), "/controllers/a");
        let listing = Listing { state: Some(KeyState::Failed), q: "x&y", sort: "until", is_reversed: true };
        let filtered = more_keys("a", listing, "n", 2);
        assert_eq!(filtered, "/controllers/a?state=failed&q=x%26y&sort=until&reverse=true&continue=n&page=2");
        assert_eq!(reconcile("a/b", "n/x&y"), "/controllers/a%2Fb/reconcile?key=n%2Fx%26y");
        assert_eq!(explain("Pod", "a/b&c"), "/explain?kind=Pod&key=a%2Fb%26c");
    }
}
