//! The `timeout` parameter of a request: a duration as Go writes it, or the request is refused.
//!
//! Its value has no effect beyond that: a request never takes as long as the shortest limit that a real server has.

use crate::failure::{Failure, Result, quoted};
use crate::http::route::{Query, Route};

/// Refuses a request with a malformed timeout. Requests that last, such as watches, are not checked.
pub(crate) fn check(route: &Route, query: &Query) -> Result<()> {
    let Some(timeout) = query.get("timeout").filter(|_| !lasts(route, query)) else { return Ok(()) };
    duration_problem(timeout).map_or(Ok(()), |problem| {
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

/// Says why a text is not a duration of Go: a sequence of decimal numbers, each with a unit, such as `1m30s`.
fn duration_problem(text: &str) -> Option<String> {
    let invalid = || Some(format!("time: invalid duration {}", quoted(text)));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if number.matches('.').count() > 1 || !number.contains(|c: char| c.is_ascii_digit()) {
            return invalid();
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Some(format!("time: missing unit in duration {}", quoted(text)));
        }
        if !["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h"].contains(&unit) {
            return Some(format!("time: unknown unit {} in duration {}", quoted(unit), quoted(text)));
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::route;

    // apiserver/pkg/endpoints/filters: TestParseTimeout
    #[test]
    fn a_malformed_timeout_is_refused_as_by_the_real_server() {
        for good in ["0", "0s", "-5s", "1h45m", "1.5ms", ".5s", "3m", "+1us"] {
            assert_eq!(duration_problem(good), None, "{good}");
        }
        for (bad, problem) in [
            ("invalid", "time: invalid duration \"invalid\""),
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("1.2.3s", "time: invalid duration \"1.2.3s\""),
            (".s", "time: invalid duration \".s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1m5", "time: missing unit in duration \"1m5\""),
            ("5d", "time: unknown unit \"d\" in duration \"5d\""),
        ] {
            assert_eq!(duration_problem(bad).as_deref(), Some(problem), "{bad}");
        }
    }

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
