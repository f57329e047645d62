//! Durations as Go writes them.

use crate::failure::quoted;

/// Says why a text is not a duration of Go: a sequence of decimal numbers, each with a unit, such as `1m30s`.
pub(crate) fn problem(text: &str) -> Option<String> {
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

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for good in ["0", "0s", "-5s", "1h45m", "1.5ms", ".5s", "3m", "+1us"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, expected) in [
            ("invalid", "time: invalid duration \"invalid\""),
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("1.2.3s", "time: invalid duration \"1.2.3s\""),
            (".s", "time: invalid duration \".s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1m5", "time: missing unit in duration \"1m5\""),
            ("5d", "time: unknown unit \"d\" in duration \"5d\""),
        ] {
            assert_eq!(problem(bad).as_deref(), Some(expected), "{bad}");
        }
    }
}
