//! Does a text match a pattern? Regular expressions as the real server understands them, of a bounded size.

use std::collections::BTreeMap;
use std::fmt;

use regex::{Error, Regex, RegexBuilder};

/// How large a compiled pattern may be, in bytes: the largest of these, and each counts as the smallest in which it has room.
const SIZES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// How large all patterns of a schema may be together.
const ROOM: usize = 64 << 20;

/// Size times length of the text, at most: beyond that a match could take seconds.
const EFFORT: usize = 16 << 30;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    size: usize,
    text: String,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Whether the text is too long to be matched in reasonable time.
    pub(super) fn is_too_long(&self, text: &str) -> bool {
        text.len().saturating_mul(self.size) > EFFORT
    }
}

/// The patterns of one schema.
#[derive(Debug)]
pub(super) struct Patterns {
    known: BTreeMap<String, Pattern>,
    room: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { known: BTreeMap::new(), room: ROOM }
    }
}

impl Patterns {
    /// Compiles a pattern; the error says what is wrong with it.
    pub(super) fn compile(&mut self, text: &str) -> Result<Pattern, &'static str> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        let spelled = spell_out(text);
        for size in SIZES.into_iter().filter(|size| *size <= self.room) {
            match RegexBuilder::new(&spelled).size_limit(size).build() {
                Ok(regex) => {
                    self.room -= size;
                    let pattern = Pattern { regex, size, text: text.to_owned() };
                    self.known.insert(text.to_owned(), pattern.clone());
                    return Ok(pattern);
                }
                Err(Error::CompiledTooBig(_)) => {}
                Err(_) => return Err("must be a valid regular expression"),
            }
        }
        Err("must be a valid regular expression, but isn't: expression too large")
    }
}

/// Writes out the classes that in Go, in which the real server is written, are of ASCII alone.
fn spell_out(pattern: &str) -> String {
    let mut spelled = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match escaped {
            Some('d') => spelled.push_str("[0-9]"),
            Some('D') => spelled.push_str("[^0-9]"),
            Some('w') => spelled.push_str("[0-9A-Za-z_]"),
            Some('W') => spelled.push_str("[^0-9A-Za-z_]"),
            Some('s') => spelled.push_str(r"[\t\n\f\r ]"),
            Some('S') => spelled.push_str(r"[^\t\n\f\r ]"),
            _ => {
                spelled.push(letter);
                spelled.extend(escaped);
            }
        }
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_written_out_wherever_they_stand() {
        assert_eq!(spell_out(r"^\d[\w.-]\\d\S$"), r"^[0-9][[0-9A-Za-z_].-]\\d[^\t\n\f\r ]$");
        let mut patterns = Patterns::default();
        let word = patterns.compile(r"^[^\w.]$").unwrap();
        assert!(word.is_match("ä") && !word.is_match("a") && !word.is_match("."));
    }

    #[test]
    fn one_pattern_takes_room_once_and_all_together_not_more_than_there_is() {
        let mut patterns = Patterns { room: 8 << 20, ..Patterns::default() };
        let large = |n: usize| format!("^.{{1,1000}}{n}$");
        for _ in 0..10 {
            patterns.compile(&large(0)).unwrap();
        }
        assert!(patterns.compile("^[a-z]*$").is_ok_and(|small| !small.is_too_long(&"a".repeat(3 << 20))));
        assert!(patterns.compile(&large(0)).unwrap().is_too_long(&"a".repeat(3 << 20)));
        let last = (1..).find(|n| patterns.compile(&large(*n)).is_err());
        assert!(last.is_some_and(|last| (2..9).contains(&last)), "{last:?}");
    }
}
