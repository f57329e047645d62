//! A scanner that finds the end of a JSON value by structure alone, 64 bytes at a time.

use std::borrow::Cow;
use std::ops::Range;

use wide::u8x16;

/// Finds the end of an object or array that may arrive in any number of chunks.
///
/// It looks only at nesting and strings; whether the value is valid JSON is checked when it is decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Skipper {
    depth: usize,
    in_string: bool,
    /// The previous byte was a backslash that escapes the next one.
    escaped: bool,
}

/// One bit per byte of a block.
struct Masks {
    quote: u64,
    backslash: u64,
    open: u64,
    close: u64,
}

const BLOCK: usize = 64;

impl Skipper {
    /// Scans the next bytes of the value. Returns the position after its last byte, or `None` if it continues.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (index, block) in blocks.iter().enumerate() {
            if let Some(end) = self.block(block, BLOCK) {
                return Some(index * BLOCK + end);
            }
        }
        if rest.is_empty() {
            return None;
        }
        // White space neither opens nor closes anything.
        let mut padded = [b' '; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        let end = self.block(&padded, rest.len());
        end.map(|end| blocks.len() * BLOCK + end)
    }

    /// Scans one block, of which the first `length` bytes count.
    #[inline]
    fn block(&mut self, block: &[u8; BLOCK], length: usize) -> Option<usize> {
        let masks = Masks::of(block);
        let mut quotes = masks.quote;
        if masks.backslash != 0 || self.escaped {
            let (escaped, goes_on) = escaped_bytes(masks.backslash, self.escaped);
            quotes &= !escaped;
            self.escaped = if length == BLOCK { goes_on } else { escaped >> length & 1 == 1 };
        }
        let mut strings = prefix_xor(quotes);
        if self.in_string {
            strings = !strings;
        }
        self.in_string = strings >> (BLOCK - 1) != 0;
        let (open, close) = (masks.open & !strings, masks.close & !strings);
        let (opened, closed) = (open.count_ones() as usize, close.count_ones() as usize);
        if self.depth > closed {
            self.depth = self.depth + opened - closed;
            return None;
        }
        let mut brackets = open | close;
        while brackets != 0 {
            let bit = brackets.trailing_zeros();
            brackets &= brackets - 1;
            if open >> bit & 1 == 1 {
                self.depth += 1;
            } else {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Some(bit as usize + 1);
                }
            }
        }
        None
    }
}

/// Returns which bytes of a block are escaped by a backslash, and whether the last byte escapes the first one of the
/// next block.
///
/// In a run of backslashes every second one escapes. Adding a run's start to the run carries into the byte behind it.
/// So runs that start at odd positions, whose carry is added, differ from those that start at even ones, without a loop
/// over the bytes.
#[inline]
fn escaped_bytes(backslash: u64, first_is_escaped: bool) -> (u64, bool) {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = u64::from(first_is_escaped);
    let backslash = backslash & !first;
    let after = backslash << 1 | first;
    let odd_starts = backslash & !EVEN & !after;
    let (carried, goes_on) = odd_starts.overflowing_add(backslash);
    ((EVEN ^ carried << 1) & after, goes_on)
}

impl Masks {
    #[inline]
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut masks = Self { quote: 0, backslash: 0, open: 0, close: 0 };
        let (lanes, _) = block.as_chunks::<16>();
        // `[` and `{`, and `]` and `}`, differ in this bit only.
        let fold = u8x16::splat(0x20);
        for (index, lane) in lanes.iter().enumerate() {
            let bytes = u8x16::from(*lane);
            let folded = bytes | fold;
            let bits = |hit: u8x16| u64::from(hit.to_bitmask()) << (index * 16);
            masks.quote |= bits(bytes.simd_eq(u8x16::splat(b'"')));
            masks.backslash |= bits(bytes.simd_eq(u8x16::splat(b'\\')));
            masks.open |= bits(folded.simd_eq(u8x16::splat(b'{')));
            masks.close |= bits(folded.simd_eq(u8x16::splat(b'}')));
        }
        masks
    }
}

