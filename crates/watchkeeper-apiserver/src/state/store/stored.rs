//! One version of an object: its JSON, encoded once, and the attributes that selectors need.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kinds::kind::Kind;
use crate::state::selector;

/// The key of an object within its resource, ordered by namespace, then name. The namespace of a cluster-scoped object
/// is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One version of an object, encoded once and shared by every get, list and watch.
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) uid: String,
    pub(crate) api_version: String,
    pub(crate) terminating: bool,
    /// Sorted by key.
    pub(crate) labels: Arc<[(String, String)]>,
    /// The values of the kind's selectable fields, by stored path.
    pub(crate) fields: Arc<[(Arc<str>, String)]>,
    /// The JSON.
    pub(crate) bytes: Bytes,
    /// The offset after `{"kind":..,"apiVersion":..,`, which items of built-in lists omit; 0 if all is kept.
    pub(crate) head: usize,
    /// The range of `metadata.resourceVersion` in `bytes`; empty if absent.
    version: Range<usize>,
    /// The JSON as written, if it reads differently because the schema has changed.
    pub(crate) written: Option<Bytes>,
    /// Encodings of other views that watches requested, each made once.
    views: Mutex<Vec<(View, Text)>>,
}

/// JSON, and the offset after `{"kind":..,"apiVersion":..,`; 0 if it has no such head.
pub(crate) type Text = (Bytes, usize);

/// A representation other than the stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Another version of the kind.
    Version(String),
    /// The object in this version, in protobuf.
    Protobuf(String),
    /// The metadata only; `beta` selects `v1beta1` of that format.
    Metadata { beta: bool },
}

/// The number of encodings in this process.
static ENCODINGS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of objects that this process has encoded, for `/metrics`. A change counts once, however many
/// watches deliver it.
pub(crate) fn encodings() -> u64 {
    ENCODINGS.load(Ordering::Relaxed)
}

/// The metadata of an encoded object.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// The version in an object's metadata.
#[derive(Deserialize)]
struct VersionPart<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    version: &'a RawValue,
}

/// Finds `metadata.resourceVersion` in a text, without its quotes.
fn find_version(text: &[u8]) -> Option<Range<usize>> {
    let parts = serde_json::from_slice::<Parts<'_>>(text).ok()?;
    let part = serde_json::from_str::<VersionPart<'_>>(parts.metadata.get()).ok()?;
    // Both parts are slices of the text.
    let start = part.version.get().as_ptr() as usize - text.as_ptr() as usize + 1;
    Some(start..start + part.version.get().len() - 2)
}

