//! Invariants that hold for any bytes: one function per fuzz target, which panics on a violation.
//!
//! The fuzz targets call these with new inputs, and `crates/watchkeeper/tests/corpus.rs` with those in `fuzz/corpus`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use http::StatusCode;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use watchkeeper::object::Labels;
use watchkeeper::wire::{ApiError, Class, ListMeta, ListSplitter, SplitError, WatchEventType, WatchSplitter};
use watchkeeper::{Object, ResourceVersion};

/// A check under the name of its target.
pub(crate) type Check = (&'static str, fn(&[u8]));

/// Every check there is.
pub(crate) const ALL: [Check; 4] = [("list", list), ("watch", watch), ("status", status), ("object", object)];

/// The members of a JSON object as they stand in the text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl<'a> Members<'a> {
    /// What a JSON parser sees; `None` where parsers may differ, since the text is no object or a key stands in it twice.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(bytes).ok().filter(Self::is_plain)
    }

    fn is_plain(&self) -> bool {
        let keys: BTreeSet<_> = self.0.iter().map(|(key, _)| key).collect();
        keys.len() == self.0.len()
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(found, _)| found == key).map(|(_, value)| value.get())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(|value| serde_json::from_str(value).ok())
    }

    fn object(&self, key: &str) -> Option<Self> {
        self.get(key).and_then(|value| Self::of(value.as_bytes()))
    }
}

/// The kind of a failure. Where it was noticed depends on the chunks, what it was does not.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Malformed,
    TooLarge,
    Truncated,
}

impl From<SplitError> for Failure {
    fn from(error: SplitError) -> Self {
        match error {
            SplitError::Malformed(_) => Self::Malformed,
            SplitError::TooLarge(_) => Self::TooLarge,
            SplitError::Truncated => Self::Truncated,
        }
    }
}

/// Takes the first two bytes as the lengths, less one, of chunks into which the rest is cut in turn.
fn cut(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (lengths, body) = data.split_first_chunk::<2>()?;
    let (mut chunks, mut rest) = (Vec::new(), body);
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, behind) = rest.split_at(rest.len().min(usize::from(*length) + 1));
        chunks.push(chunk);
        rest = behind;
    }
    Some((body, chunks))
}

fn split_list(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Result<ListMeta, Failure>) {
    let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
    let fed = chunks
        .iter()
        .try_for_each(|chunk| splitter.feed(chunk, |item| items.extend(item.ok().map(<[u8]>::to_vec))));
    (items, fed.and_then(|()| splitter.finish()).map_err(Failure::from))
}

/// Any chunks of a list give the same items and the same end; a sound list gives the items that a JSON parser finds.
pub(crate) fn list(data: &[u8]) {
    let Some((body, chunks)) = cut(data) else { return };
    let (items, end) = split_list(&[body]);
    let (items_in_chunks, end_in_chunks) = split_list(&chunks);
    assert_eq!(items, items_in_chunks, "items in one chunk and in many");
    assert_eq!(end, end_in_chunks, "end in one chunk and in many");
    for item in &items {
        assert!(matches!(item.first(), Some(b'{' | b'[')), "an item that is neither object nor array");
    }
    let Some(sound) = Members::of(body) else { return };
    let Some(expected) = sound_items(&sound) else { return };
    match end {
        Ok(meta) => {
            assert_eq!(items, expected, "items of a sound list");
            let metadata = sound.object("metadata");
            let version = metadata.as_ref().and_then(|metadata| metadata.text("resourceVersion"));
            assert_eq!(version.map(|version| version.as_str().into()), Some(meta.version));
            let token = metadata.as_ref().and_then(|metadata| metadata.text("continue"));
            assert_eq!(token.unwrap_or_default(), meta.continue_token);
        }
        Err(failure) => assert!(!has_version(&sound), "a sound list was refused: {failure:?}"),
    }
}

/// The items of a list, if each is an object or array.
fn sound_items(list: &Members<'_>) -> Option<Vec<Vec<u8>>> {
    let items: Option<Vec<&RawValue>> = serde_json::from_str(list.get("items")?).ok()?;
    let items: Vec<_> = items.unwrap_or_default().iter().map(|item| item.get().as_bytes().to_vec()).collect();
    items.iter().all(|item| matches!(item[0], b'{' | b'[')).then_some(items)
}

/// Whether the list has a version, and nothing else in its metadata that could be read in more than one way.
fn has_version(list: &Members<'_>) -> bool {
    list.object("metadata").is_some_and(|metadata| {
        metadata.0.len() == 1 && metadata.text("resourceVersion").is_some_and(|version| !version.is_empty())
    })
}

/// An event and its object; `None` for an event that lacks one of them.
type Event = Option<(WatchEventType, Vec<u8>)>;

fn split_watch(chunks: &[&[u8]]) -> (Vec<Event>, Result<(), Failure>) {
    let (mut splitter, mut events) = (WatchSplitter::default(), Vec::new());
    let fed = chunks.iter().try_for_each(|chunk| {
        splitter.feed(chunk, |line| events.push(line.ok().map(|line| (line.event, line.object.to_vec()))))
    });
    (events, fed.and_then(|()| splitter.finish()).map_err(Failure::from))
}

