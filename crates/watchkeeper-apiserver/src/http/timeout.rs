//! The `timeout` parameter of a request: a duration as Go writes it, or the request is refused.
//!
//! Its value has no effect beyond that: a request never takes as long as the shortest limit that a real server has.

use crate::failure::{Failure, Result};
use crate::http::route::{Query, Route};
use crate::kinds::go_duration;

/// Refuses a request with a malformed timeout. Requests that last, such as watches, are not checked.
pub(crate) fn check(route: &Route, query: &Query) -> Result<()> {
    let Some(timeout) = query.get("timeout").filter(|_| !lasts(route, query)) else { return Ok(()) };
    go_duration::problem(timeout).map_or(Ok(()), |problem| {
        Err(Failure::bad_request(format!("invalid timeout specified in the request URL - {problem}")))
    })
}

/// Whether a request may last for as long as the client wants.
fn lasts(route: &Route, query: &Query) -> bool {
    let Route::Resource(target) = route else { return false };
    let streams = ["attach", "exec", "log", "portforward", "proxy"];
    target.watch
        || query.flag("watch").unwrap_or(false)
        || target.subresource.as_deref().is_some_and(|name| streams.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::route;

    #[test]
    fn only_requests_that_end_are_checked() {
        let check = |uri: &str| {
            let (path, query) = uri.split_once('?').unwrap();
            check(&route(path), &Query::parse(Some(query))).map_err(|failure| failure.code)
        };
        assert_eq!(check("/version?timeout=x"), Err(400));
        assert_eq!(check("/api/v1/pods?timeout=x"), Err(400));
        assert_eq!(check("/api/v1/pods?timeout=32s"), Ok(()));
        assert_eq!(check("/api/v1/pods?timeout=x&watch=true"), Ok(()));
        assert_eq!(check("/api/v1/namespaces/a/pods/b/log?timeout=x"), Ok(()));
    }
}
