//! Splitting a watch stream into events.

use super::members::{Members, Visitor, Want};
use super::pieces::{SplitError, TooLarge};
use crate::object::Malformed;
use crate::object::scan::Cursor;

/// Splits a watch stream, cut into chunks anywhere, into events.
///
/// ```
/// # use watchkeeper::wire::{WatchEventType, WatchSplitter};
/// let mut events = Vec::new();
/// let mut splitter = WatchSplitter::with_cap(1 << 20);
/// for chunk in [r#"{"type":"ADDED","obj"#, r#"ect":{"metadata":{"name":"a"}}}"#] {
///     splitter.feed(chunk.as_bytes(), |event| events.push(event.unwrap().event))?;
/// }
/// splitter.finish()?;
/// assert_eq!(events, [WatchEventType::Added]);
/// # Ok::<(), watchkeeper::wire::SplitError>(())
/// ```
#[derive(Debug)]
pub struct WatchSplitter {
    members: Members,
    event: Partial,
}

/// The part of an event that has arrived.
#[derive(Debug, Default)]
struct Partial {
    event: Option<WatchEventType>,
    /// An object that came before its type.
    early: Option<Vec<u8>>,
    passed: bool,
    reading_type: bool,
}

/// The type of a watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEventType {
    /// An object appeared.
    Added,
    /// An object changed.
    Modified,
    /// An object was deleted; the event carries its last state.
    Deleted,
    /// Nothing changed up to the version in the event.
    Bookmark,
    /// The server ends the watch; the event carries a Status.
    Error,
    /// A type this library does not know.
    Unknown(String),
}

/// The error of an event that is unusable, and was skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEvent {
    /// It lacks its type or its object.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its object is over the cap.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Its object is over the cap, and deleted.
    #[error(transparent)]
    DeletedTooLarge(TooLarge),
}

/// One event of a watch stream: its type, and its object as bytes.
#[derive(Clone, Debug)]
pub struct WatchLine<'a> {
    /// The type of the event.
    pub event: WatchEventType,
    /// The JSON of the object, or of a Status.
    pub object: &'a [u8],
}

impl Default for WatchSplitter {
    fn default() -> Self {
        Self { members: Members::new(true), event: Partial::default() }
    }
}

impl WatchSplitter {
    /// Returns a splitter that skips objects of more than `cap` bytes.
    pub fn with_cap(cap: usize) -> Self {
        Self { members: Members::new(true).cap(cap), ..Self::default() }
    }

    /// Takes the next chunk, and calls the function with each event whose type and object it completes.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        each: impl FnMut(Result<WatchLine<'_>, BadEvent>),
    ) -> Result<(), SplitError> {
        self.members.feed(chunk, &mut Event { partial: &mut self.event, each })
    }

    /// Fails if the stream ended inside an event. The partial event is dropped: the next watch delivers it again.
    pub fn finish(&self) -> Result<(), SplitError> {
        self.members.finish()
    }
}

struct Event<'a, F> {
    partial: &'a mut Partial,
    each: F,
}

