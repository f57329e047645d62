//! Patterns: regular expressions with Go's semantics and a bounded size.

use std::collections::BTreeMap;
use std::fmt;

use regex::{Error, Regex, RegexBuilder};

/// Size classes of compiled patterns, in bytes. A pattern counts as the smallest class in which it fits; larger ones
/// are refused.
const SIZES: [usize; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// The maximum repetition count in a pattern.
const MOST_OFTEN: u64 = 1_000;

/// The maximum total size of all patterns of a definition.
const ROOM: usize = 64 << 20;

/// The matching budget of an object: pattern size times text length. Beyond it, validation could take seconds.
pub(super) const EFFORT: usize = 16 << 30;

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

    /// Returns the maximum cost of matching a text.
    pub(super) fn effort(&self, text: &str) -> usize {
        text.len().saturating_mul(self.size)
    }
}

/// The patterns of one definition, each compiled once.
#[derive(Debug)]
pub(crate) struct Patterns {
    known: BTreeMap<String, Pattern>,
    room: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { known: BTreeMap::new(), room: ROOM }
    }
}

impl Patterns {
    /// Returns the number of patterns.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Compiles a pattern; the error says what is wrong with it.
    pub(super) fn compile(&mut self, text: &str) -> Result<Pattern, &'static str> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        let spelled = spell_out(text)
            .ok_or("must be a valid regular expression, but isn't: something is repeated too often")?;
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

/// Translates a pattern from Go's syntax. Classes such as `\d` are ASCII-only in Go, and some escapes have a meaning
/// only here. Returns `None` if a repetition count exceeds Go's limit.
fn spell_out(pattern: &str) -> Option<String> {
    let mut spelled = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut inside = false;
    // Whether the last character may start a range, and whether a range has started.
    let (mut low, mut range) = (false, false);
    while let Some(token) = next_token(rest, inside) {
        rest = &rest[token.len()..];
        let (mut literal, mut dash) = (false, false);
        if !inside && counts(token).is_some_and(|counts| counts.into_iter().any(|count| count > MOST_OFTEN)) {
            return None;
        }
        match token {
            r"\d" => spelled.push_str("[0-9]"),
            r"\D" => spelled.push_str("[^0-9]"),
            r"\w" => spelled.push_str("[0-9A-Za-z_]"),
            r"\W" => spelled.push_str("[^0-9A-Za-z_]"),
            r"\s" => spelled.push_str(r"[\t\n\f\r ]"),
            r"\S" => spelled.push_str(r"[^\t\n\f\r ]"),
            r"\b" if !inside => spelled.push_str(r"(?-u:\b)"),
            "[" | "[^" | "[]" | "[^]" if !inside => {
                inside = true;
                spelled.push_str(&token.replace(']', r"\]"));
            }
            "]" if inside => {
                inside = false;
                spelled.push(']');
            }
            "-" if low && !rest.starts_with(']') => {
                dash = true;
                spelled.push('-');
            }
            "[" | "&" | "~" | "-" if inside => {
                literal = true;
                spelled.push('\\');
                spelled.push_str(token);
            }
            "{" if !inside => spelled.push_str(r"\{"),
            r"\<" | r"\>" => {
                literal = true;
                spelled.push_str(&token[1..]);
            }
            _ => {
                literal = !token.starts_with("[:") && !token.starts_with(r"\p") && !token.starts_with(r"\P");
                spelled.push_str(token);
            }
        }
        (low, range) = (inside && literal && !range, dash);
    }
    Some(spelled)
}

/// Returns the first token of a pattern: a character or a group of characters that belong together.
fn next_token(pattern: &str, inside: bool) -> Option<&str> {
    let mut letters = pattern.chars();
    let first = letters.next()?;
    let second = letters.next().map_or(0, char::len_utf8);
    let within =
        |open: &str, close: &str| Some(open.len() + pattern.strip_prefix(open)?.find(close)? + close.len());
    let length = match first {
        '\\' => [r"\p{", r"\P{", r"\x{"].iter().find_map(|open| within(open, "}")).unwrap_or(1 + second),
        '[' if inside => within("[:", ":]").unwrap_or(1),
        '[' => {
            ["[^]", "[]", "[^"].iter().find(|open| pattern.starts_with(**open)).map_or(1, |open| open.len())
        }
        '{' => within("{", "}").filter(|end| counts(&pattern[..*end]).is_some()).unwrap_or(1),
        _ => first.len_utf8(),
    };
    Some(&pattern[..length])
}

/// Parses the minimum and maximum of a repetition: `{3}`, `{3,}` or `{3,5}`.
fn counts(token: &str) -> Option<[u64; 2]> {
    let text = token.strip_prefix('{')?.strip_suffix('}')?;
    let (least, most) = text.split_once(',').unwrap_or((text, ""));
    let is_number = |count: &str| !count.is_empty() && count.bytes().all(|digit| digit.is_ascii_digit());
    let number = |count: &str| count.parse().unwrap_or(u64::MAX);
    (is_number(least) && (most.is_empty() || is_number(most)))
        .then(|| [number(least), if most.is_empty() { 0 } else { number(most) }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_written_out_wherever_they_stand() {
        let spelled = spell_out(r"^\d[\w.-]\\d\S$").unwrap();
        assert_eq!(spelled, r"^[0-9][[0-9A-Za-z_].\-]\\d[^\t\n\f\r ]$");
        let mut patterns = Patterns::default();
        let word = patterns.compile(r"^[^\w.]$").unwrap();
        assert!(word.is_match("ä") && !word.is_match("a") && !word.is_match("."));
    }

    #[test]
    fn what_means_nothing_to_the_real_server_means_nothing_here() {
        for (pattern, fits, other) in [
            (r"^[^[\]]+$", "abc", "a[b"),
            ("^[a-z[]+$", "a[", "A"),
            ("^[]a]+$", "]a", "b"),
            ("^[^]a]+$", "b", "]"),
            ("^[[:alpha:]&&1]+$", "a&1", "2"),
            ("^[+--]$", ",", "a"),
            ("^[--/]$", ".", "a"),
            (r"^[\w-.]+$", "a-.", "+"),
            ("^[a-c-e]$", "-", "d"),
            ("^[a~~b-]+$", "a~b-", "c"),
            (r"^\<a\>$", "<a>", "a"),
            (r"^\${[A-Z]+}$", "${A}", "A"),
            ("^a{,3}{{b{2}$", "a{,3}{{bb", "aa"),
            (r"^\p{Greek}[\p{Latin}\x{30}-\x{32}]$", "α1", "αβ"),
            (r"\bx\b", "äx", "ax"),
            (r"^[\p{L}\p{N}_-]{1,253}$", "é_1", "a b"),
        ] {
            let compiled =
                Patterns::default().compile(pattern).unwrap_or_else(|problem| panic!("{pattern}: {problem}"));
            assert!(
                compiled.is_match(fits) && !compiled.is_match(other),
                "{pattern}: {:?}",
                spell_out(pattern)
            );
        }
    }

    #[test]
    fn what_repeats_too_often_is_refused_but_not_in_a_class() {
        let compiles = |pattern: &str| Patterns::default().compile(pattern).is_ok();
        assert!(["a{1000}", "a{0,1000}", "[{1001}]", "a{1001"].into_iter().all(compiles));
        let large = format!("a{{1,{}0}}", u64::MAX);
        assert!(!["a{1001}", "a{1001,}", "a{1,1001}", &large].into_iter().any(compiles));
    }

    #[test]
    fn one_pattern_takes_room_once_and_all_together_not_more_than_there_is() {
        let mut patterns = Patterns { room: 8 << 20, ..Patterns::default() };
        let large = |n: usize| format!("^.{{1,1000}}{n}$");
        for _ in 0..10 {
            patterns.compile(&large(0)).unwrap();
        }
        let long = "a".repeat(3 << 20);
        assert!(patterns.compile("^[a-z]*$").is_ok_and(|small| small.effort(&long) <= EFFORT));
        assert!(patterns.compile(&large(0)).unwrap().effort(&long) > EFFORT);
        let last = (1..).find(|n| patterns.compile(&large(*n)).is_err());
        assert!(last.is_some_and(|last| (2..9).contains(&last)), "{last:?}");
    }
}