/// Any chunks of a watch give the same events and the same end; a sound stream gives the events that a JSON parser finds.
pub(crate) fn watch(data: &[u8]) {
    let Some((body, chunks)) = cut(data) else { return };
    let (events, end) = split_watch(&[body]);
    let (events_in_chunks, end_in_chunks) = split_watch(&chunks);
    assert_eq!(events, events_in_chunks, "events in one chunk and in many");
    assert_eq!(end, end_in_chunks, "end in one chunk and in many");
    for (_, object) in events.iter().flatten() {
        // What is no object is refused when it is taken in; it is one whole value here.
        let ends = [object.first(), object.last()];
        assert!(ends.iter().all(|b| b.is_some_and(|b| !b.is_ascii_whitespace())), "an event without a value");
    }
    let stream = serde_json::Deserializer::from_slice(body).into_iter::<Members<'_>>();
    let Ok(sound) = stream.collect::<Result<Vec<_>, _>>() else { return };
    if sound.iter().all(Members::is_plain) {
        let expected: Vec<Event> = sound.iter().map(sound_event).collect();
        assert_eq!((events, end), (expected, Ok(())), "events of a sound stream");
    }
}

fn sound_event(event: &Members<'_>) -> Event {
    let object = event.get("object")?.as_bytes().to_vec();
    Some((WatchEventType::from(event.text("type")?.as_str()), object))
}

/// Any answer is classified, and its text has nothing of a body but the message and reason of a Status.
///
/// The first two bytes choose the HTTP code, the third a `Retry-After` header.
pub(crate) fn status(data: &[u8]) {
    let Some(([high, low, after], body)) = data.split_first_chunk::<3>() else { return };
    let code = StatusCode::from_u16(100 + u16::from_be_bytes([*high, *low]) % 900).expect("100 to 999");
    let after = (*after < 128).then_some(u64::from(*after));
    tells_only_a_status(body, ApiError::from_event);
    tells_only_a_status(body, |body| ApiError::from_response(code, after, body));
}

/// The text is that of an answer without a body, or that of a Status which is all that may be told of this one.
fn tells_only_a_status(body: &[u8], read: impl Fn(&[u8]) -> ApiError) {
    let error = read(body);
    if texts(&error) == texts(&read(b"")) {
        return;
    }
    let Some(told) = Told::of(body) else { panic!("what is no Status shows in {error:?}") };
    assert_eq!(error.message(), told.message.unwrap_or_default());
    assert_eq!(error.reason(), told.reason.unwrap_or_default());
    let too_large = [json!({"reason": "ResourceVersionTooLarge"})];
    let causes = if error.class() == Class::VersionTooLarge { &too_large[..] } else { &[] };
    let plain = json!({
        "kind": "Status", "message": error.message(), "reason": error.reason(), "code": error.code(),
        "details": {"causes": causes, "retryAfterSeconds": error.retry_after().map(|after| after.as_secs())},
    });
    assert_eq!(texts(&error), texts(&read(plain.to_string().as_bytes())));
}

/// All that may be printed of an error.
fn texts(error: &ApiError) -> [String; 2] {
    [error.to_string(), format!("{error:?}")]
}

/// What may be told of a Status. Like any reader of JSON it does not look into members that it does not know.
#[derive(Deserialize)]
struct Told {
    kind: Option<String>,
    message: Option<String>,
    reason: Option<String>,
}

impl Told {
    fn of(body: &[u8]) -> Option<Self> {
        // An array is no Status, though a struct can be read from it.
        let is_object = body.trim_ascii_start().starts_with(b"{");
        let status: Self = is_object.then(|| serde_json::from_slice(body).ok())??;
        (status.kind.as_deref() == Some("Status")).then_some(status)
    }
}

/// Any bytes are an object or refused; the identity of a sound object is the one that a JSON parser finds.
pub(crate) fn object(data: &[u8]) {
    let object = Object::<()>::from_json(data);
    if let Ok(object) = &object {
        // Reading further must not panic either, whatever the rest is.
        let _ = (object.key(), object.controller(), object.size(), format!("{object:?}"));
        let _ = (object.labels().to_map(), object.annotations().to_map());
    }
    let (Some(sound), Ok(mut value)) = (Members::of(data), serde_json::from_slice::<Value>(data)) else {
        return;
    };
    let Some(metadata) = sound.object("metadata") else { return };
    let Some(name) = metadata.text("name").filter(|name| !name.is_empty()) else {
        assert!(object.is_err(), "an object without a name was taken in");
        return;
    };
    let object = object.expect("a sound object is taken in");
    assert_eq!(object.name(), name);
    assert_eq!(object.namespace().unwrap_or_default(), metadata.text("namespace").unwrap_or_default());
    assert_eq!(object.uid(), metadata.text("uid").unwrap_or_default());
    let version = metadata.text("resourceVersion").unwrap_or_default();
    assert_eq!(object.version(), &ResourceVersion::from(version.as_str()));
    assert_eq!(object.is_deleting(), metadata.text("deletionTimestamp").is_some());
    same_pairs(object.labels(), metadata.get("labels"));
    same_pairs(object.annotations(), metadata.get("annotations"));
    value["metadata"].as_object_mut().expect("it has a name").remove("managedFields");
    assert_eq!(serde_json::from_slice::<Value>(object.json()).ok(), Some(value), "the JSON that is kept");
}

/// Labels or annotations are the members of `json` that are strings, unless a key stands in it twice.
fn same_pairs(found: Labels<'_>, json: Option<&str>) {
    let Some(members) = json.and_then(|json| serde_json::from_str::<Members<'_>>(json).ok()) else {
        assert_eq!(found.iter().count(), 0, "what is no object has no pairs");
        return;
    };
    if members.is_plain() {
        let keys = members.0.iter().map(|(key, _)| key);
        let expected: BTreeMap<_, _> =
            keys.filter_map(|key| Some((key.clone(), members.text(key)?))).collect();
        assert!(expected.iter().all(|(key, value)| found.get(key).as_deref() == Some(value)));
        assert_eq!(found.to_map(), expected);
    }
}