impl<F: FnMut(Result<WatchLine<'_>, BadEvent>)> Visitor for Event<'_, F> {
    fn want(&mut self, key: &[u8]) -> Want {
        self.partial.reading_type = key == b"type";
        if matches!(key, b"type" | b"object") { Want::Whole } else { Want::Nothing }
    }

    fn value(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.partial.reading_type {
            let mut cursor = Cursor::new(value);
            // A value that is not a string is no type; the end of the event reports that.
            let text = cursor.string().and_then(|raw| cursor.text(&raw));
            self.partial.event = text.ok().map(|text| WatchEventType::from(text.as_ref()));
        } else if let Some(event) = self.partial.event.take() {
            // The usual order: the object is passed on without a copy.
            self.partial.passed = true;
            (self.each)(Ok(WatchLine { event, object: value }));
        } else {
            self.partial.early = Some(value.to_vec());
        }
        Ok(())
    }

    fn too_large(&mut self, value: TooLarge) -> Result<(), SplitError> {
        self.partial.passed = true;
        (self.each)(Err(match self.partial.event {
            Some(WatchEventType::Deleted) => BadEvent::DeletedTooLarge(value),
            _ => BadEvent::TooLarge(value),
        }));
        Ok(())
    }

    fn end(&mut self) {
        let malformed = |what| Err(Malformed { what, at: 0 }.into());
        match std::mem::take(self.partial) {
            Partial { passed: true, .. } => {}
            Partial { event: Some(event), early: Some(object), .. } => {
                (self.each)(Ok(WatchLine { event, object: &object }));
            }
            Partial { event: None, .. } => (self.each)(malformed("a watch event without a type")),
            Partial { .. } => (self.each)(malformed("a watch event without an object")),
        }
    }
}

impl From<&str> for WatchEventType {
    fn from(text: &str) -> Self {
        match text {
            "ADDED" => Self::Added,
            "MODIFIED" => Self::Modified,
            "DELETED" => Self::Deleted,
            "BOOKMARK" => Self::Bookmark,
            "ERROR" => Self::Error,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::ObjectName;

    fn split(stream: &[u8], cuts: &[usize]) -> Result<Vec<(WatchEventType, Value)>, SplitError> {
        let mut splitter = WatchSplitter::default();
        let mut events = Vec::new();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for window in cuts.windows(2) {
            splitter.feed(&stream[window[0]..window[1]], |line| {
                let line = line.unwrap();
                events.push((line.event, serde_json::from_slice(line.object).unwrap()));
            })?;
        }
        splitter.finish().map(|()| events)
    }

    #[test]
    fn events_are_found_in_lines_and_in_pretty_printed_json() {
        let stream = b"{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n{\n \"object\": {\"b\": \"}\"},\n \"type\": \"BOOKMARK\"\n}\r\n";
        let events = split(stream, &[]).unwrap();
        assert_eq!(
            events,
            [(WatchEventType::Added, json!({"a":1})), (WatchEventType::Bookmark, json!({"b":"}"}))]
        );
    }

    #[test]
    fn a_partial_last_event_is_an_error_and_not_passed_on() {
        let stream = br#"{"type":"ADDED","object":{}}{"type":"ADDED","obj"#;
        assert_eq!(split(stream, &[]), Err(SplitError::Truncated));
    }

    #[test]
    fn what_is_not_an_event_is_an_error() {
        assert!(matches!(split(b"<html>", &[]), Err(SplitError::Malformed(_))));
        let mut results = Vec::new();
        let stream = br#"{"type":"ADDED"}{"object":{}}{"type":7,"object":{}}{"type":"HELLO","object":{}}"#;
        WatchSplitter::default().feed(stream, |line| results.push(line.map(|l| l.event))).unwrap();
        assert!(results[..3].iter().all(Result::is_err));
        assert_eq!(results[3], Ok(WatchEventType::Unknown("HELLO".to_owned())));
    }

    #[test]
    fn an_event_over_the_cap_is_stepped_over_and_named() {
        let stream = br#"{"type":"ADDED","object":{"metadata":{"name":"big"},"b":"0123456789"}}{"type":"ADDED","object":{}}"#;
        for chunk in [1, 7, stream.len()] {
            let mut splitter = WatchSplitter::with_cap(30);
            let mut passed = Vec::new();
            for piece in stream.chunks(chunk) {
                splitter.feed(piece, |line| passed.push(line.map(|line| line.event))).unwrap();
            }
            let big = TooLarge { size: 44, cap: 30, name: Some(ObjectName::cluster("big")) };
            assert_eq!(passed, [Err(big.into()), Ok(WatchEventType::Added)]);
        }
    }

    #[test]
    fn an_event_over_the_cap_says_that_its_object_is_deleted() {
        let stream = br#"{"type":"DELETED","object":{"metadata":{"name":"big"}}}{"object":{"metadata":{"name":"big"}},"type":"DELETED"}"#;
        let mut passed = Vec::new();
        WatchSplitter::with_cap(20).feed(stream, |line| passed.push(line.map(|line| line.event))).unwrap();
        let big = TooLarge { size: 27, cap: 20, name: Some(ObjectName::cluster("big")) };
        // If the type comes last, it is not known yet.
        assert_eq!(passed, [Err(BadEvent::DeletedTooLarge(big.clone())), Err(big.into())]);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            bodies in prop::collection::vec(r#"[a-z"\\{}é]{0,100}"#, 0..8),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
            pretty in any::<bool>(),
        ) {
            let mut stream = String::new();
            for (index, body) in bodies.iter().enumerate() {
                let event = json!({"type": "MODIFIED", "object": {"n": index, "s": body, "l": [body, {}]}});
                let text = if pretty { serde_json::to_string_pretty(&event) } else { serde_json::to_string(&event) };
                stream += &text.unwrap();
                stream.push('\n');
            }
            let expected: Vec<_> = bodies.iter().enumerate()
                .map(|(i, b)| (WatchEventType::Modified, json!({"n": i, "s": b, "l": [b, {}]}))).collect();
            prop_assert_eq!(split(stream.as_bytes(), &cuts).unwrap(), expected);
        }

        #[test]
        fn a_cut_at_any_byte_loses_only_the_last_event(at in 0..90_usize) {
            let whole = b"{\"type\":\"ADDED\",\"object\":{\"a\":\"x\\\"\"}}\n{\"type\":\"DELETED\",\"object\":{\"a\":\"\xc3\xa9\"}}\n";
            let mut splitter = WatchSplitter::default();
            let mut seen = 0;
            splitter.feed(&whole[..at.min(whole.len())], |line| { line.unwrap(); seen += 1; }).unwrap();
            let first = whole.iter().position(|b| *b == b'\n').unwrap();
            // An event is passed on with the last byte of its object, one before its own.
            prop_assert_eq!(seen, usize::from(at >= first - 1) + usize::from(at >= whole.len() - 2));
        }
    }
}
