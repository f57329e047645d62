//! Where do the items of a list begin and end, and at which version was it taken?

use serde::Deserialize;

use super::pieces::{OBJECT_CAP, Pending, SplitError, Taken};
use crate::object::scan::Cursor;
use crate::object::{Malformed, ResourceVersion};

/// Splits a list, cut into chunks anywhere, into its items, while it is still arriving.
///
/// The metadata of a list stands before the items of built-in kinds and behind those of custom resources: [`ListSplitter::finish`] has it
/// in both cases.
#[derive(Debug)]
pub struct ListSplitter {
    state: State,
    pending: Pending,
    /// Bytes of a key or a plain value that a chunk boundary cut in two.
    carry: Vec<u8>,
    meta: ListMeta,
    kind: Option<String>,
    cap: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the list.
    Start,
    /// In the list, before a key or the end.
    Members,
    /// In `items`, before an item or the end.
    Items,
    /// Inside an item.
    Item,
    /// Inside an object or array that is a member of the list.
    Member { metadata: bool },
    /// Behind the list.
    Done,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The version at which the list was taken.
    pub version: ResourceVersion,
    /// The token of the next page; empty on the last.
    pub continue_token: String,
    /// How many items follow, where the server tells.
    pub remaining: Option<i64>,
}

/// One step of the machine: how many bytes it used, or that it needs more.
enum Step {
    Used(usize),
    NeedMore,
}

impl Default for ListSplitter {
    fn default() -> Self {
        Self {
            state: State::Start,
            pending: Pending::default(),
            carry: Vec::new(),
            meta: ListMeta::default(),
            kind: None,
            cap: OBJECT_CAP,
        }
    }
}

impl ListSplitter {
    /// A splitter that refuses items of more than `cap` bytes.
    pub fn with_cap(cap: usize) -> Self {
        Self { cap, ..Self::default() }
    }

    /// Takes the next chunk and hands over each item that is complete with it.
    pub fn feed(&mut self, mut chunk: &[u8], mut item: impl FnMut(&[u8])) -> Result<(), SplitError> {
        if !self.carry.is_empty() {
            self.carry.extend_from_slice(chunk);
            let joined = std::mem::take(&mut self.carry);
            let used = self.run(&joined, &mut item)?;
            self.carry.extend_from_slice(&joined[used..]);
            return Ok(());
        }
        let used = self.run(chunk, &mut item)?;
        chunk = &chunk[used..];
        self.carry.extend_from_slice(chunk);
        Ok(())
    }

    /// The metadata of the list, once it has arrived whole.
    pub fn finish(self) -> Result<ListMeta, SplitError> {
        if self.state != State::Done {
            return Err(SplitError::Truncated);
        }
        Ok(self.meta)
    }

    /// The kind of the list, if it has been seen.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    fn run(&mut self, bytes: &[u8], item: &mut impl FnMut(&[u8])) -> Result<usize, SplitError> {
        let mut at = 0;
        loop {
            if !matches!(self.state, State::Item | State::Member { .. }) {
                at += bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
            }
            if at == bytes.len() {
                return Ok(at);
            }
            match self.step(&bytes[at..], item)? {
                Step::Used(used) => at += used,
                Step::NeedMore => {
                    if bytes.len() - at > self.cap {
                        return Err(SplitError::TooLarge { cap: self.cap });
                    }
                    return Ok(at);
                }
            }
        }
    }

    fn step(&mut self, bytes: &[u8], item: &mut impl FnMut(&[u8])) -> Result<Step, SplitError> {
        let broken = |what| Err(Malformed { what, at: 0 }.into());
        match (self.state, bytes[0]) {
            (State::Start, b'{') => self.go(State::Members, 1),
            (State::Start, _) => broken("expected a list"),
            (State::Members | State::Items, b',') => Ok(Step::Used(1)),
            (State::Members, b'}') => self.go(State::Done, 1),
            (State::Members, b'"') => self.member(bytes),
            (State::Members, _) => broken("expected a key"),
            (State::Items, b']') => self.go(State::Members, 1),
            (State::Items, b'{') => {
                self.pending.reset();
                self.go(State::Item, 0)
            }
            (State::Items, _) => broken("expected an item"),
            (State::Item, _) => match self.pending.take(bytes, self.cap)? {
                Taken::More => Ok(Step::Used(bytes.len())),
                Taken::Whole(object, used) => {
                    item(object);
                    self.go(State::Items, used)
                }
            },
            (State::Member { metadata }, _) => match self.pending.take(bytes, self.cap)? {
                Taken::More => Ok(Step::Used(bytes.len())),
                Taken::Whole(value, used) => {
                    if metadata {
                        self.meta = ListMeta::read(value)?;
                    }
                    self.go(State::Members, used)
                }
            },
            (State::Done, _) => broken("something follows the list"),
        }
    }

    fn go(&mut self, state: State, used: usize) -> Result<Step, SplitError> {
        self.state = state;
        Ok(Step::Used(used))
    }

    /// A key and what follows it: the beginning of `items`, of another object or array, or a whole plain value.
    fn member(&mut self, bytes: &[u8]) -> Result<Step, SplitError> {
        let mut cursor = Cursor::new(bytes);
        let Ok(key) = cursor.string() else { return Ok(Step::NeedMore) };
        match cursor.peek() {
            Some(b':') => {}
            Some(_) => return Err(cursor.malformed("expected a colon").into()),
            None => return Ok(Step::NeedMore),
        }
        let colon = cursor.at() + 1;
        let blank = bytes[colon..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let start = colon + blank;
        let key = &bytes[key.range];
        match bytes.get(start) {
            None => Ok(Step::NeedMore),
            Some(b'[') if key == b"items" => self.go(State::Items, start + 1),
            Some(b'{' | b'[') => {
                self.pending.reset();
                self.go(State::Member { metadata: key == b"metadata" }, start)
            }
            Some(b'"') => {
                let mut value = Cursor::new(&bytes[start..]);
                let Ok(raw) = value.string() else { return Ok(Step::NeedMore) };
                if key == b"kind" {
                    self.kind = Some(value.text(&raw)?.into_owned());
                }
                Ok(Step::Used(start + value.at()))
            }
            // A number, a boolean or null; `items: null` is a list of nothing.
            Some(_) => {
                match bytes[start..].iter().position(|b| matches!(b, b',' | b'}') || b.is_ascii_whitespace())
                {
                    Some(0) => Err(Malformed { what: "expected a value", at: start }.into()),
                    Some(length) => Ok(Step::Used(start + length)),
                    None => Ok(Step::NeedMore),
                }
            }
        }
    }
}

