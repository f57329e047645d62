//! `Warning` headers, bounded so that clients can read them.

use std::collections::BTreeSet;

use http::header::{HeaderValue, WARNING};

use crate::failure::quoted;
use crate::http::reply::Reply;

/// Adds the warnings to a response, one header each.
pub(super) fn warn(mut reply: Reply, warnings: &[String]) -> Reply {
    for warning in bounded(warnings) {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quoted(warning))) {
            reply.headers_mut().append(WARNING, value);
        }
    }
    reply
}

/// Returns each warning once, within the total length that the real server allows; beyond it each is truncated.
fn bounded(warnings: &[String]) -> Vec<&str> {
    // Many clients accept a hundred headers and fail on one more, although the object was stored.
    const COUNT: usize = 90;
    const LIMIT: usize = 4096;
    const ONE: usize = 256;
    let mut known = BTreeSet::new();
    let once = warnings.iter().map(String::as_str).filter(|text| !text.is_empty() && known.insert(*text));
    let once: Vec<_> = once.take(COUNT).collect();
    let length = |text: &str| text.chars().count();
    if once.iter().map(|text| length(text)).sum::<usize>() <= LIMIT {
        return once;
    }
    let cut = once.into_iter().map(|text| text.char_indices().nth(ONE).map_or(text, |(end, _)| &text[..end]));
    let mut total = 0;
    cut.take_while(|text| {
        let fits = total < LIMIT;
        total += length(text);
        fits
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_sent_once_and_bounded() {
        let warnings = |count: usize, length: usize| -> Vec<_> {
            (0..count).map(|at| format!("{at:05}{}", "ü".repeat(length))).collect()
        };
        assert_eq!(bounded(&["a".to_owned(), String::new(), "a".to_owned(), "b".to_owned()]), ["a", "b"]);
        assert_eq!(bounded(&warnings(9_000, 1)).len(), 90);
        assert_eq!(bounded(&warnings(2, 2_000)), warnings(2, 2_000));
        let cut = warnings(3, 251).into_iter();
        assert_eq!(bounded(&warnings(3, 2_000)), cut.collect::<Vec<_>>());
        assert_eq!(bounded(&warnings(50, 2_000)).len(), 16);
    }
}
