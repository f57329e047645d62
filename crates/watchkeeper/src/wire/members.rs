//! Splitting an object while it arrives: member by member, each value whole, skipped, or item by item.

use super::pieces::{OBJECT_CAP, Pending, SplitError, Taken, TooLarge};
use crate::object::Malformed;
use crate::object::scan::Cursor;

/// The wanted form of a member's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Pass it on when it is complete.
    Whole,
    /// Pass on each element, if it is an array.
    Items,
    /// Skip it.
    Nothing,
}

/// The receiver of an object's members.
pub(super) trait Visitor {
    /// Called when a member of this name begins.
    fn want(&mut self, key: &[u8]) -> Want;

    /// Called with the value of a member that is wanted whole.
    fn value(&mut self, value: &[u8]) -> Result<(), Malformed>;

    /// Called when the value of a member that is wanted whole is over the cap.
    fn too_large(&mut self, value: TooLarge) -> Result<(), SplitError> {
        Err(value.into())
    }

    /// Called with the next element of a member whose items are wanted.
    fn item(&mut self, _item: Result<&[u8], TooLarge>) {}

    /// Called at the end of the object.
    fn end(&mut self) {}
}

/// Splits one object, or a sequence of them, cut into chunks anywhere.
#[derive(Debug)]
pub(super) struct Members {
    state: State,
    pending: Pending,
    /// Bytes of a key or a scalar value that a chunk boundary cut in two.
    carry: Vec<u8>,
    /// Whether another object may follow the first.
    many: bool,
    cap: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before an object.
    Start,
    /// In the object, before a key or the end.
    Members,
    /// In a member whose items are wanted, before an item or the end.
    Items,
    /// Inside an item.
    Item,
    /// Inside an object or array that is the value of a member.
    Value { wanted: bool },
    /// Behind the one object.
    Done,
}

/// One step of the machine: the number of bytes it used, or that it needs more.
enum Step {
    Used(usize),
    NeedMore,
}

impl Members {
    pub(super) fn new(many: bool) -> Self {
        Self { state: State::Start, pending: Pending::default(), carry: Vec::new(), many, cap: OBJECT_CAP }
    }

    pub(super) fn cap(mut self, cap: usize) -> Self {
        self.cap = cap;
        self
    }

    /// Takes the next chunk.
    pub(super) fn feed(&mut self, chunk: &[u8], visitor: &mut impl Visitor) -> Result<(), SplitError> {
        if self.carry.is_empty() {
            let used = self.run(chunk, visitor)?;
            self.carry.extend_from_slice(&chunk[used..]);
            return Ok(());
        }
        self.carry.extend_from_slice(chunk);
        let joined = std::mem::take(&mut self.carry);
        let used = self.run(&joined, visitor)?;
        self.carry.extend_from_slice(&joined[used..]);
        Ok(())
    }

    /// Fails if the stream must not end here.
    pub(super) fn finish(&self) -> Result<(), SplitError> {
        let whole = if self.many { State::Start } else { State::Done };
        if self.state == whole { Ok(()) } else { Err(SplitError::Truncated) }
    }