impl ListMeta {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            #[serde(default)]
            resource_version: Option<String>,
            #[serde(default)]
            r#continue: Option<String>,
            #[serde(default)]
            remaining_item_count: Option<i64>,
        }
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|_| Malformed { what: "unreadable list metadata", at: 0 })?;
        Ok(Self {
            version: raw.resource_version.as_deref().unwrap_or_default().into(),
            continue_token: raw.r#continue.unwrap_or_default(),
            remaining: raw.remaining_item_count,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn split(stream: &[u8], cuts: &[usize]) -> Result<(Vec<Value>, ListMeta), SplitError> {
        let mut splitter = ListSplitter::default();
        let mut items = Vec::new();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for window in cuts.windows(2) {
            splitter.feed(&stream[window[0]..window[1]], |item| {
                items.push(serde_json::from_slice(item).unwrap())
            })?;
        }
        splitter.finish().map(|meta| (items, meta))
    }

    fn meta(version: &str, token: &str) -> ListMeta {
        ListMeta { version: version.into(), continue_token: token.into(), remaining: None }
    }

    #[test]
    fn metadata_is_found_before_and_behind_the_items() {
        for text in [
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"a":1},{"b":2}]}"#,
            r#"{"apiVersion":"x/v1","items":[{"a":1},{"b":2}],"kind":"FooList","metadata":{"continue":"c","resourceVersion":"7"}}"#,
            "{ \"n\" : 1 , \"items\" : [ {\"a\":1} , {\"b\":2} ] , \"x\": [[\"items\"]], \"metadata\" : { \"resourceVersion\" : \"7\", \"continue\":\"c\" } }\n",
        ] {
            let cuts: Vec<usize> = (0..text.len()).collect();
            for cuts in [&[][..], &cuts] {
                let (items, found) = split(text.as_bytes(), cuts).unwrap();
                assert_eq!(items, [json!({"a":1}), json!({"b":2})], "{text}");
                assert_eq!(found, meta("7", "c"));
            }
        }
    }

    #[test]
    fn an_empty_list_is_a_list() {
        for text in [
            r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#,
            r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#,
        ] {
            assert_eq!(split(text.as_bytes(), &[3, 10]).unwrap(), (vec![], meta("1", "")));
        }
    }

    #[test]
    fn a_list_that_stops_early_is_truncated() {
        let text = br#"{"items":[{"a":1}],"metadata":{"resourceVersion":"1"}}"#;
        for length in 1..text.len() {
            assert_eq!(split(&text[..length], &[]), Err(SplitError::Truncated), "{length}");
        }
    }

    #[test]
    fn what_is_not_a_list_is_an_error() {
        for text in
            ["[]", "<html>", r#"{"items":[1]}"#, r#"{"items":[]} x"#, r#"{x}"#, r#"{"a" "b"}"#, r#"{"a":}"#]
        {
            assert!(matches!(split(text.as_bytes(), &[]), Err(SplitError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn an_item_over_the_cap_is_refused() {
        let mut splitter = ListSplitter::with_cap(16);
        let result = splitter.feed(br#"{"items":[{"a":1},{"a":"0123456789abcdef"}]}"#, |_| ());
        assert_eq!(result, Err(SplitError::TooLarge { cap: 16 }));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_items(
            bodies in prop::collection::vec(r#"[a-z"\\{}\[\]é]{0,90}"#, 0..8),
            cuts in prop::collection::vec(any::<usize>(), 0..30),
            pretty in any::<bool>(), meta_first in any::<bool>(),
        ) {
            let items: Vec<Value> = bodies.iter().map(|b| json!({"metadata": {"name": b}, "spec": [b, {"x": {}}]})).collect();
            let list = if meta_first {
                json!({"kind": "L", "a": {"resourceVersion": "9"}, "items": items, "n": 12, "metadata": {"resourceVersion": "9"}})
            } else {
                json!({"items": items, "metadata": {"resourceVersion": "9"}, "zeta": [1, "]"]})
            };
            let text = if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            let (found, meta) = split(text.as_bytes(), &cuts).unwrap();
            prop_assert_eq!(found, items);
            prop_assert_eq!(meta.version, ResourceVersion::from(9));
        }
    }
}