/// Returns the prefix parity of the bits: bit n is set from each opening quote up to its closing one.
#[inline]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// The error of malformed JSON, with the position of the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON: {what} at byte {at}")]
pub struct Malformed {
    /// The problem.
    pub what: &'static str,
    /// The position in the scanned bytes.
    pub at: usize,
}

/// Walks over the members of complete JSON objects without decoding values.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A string as it is in the bytes: the range between its quotes.
#[derive(Clone, Debug)]
pub(crate) struct RawStr {
    pub(crate) range: Range<usize>,
    pub(crate) has_escapes: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// Steps into an object.
    pub(crate) fn enter(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.malformed("expected an object")),
        }
    }

    /// Steps into an array.
    pub(crate) fn enter_array(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'[') => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.malformed("expected an array")),
        }
    }

    /// Moves to the next element of the current array; returns false after the last one.
    pub(crate) fn element(&mut self) -> Result<bool, Malformed> {
        if self.peek() == Some(b',') {
            self.at += 1;
        }
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                Ok(false)
            }
            Some(_) => Ok(true),
            None => Err(self.malformed("unterminated array")),
        }
    }

    /// Returns the next key of the current object and moves to its value; `None` after the last one.
    pub(crate) fn key(&mut self) -> Result<Option<RawStr>, Malformed> {
        if self.peek() == Some(b',') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                Ok(None)
            }
            Some(b'"') => {
                let key = self.string()?;
                if self.peek() != Some(b':') {
                    return Err(self.malformed("expected a colon"));
                }
                self.at += 1;
                self.peek();
                Ok(Some(key))
            }
            _ => Err(self.malformed("expected a key")),
        }
    }

    pub(crate) fn string(&mut self) -> Result<RawStr, Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed("expected a string"));
        }
        let start = self.at + 1;
        let mut has_escapes = false;
        let mut end = start;
        loop {
            match self.bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    end += 2;
                }
                Some(_) => end += 1,
                None => return Err(self.malformed("unterminated string")),
            }
        }
        self.at = end + 1;
        Ok(RawStr { range: start..end, has_escapes })
    }

    /// Steps over a value of any type, and returns its range.
    pub(crate) fn value(&mut self) -> Result<Range<usize>, Malformed> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'{' | b'[') => match Skipper::default().feed(&self.bytes[start..]) {
                Some(length) => self.at = start + length,
                None => return Err(self.malformed("unterminated value")),
            },
            Some(b'"') => {
                self.string()?;
            }
            Some(b',' | b'}' | b']' | b':') | None => return Err(self.malformed("expected a value")),
            Some(_) => {
                let rest = &self.bytes[start..];
                let ends = |b: &u8| matches!(b, b',' | b'}' | b']') || b.is_ascii_whitespace();
                self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        Ok(start..self.at)
    }

    /// Returns the bytes of a key, borrowed if it has no escapes; any letter may be written as an escape.
    pub(crate) fn name(&self, raw: &RawStr) -> Result<Cow<'a, [u8]>, Malformed> {
        if raw.has_escapes {
            return Ok(Cow::Owned(self.text(raw)?.into_owned().into_bytes()));
        }
        Ok(Cow::Borrowed(&self.bytes[raw.range.clone()]))
    }

    /// Returns the text of a string, borrowed if it has no escapes.
    pub(crate) fn text(&self, raw: &RawStr) -> Result<Cow<'a, str>, Malformed> {
        let bad = |what| Malformed { what, at: raw.range.start };
        if raw.has_escapes {
            let quoted = &self.bytes[raw.range.start - 1..raw.range.end + 1];
            return serde_json::from_slice(quoted).map(Cow::Owned).map_err(|_| bad("bad escape in a string"));
        }
        let bytes = &self.bytes[raw.range.clone()];
        std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| bad("a string that is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end_in_pieces(text: &[u8], cuts: &[usize]) -> Option<usize> {
        let mut skipper = Skipper::default();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).find_map(|w| skipper.feed(&text[w[0]..w[1]]).map(|end| w[0] + end))
    }

    #[test]
    fn brackets_and_quotes_inside_strings_do_not_count() {
        for text in [
            r#"{}"#,
            r#"[[],{"a":"}]"}]"#,
            r#"{"a":"\"}","b":"\\"}"#,
            r#"{"a":"\\\"}"}"#,
            r#"{"k":"this string is long enough to cross a block boundary, with a } and a ] in it","l":[1,2,{}]}"#,
        ] {
            let followed = format!("{text}}}]{{\"");
            assert_eq!(end_in_pieces(followed.as_bytes(), &[]), Some(text.len()), "{text}");
        }
    }

    #[test]
    fn escapes_and_nesting_are_followed_from_any_place_in_a_block_into_the_next_piece() {
        let nested = "[".repeat(BLOCK + 10) + &"]".repeat(BLOCK + 10);
        let mut texts = vec![nested, format!("[{}{{}}]", "[],".repeat(BLOCK))];
        for length in 0..BLOCK + 2 {
            for escapes in [r#"\""#, r"\\", r#"\\\""#, r#"\"\""#] {
                texts.push(format!(r#"{{"{}{escapes}}}"}}"#, "x".repeat(length)));
            }
        }
        for text in texts {
            for cut in 0..text.len() {
                assert_eq!(
                    end_in_pieces(format!("{text}]").as_bytes(), &[cut]),
                    Some(text.len()),
                    "{text} {cut}"
                );
            }
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i32>().prop_map(Into::into),
            r#"[a-z\\"{}\[\]é ]{0,80}"#.prop_map(Into::into),
            r#"[\\"]{0,150}"#.prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::btree_map(r#"[a-z"\\]{0,9}"#, inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_end_is_found_for_any_value_in_any_pieces(
            value in json(), cuts in prop::collection::vec(any::<usize>(), 0..12), pretty in any::<bool>(),
        ) {
            let text = serde_json::to_string(&serde_json::json!({ "v": value })).unwrap();
            let text = if pretty { serde_json::to_string_pretty(&value_of(&text)).unwrap() } else { text };
            let followed = format!("{text}\n{{\"next\":1}}");
            prop_assert_eq!(end_in_pieces(followed.as_bytes(), &cuts), Some(text.len()));
            prop_assert_eq!(end_in_pieces(&text.as_bytes()[..text.len() - 1], &cuts), None);
        }
    }

    fn value_of(text: &str) -> serde_json::Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn members_are_walked_without_decoding() {
        let text = br#" { "a" : 1 , "b\n":"x\"y", "c":{"d":[1]},"e":null } "#;
        let mut cursor = Cursor::new(text);
        cursor.enter().unwrap();
        let mut seen = Vec::new();
        while let Some(key) = cursor.key().unwrap() {
            let range = cursor.value().unwrap();
            seen.push((cursor.text(&key).unwrap().into_owned(), String::from_utf8_lossy(&text[range])));
        }
        let seen: Vec<_> = seen.iter().map(|(k, v)| (k.as_str(), v.as_ref())).collect();
        assert_eq!(seen, [("a", "1"), ("b\n", r#""x\"y""#), ("c", r#"{"d":[1]}"#), ("e", "null")]);
    }

    #[test]
    fn malformed_members_are_reported_with_their_place() {
        for (text, what) in [
            ("[]", "expected an object"),
            ("{1:2}", "expected a key"),
            (r#"{"a" 1}"#, "expected a colon"),
            (r#"{"a":}"#, "expected a value"),
            (r#"{"a":[1"#, "unterminated value"),
            (r#"{"a":"#, "expected a value"),
            (r#"{"a"#, "unterminated string"),
        ] {
            let mut cursor = Cursor::new(text.as_bytes());
            let result = (|| {
                cursor.enter()?;
                while cursor.key()?.is_some() {
                    cursor.value()?;
                }
                Ok(())
            })();
            assert_eq!(result.map_err(|m: Malformed| m.what), Err(what), "{text}");
        }
    }
}