// The content may be a Secret, so `Debug` must not show it.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Stored {
    /// Encodes `value`, whose `metadata.resourceVersion` must already be `revision`.
    pub(crate) fn encode(kind: &Kind, key: Key, revision: u64, value: &Value) -> Self {
        let (text, version) = encode_object(kind.custom.is_some(), value);
        Self::new(Some(kind), key, revision, value, (text, version))
    }

    /// Returns a version whose text differs from that of `old` by `edits`, each a range and what replaces it, in the order
    /// of the text. They must not touch the version, nor anything that selectors need.
    pub(crate) fn edited(old: &Self, edits: &[(Range<usize>, String)]) -> Self {
        ENCODINGS.fetch_add(1, Ordering::Relaxed);
        let longer: usize = edits.iter().map(|(_, new)| new.len()).sum();
        let mut text = Vec::with_capacity(old.bytes.len() + longer);
        let (mut from, mut version) = (0, old.version.clone());
        for (range, new) in edits {
            text.extend_from_slice(&old.bytes[from..range.start]);
            text.extend_from_slice(new.as_bytes());
            from = range.end;
            if range.end <= old.version.start {
                let start = version.start + new.len() - range.len();
                version = start..start + old.version.len();
            }
        }
        text.extend_from_slice(&old.bytes[from..]);
        old.with_text(old.revision, exact(text), version)
    }

    /// As [`Stored::at`], for watches whose selector no longer matches. Counts as an encoding.
    pub(crate) fn left_at(&self, revision: u64) -> Self {
        ENCODINGS.fetch_add(1, Ordering::Relaxed);
        self.at(revision)
    }

    /// Returns the same content in another version. The text is copied, not encoded again, as this happens under the
    /// lock.
    pub(crate) fn at(&self, revision: u64) -> Self {
        let digits = revision.to_string();
        let mut text = Vec::with_capacity(self.bytes.len() + digits.len() - self.version.len());
        text.extend_from_slice(&self.bytes[..self.version.start]);
        text.extend_from_slice(digits.as_bytes());
        text.extend_from_slice(&self.bytes[self.version.end..]);
        let version = self.version.start..self.version.start + digits.len();
        self.with_text(revision, exact(text), version)
    }

    /// Returns a version of the same object with another text, in which `version` is the range of its resourceVersion.
    fn with_text(&self, revision: u64, bytes: Bytes, version: Range<usize>) -> Self {
        Self {
            key: self.key.clone(),
            revision,
            uid: self.uid.clone(),
            api_version: self.api_version.clone(),
            terminating: self.terminating,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            bytes,
            head: self.head,
            version,
            written: None,
            views: Mutex::default(),
        }
    }

    /// Returns the JSON in the version of `kind`, and the offset after kind and apiVersion.
    ///
    /// If the versions agree this is the stored JSON, shared and not encoded again.
    pub(crate) fn render(&self, kind: &Kind) -> Text {
        if self.api_version == kind.api_version {
            return (self.bytes.clone(), self.head);
        }
        encode(kind.custom.is_some(), &self.value_in(kind))
    }

    /// Restores a stored object; `None` if the text is not an object of this revision.
    ///
    /// A kind that is no longer served has no selectable fields.
    pub(crate) fn restore(kind: Option<&Kind>, revision: u64, text: Text) -> Option<Self> {
        let value: Value = serde_json::from_slice(&text.0).ok()?;
        let metadata = &value["metadata"];
        let part = |field: &str| metadata[field].as_str().unwrap_or_default();
        let key = Key::new(part("namespace"), part("name"));
        let version = find_version(&text.0)?;
        let sound = part("resourceVersion") == revision.to_string() && text.1 < text.0.len();
        sound.then(|| Self::new(kind, key, revision, &value, (text, version)))
    }

    fn new(
        kind: Option<&Kind>,
        key: Key,
        revision: u64,
        value: &Value,
        ((bytes, head), version): (Text, Range<usize>),
    ) -> Self {
        let metadata = &value["metadata"];
        let labels = metadata["labels"].as_object().map(|labels| {
            let mut labels: Vec<_> = labels
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect();
            labels.sort();
            labels
        });
        Self {
            key,
            revision,
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            api_version: value["apiVersion"].as_str().unwrap_or_default().to_owned(),
            terminating: metadata["deletionTimestamp"].is_string(),
            labels: shared(labels.unwrap_or_default()),
            fields: shared(kind.map(|kind| selector::selectable(kind, value)).unwrap_or_default()),
            bytes,
            head,
            version,
            written: None,
            views: Mutex::default(),
        }
    }

    /// Returns the encoding of a view. The first caller makes it; later ones share it.
    pub(crate) fn view(&self, view: &View, make: impl FnOnce() -> Text) -> Text {
        let mut views = self.views.lock();
        if let Some((_, text)) = views.iter().find(|(known, _)| known == view) {
            return text.clone();
        }
        let text = make();
        views.push((view.clone(), text.clone()));
        text
    }

    /// Drops the encodings of views, which are rarely requested for old changes.
    pub(crate) fn forget_views(&self) {
        *self.views.lock() = Vec::new();
    }

    /// Returns the metadata as a `PartialObjectMetadata` of this version.
    pub(crate) fn metadata_text(&self, api_version: &str) -> Bytes {
        ENCODINGS.fetch_add(1, Ordering::Relaxed);
        // The text is our own encoding, which always has metadata.
        let parts = serde_json::from_slice::<Parts<'_>>(&self.bytes);
        let metadata = parts.as_ref().map_or("{}", |parts| parts.metadata.get());
        format!(r#"{{"apiVersion":"{api_version}","kind":"PartialObjectMetadata","metadata":{metadata}}}"#)
            .into()
    }

    /// Decodes the metadata alone, as the rest of the object may be large.
    pub(crate) fn metadata(&self) -> Value {
        #[cfg(test)]
        PARSED.with(|parsed| parsed.set(parsed.get() + self.bytes.len()));
        let parts = serde_json::from_slice::<Parts<'_>>(&self.bytes);
        parts.ok().and_then(|parts| serde_json::from_str(parts.metadata.get()).ok()).unwrap_or_default()
    }

    /// Decodes the object, in the version of `kind`.
    pub(crate) fn value_in(&self, kind: &Kind) -> Value {
        kind.to_served(self.value())
    }

    /// Decodes the object as it is stored.
    pub(crate) fn value(&self) -> Value {
        #[cfg(test)]
        PARSED.with(|parsed| parsed.set(parsed.get() + self.bytes.len()));
        // The text is our own encoding, which always parses.
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
thread_local! {
    /// The number of bytes of stored objects that this thread has decoded.
    pub(crate) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Encodes an object; returns the JSON and the offset after kind and apiVersion.
pub(crate) fn encode(custom: bool, value: &Value) -> Text {
    encode_object(custom, value).0
}

/// As [`encode`], with the range of the object's version in the text.
fn encode_object(custom: bool, value: &Value) -> (Text, Range<usize>) {
    ENCODINGS.fetch_add(1, Ordering::Relaxed);
    let mut out = Vec::with_capacity(512);
    let Value::Object(map) = value else {
        write_json(&mut out, value);
        return ((exact(out), 0), 0..0);
    };
    let mut version = 0..0;
    // Custom resources are serialized in key order, as by the real server.
    if custom || !map.contains_key("kind") || !map.contains_key("apiVersion") {
        out.push(b'{');
        write_fields(&mut out, map.iter(), &mut version);
        out.push(b'}');
        return ((exact(out), 0), version);
    }
    out.extend_from_slice(b"{\"kind\":");
    write_json(&mut out, &map["kind"]);
    out.extend_from_slice(b",\"apiVersion\":");
    write_json(&mut out, &map["apiVersion"]);
    let head = out.len() + 1;
    let rest = map.iter().filter(|(key, _)| !["kind", "apiVersion", "metadata"].contains(&key.as_str()));
    let metadata = map.get_key_value("metadata");
    out.push(b',');
    write_fields(&mut out, metadata.into_iter().chain(rest), &mut version);
    if out.len() == head {
        out.pop();
    }
    out.push(b'}');
    let head = if out.len() > head { head } else { 0 };
    ((exact(out), head), version)
}

/// Writes the fields of an object, and notes the range of its version.
fn write_fields<'a>(
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = (&'a String, &'a Value)>,
    version: &mut Range<usize>,
) {
    for (at, (key, value)) in fields.enumerate() {
        write_key(out, at, key);
        match value {
            Value::Object(metadata) if key == "metadata" => {
                out.push(b'{');
                for (at, (key, value)) in metadata.iter().enumerate() {
                    write_key(out, at, key);
                    let start = out.len();
                    write_json(out, value);
                    if key == "resourceVersion" && value.is_string() {
                        *version = start + 1..out.len() - 1;
                    }
                }
                out.push(b'}');
            }
            _ => write_json(out, value),
        }
    }
}

fn write_key(out: &mut Vec<u8>, at: usize, key: &str) {
    if at > 0 {
        out.push(b',');
    }
    write_text(out, key);
    out.push(b':');
}

/// Makes pairs that the versions of an object share. Most have none, which takes no memory.
fn shared<T>(pairs: Vec<(T, String)>) -> Arc<[(T, String)]> {
    if pairs.is_empty() { Arc::default() } else { pairs.into() }
}

/// Shrinks the buffer to its content: the text is kept for long.
fn exact(text: Vec<u8>) -> Bytes {
    text.into_boxed_slice().into()
}

/// Writes a value as `serde_json` does, with less work per text: few have a character to escape.
fn write_json(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Number(number) => write_with_serde(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(list) => {
            out.push(b'[');
            for (at, value) in list.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json(out, value);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (at, (key, value)) in map.iter().enumerate() {
                write_key(out, at, key);
                write_json(out, value);
            }
            out.push(b'}');
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if !text.bytes().all(is_plain) {
        return write_with_serde(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn write_with_serde<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Serializing a JSON value into memory cannot fail.
    let _infallible = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn built_in_objects_can_be_cut_after_kind_and_version() {
        let value = json!({"apiVersion": "v1", "kind": "X", "data": 1, "metadata": {}});
        let (bytes, head) = encode(false, &value);
        assert_eq!(bytes, r#"{"kind":"X","apiVersion":"v1","metadata":{},"data":1}"#);
        assert_eq!(&bytes[head..], br#""metadata":{},"data":1}"#);
        let (bytes, head) = encode(false, &json!({"apiVersion": "v1", "kind": "X"}));
        assert_eq!((&bytes[..], head), (&br#"{"kind":"X","apiVersion":"v1"}"#[..], 0));
    }

    #[test]
    fn a_value_is_encoded_as_serde_does() {
        let every_character: String =
            (0..=0x200).filter_map(char::from_u32).chain(['\u{2028}', '🦀']).collect();
        for value in [
            json!({"": [], "a\"b": {}, "c": [null, true, false, [[]], {"d": {"e": 1}}], "\\": "\n"}),
            json!([0, -1, u64::MAX, i64::MIN, 1.5, -0.0, 1e300, f64::MIN_POSITIVE]),
            json!({"text": every_character, every_character.as_str(): "", "/": "</script>\u{7f}"}),
        ] {
            let mut out = Vec::new();
            write_json(&mut out, &value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }

    #[test]
    fn an_object_in_another_version_is_what_encoding_it_again_would_give() {
        let registry = crate::kinds::registry::Registry::new();
        let kind = registry.find("", "v1", "configmaps").unwrap();
        let object = |version: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"resourceVersion": "7", "metadata": "{"},
                "metadata": {"name": "a\"b", "resourceVersion": version, "labels": {"resourceVersion": "7"}}})
        };
        let key = || Key::new("d", "a");
        let first = Stored::encode(kind, key(), 7, &object("7"));
        let restored = Stored::restore(Some(kind), 7, (first.bytes.clone(), first.head)).unwrap();
        for stored in [&first, &restored, &first.at(99), &restored.at(123_456)] {
            let (again, whole) = (stored.at(1000), Stored::encode(kind, key(), 1000, &object("1000")));
            assert_eq!((again.revision, again.bytes, again.head), (1000, whole.bytes, whole.head));
            assert_eq!(again.labels, whole.labels);
        }
        assert_eq!(first.metadata(), first.value()["metadata"]);
    }
}