    fn run(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> Result<usize, SplitError> {
        let mut at = 0;
        loop {
            if !matches!(self.state, State::Item | State::Value { .. }) {
                at += bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
            }
            if at == bytes.len() {
                return Ok(at);
            }
            match self.step(&bytes[at..], visitor)? {
                Step::Used(used) => at += used,
                Step::NeedMore if bytes.len() - at > self.cap => {
                    return Err(TooLarge { size: bytes.len() - at, cap: self.cap, name: None }.into());
                }
                Step::NeedMore => return Ok(at),
            }
        }
    }

    fn step(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> Result<Step, SplitError> {
        let broken = |what| Err(Malformed { what, at: 0 }.into());
        match (self.state, bytes[0]) {
            (State::Start, b'{') => self.go(State::Members, 1),
            (State::Start, _) => broken("expected an object"),
            (State::Members | State::Items, b',') => Ok(Step::Used(1)),
            (State::Members, b'}') => {
                visitor.end();
                self.go(if self.many { State::Start } else { State::Done }, 1)
            }
            (State::Members, b'"') => self.member(bytes, visitor),
            (State::Members, _) => broken("expected a key"),
            (State::Items, b']') => self.go(State::Members, 1),
            (State::Items, b'{' | b'[') => {
                self.pending.reset();
                self.go(State::Item, 0)
            }
            (State::Items, _) => broken("expected an item"),
            (State::Item, _) => match self.pending.take(bytes, self.cap) {
                Taken::More => Ok(Step::Used(bytes.len())),
                Taken::Whole(object, used) => {
                    visitor.item(Ok(object));
                    self.go(State::Items, used)
                }
                Taken::TooLarge(object, used) => {
                    visitor.item(Err(object));
                    self.go(State::Items, used)
                }
            },
            (State::Value { wanted }, _) => match self.pending.take(bytes, self.cap) {
                Taken::More => Ok(Step::Used(bytes.len())),
                Taken::Whole(value, used) => {
                    if wanted {
                        visitor.value(value)?;
                    }
                    self.go(State::Members, used)
                }
                Taken::TooLarge(value, used) => {
                    if wanted {
                        visitor.too_large(value)?;
                    }
                    self.go(State::Members, used)
                }
            },
            (State::Done, _) => broken("something follows the end"),
        }
    }

    fn go(&mut self, state: State, used: usize) -> Result<Step, SplitError> {
        self.state = state;
        Ok(Step::Used(used))
    }

    /// Parses a key and the start of its value: an opening bracket, or a whole scalar.
    fn member(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> Result<Step, SplitError> {
        let mut cursor = Cursor::new(bytes);
        let Ok(key) = cursor.string() else { return Ok(Step::NeedMore) };
        match cursor.peek() {
            Some(b':') => {}
            Some(_) => return Err(cursor.malformed("expected a colon").into()),
            None => return Ok(Step::NeedMore),
        }
        let colon = cursor.at() + 1;
        let start = colon + bytes[colon..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let Some(first) = bytes.get(start) else { return Ok(Step::NeedMore) };
        // The scalar must be complete before the visitor sees its key, as this step may run again otherwise.
        let end = match first {
            b'{' | b'[' => None,
            b'"' => {
                let mut value = Cursor::new(&bytes[start..]);
                let Ok(_) = value.string() else { return Ok(Step::NeedMore) };
                Some(start + value.at())
            }
            _ => {
                let ends = |b: &u8| matches!(b, b',' | b'}') || b.is_ascii_whitespace();
                match bytes[start..].iter().position(ends) {
                    Some(0) => return Err(Malformed { what: "expected a value", at: start }.into()),
                    Some(length) => Some(start + length),
                    None => return Ok(Step::NeedMore),
                }
            }
        };
        let want = visitor.want(cursor.text(&key)?.as_bytes());
        match (want, end) {
            (Want::Items, None) if *first == b'[' => self.go(State::Items, start + 1),
            (Want::Items, None) => Err(Malformed { what: "expected an array of items", at: start }.into()),
            (want, None) => {
                self.pending.reset();
                self.go(State::Value { wanted: want == Want::Whole }, start)
            }
            (Want::Whole, Some(end)) => {
                visitor.value(&bytes[start..end])?;
                Ok(Step::Used(end))
            }
            // `items: null` is an empty list.
            (Want::Items, Some(end)) if bytes[start..end] != *b"null" => {
                Err(Malformed { what: "expected an array of items", at: start }.into())
            }
            (_, Some(end)) => Ok(Step::Used(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ListSplitter;

    /// Splits a list with a cap of 20 bytes.
    fn list(text: &str) -> Result<(), SplitError> {
        ListSplitter::with_cap(20).feed(text.as_bytes(), |_| {})
    }

    fn too_large(size: usize) -> Result<(), SplitError> {
        Err(TooLarge { size, cap: 20, name: None }.into())
    }

    #[test]
    fn a_key_or_plain_value_that_goes_on_is_waited_for_up_to_the_cap() {
        assert_eq!(list(r#" {"key":"aaaaaaaaaaaaa"#), Ok(()));
        assert_eq!(list(r#" {"key":"aaaaaaaaaaaaaa"#), too_large(21));
        assert_eq!(list(r#" {"kkkkkkkkkkkkkkkkkkkkkkk"#), too_large(24));
    }

    #[test]
    fn a_plain_string_may_hold_what_ends_a_number() {
        assert_eq!(list(r#"{"a":"1, 2}","b":2}"#), Ok(()));
    }

    #[test]
    fn metadata_over_the_cap_ends_the_list() {
        assert_eq!(list(r#"{"metadata":{"continue":"cc"}"#), Ok(()));
        assert_eq!(list(r#"{"metadata":{"continue":"cccccc"}"#), too_large(21));
        assert_eq!(list(r#"{"other":{"continue":"cccccc"}"#), Ok(()));
    }

    #[test]
    fn what_stands_for_the_items_is_an_array_or_null() {
        let expected = |at| Err(Malformed { what: "expected an array of items", at }.into());
        assert_eq!(list(r#"{"items": {}}"#), expected(9));
        assert_eq!(list(r#"{"items":"none"}"#), expected(8));
        assert_eq!(list(r#"{"items": null}"#), Ok(()));
    }
}
