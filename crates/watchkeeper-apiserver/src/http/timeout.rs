//! The query parameter `timeout`: a duration as Go writes it.

use crate::failure::{Failure, Result, quoted};
use crate::http::route::Query;

/// Refuses a timeout that is no duration. A request never takes as long as the shortest sensible one, so its value does
/// not matter.
pub(super) fn check_timeout(query: &Query) -> Result<()> {
    let text = query.text("timeout");
    if text.is_empty() || query.flag("watch").unwrap_or(false) {
        return Ok(());
    }
    problem(text).map_or(Ok(()), |problem| {
        let message = format!("invalid timeout specified in the request URL - time: {problem}");
        Err(Failure::bad_request(message))
    })
}

/// Returns what is wrong with a duration such as `1m30s`, in Go's words.
fn problem(text: &str) -> Option<String> {
    let invalid = || Some(format!("invalid duration {}", quoted(text)));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let number = &rest[..rest.len() - unit.len()];
        if number.matches('.').count() > 1 || !number.contains(|letter: char| letter.is_ascii_digit()) {
            return invalid();
        }
        rest = unit.trim_start_matches(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let unit = &unit[..unit.len() - rest.len()];
        match unit {
            "" => return Some(format!("missing unit in duration {}", quoted(text))),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            unit => return Some(format!("unknown unit {} in duration {}", quoted(unit), quoted(text))),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn durations_are_read_as_by_go() {
        for text in ["32s", "0s", "0", "1m30s", "1.5h", "-3ms", ".5s", "3m"] {
            assert_eq!(problem(text), None, "{text}");
        }
        for (text, expected) in [
            ("invalid", "invalid duration \"invalid\""),
            ("5", "missing unit in duration \"5\""),
            ("5x", "unknown unit \"x\" in duration \"5x\""),
            ("1..2s", "invalid duration \"1..2s\""),
        ] {
            assert_eq!(problem(text).as_deref(), Some(expected), "{text}");
        }
    }
}
