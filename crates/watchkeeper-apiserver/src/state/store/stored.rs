//! What is one version of one object? Its JSON text, made once, and what is asked of it most.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kinds::convert;
use crate::kinds::kind::Kind;
use crate::state::selector;

/// The key of an object within its resource; an empty namespace for a cluster-scoped one. Ordered by namespace, then name.
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

/// One version of one object: encoded once, and shared by every get, list and watch that shows it.
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) uid: String,
    pub(crate) api_version: String,
    pub(crate) terminating: bool,
    /// Sorted by key.
    pub(crate) labels: Box<[(String, String)]>,
    /// The kind's selectable fields, by stored path.
    pub(crate) fields: Box<[(String, String)]>,
    /// The JSON text.
    pub(crate) bytes: Bytes,
    /// Where the text goes on after `{"kind":..,"apiVersion":..,`: items of built-in lists leave these two out. 0: keep all.
    pub(crate) head: usize,
    /// The text as it was written, where it is read otherwise: the schema has changed since.
    pub(crate) written: Option<Bytes>,
    /// The texts of other views that watches have asked for, each made once.
    views: Mutex<Vec<(View, Text)>>,
}

/// A text, and where it goes on after `{"kind":..,"apiVersion":..,`; 0: it has no such head.
pub(crate) type Text = (Bytes, usize);

/// How an object looks other than it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// In another version of its kind.
    Version(String),
    /// Its metadata alone; in the older version of that format or not.
    Metadata { beta: bool },
}

/// How many texts of objects were made in this process.
static ENCODINGS: AtomicU64 = AtomicU64::new(0);

/// How many texts of objects this process has made so far, for benchmarks and tests: a change that many watch is to count once.
pub fn encodings() -> u64 {
    ENCODINGS.load(Ordering::Relaxed)
}

/// The part of a text that is an object's metadata.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

// The content may be a Secret: it never shows in a debug print.
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
        let text = encode(kind.custom.is_some(), value);
        Self::new(Some(kind), key, revision, value, text)
    }

    /// The text in the version of `kind`, and where it goes on after kind and apiVersion.
    ///
    /// The stored text itself where the versions agree, so that it is shared and not made again.
    pub(crate) fn render(&self, kind: &Kind) -> Text {
        if self.api_version == kind.api_version {
            return (self.bytes.clone(), self.head);
        }
        encode(kind.custom.is_some(), &convert::from_storage(kind, self.value()))
    }

    /// An object as it was kept; none if the text is not that of an object of this revision.
    ///
    /// Of a kind that is no longer served nothing can be selected by field.
    pub(crate) fn restore(kind: Option<&Kind>, revision: u64, text: Text) -> Option<Self> {
        let value: Value = serde_json::from_slice(&text.0).ok()?;
        let metadata = &value["metadata"];
        let part = |field: &str| metadata[field].as_str().unwrap_or_default();
        let key = Key::new(part("namespace"), part("name"));
        let sound = part("resourceVersion") == revision.to_string() && text.1 < text.0.len();
        sound.then(|| Self::new(kind, key, revision, &value, text))
    }

    fn new(kind: Option<&Kind>, key: Key, revision: u64, value: &Value, (bytes, head): Text) -> Self {
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
            labels: labels.unwrap_or_default().into(),
            fields: kind.map(|kind| selector::selectable(kind, value)).unwrap_or_default().into(),
            bytes,
            head,
            written: None,
            views: Mutex::default(),
        }
    }

    /// The text of a view: made by the first who asks, shared by those who follow.
    pub(crate) fn view(&self, view: &View, make: impl FnOnce() -> Text) -> Text {
        let mut views = self.views.lock();
        if let Some((_, text)) = views.iter().find(|(known, _)| known == view) {
            return text.clone();
        }
        let text = make();
        views.push((view.clone(), text.clone()));
        text
    }

    /// Lets go of the views: few still ask for them.
    pub(crate) fn forget_views(&self) {
        *self.views.lock() = Vec::new();
    }

    /// The text of the metadata alone, as `PartialObjectMetadata` of this version.
    pub(crate) fn metadata_text(&self, api_version: &str) -> Bytes {
        ENCODINGS.fetch_add(1, Ordering::Relaxed);
        // The text is our own encoding, which always has metadata.
        let parts = serde_json::from_slice::<Parts<'_>>(&self.bytes);
        let metadata = parts.as_ref().map_or("{}", |parts| parts.metadata.get());
        format!(r#"{{"apiVersion":"{api_version}","kind":"PartialObjectMetadata","metadata":{metadata}}}"#)
            .into()
    }

    /// The object as JSON again.
    pub(crate) fn value(&self) -> Value {
        #[cfg(test)]
        PARSED.with(|parsed| parsed.set(parsed.get() + self.bytes.len()));
        // The text is our own encoding, which always parses.
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
thread_local! {
    /// How many bytes of stored objects this thread has parsed.
    pub(crate) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The JSON text of an object, and where it goes on after kind and apiVersion.
pub(crate) fn encode(custom: bool, value: &Value) -> Text {
    ENCODINGS.fetch_add(1, Ordering::Relaxed);
    let mut out = Vec::with_capacity(512);
    let Value::Object(map) = value else {
        write_json(&mut out, value);
        return (exact(out), 0);
    };
    // Custom resources are printed in the order of their keys, as the real server does.
    if custom || !map.contains_key("kind") || !map.contains_key("apiVersion") {
        write_json(&mut out, value);
        return (exact(out), 0);
    }
    out.extend_from_slice(b"{\"kind\":");
    write_json(&mut out, &map["kind"]);
    out.extend_from_slice(b",\"apiVersion\":");
    write_json(&mut out, &map["apiVersion"]);
    let head = out.len() + 1;
    let rest = map.iter().filter(|(key, _)| !["kind", "apiVersion", "metadata"].contains(&key.as_str()));
    let metadata = map.get_key_value("metadata");
    for (key, value) in metadata.into_iter().chain(rest) {
        out.push(b',');
        write_json(&mut out, &Value::from(key.as_str()));
        out.push(b':');
        write_json(&mut out, value);
    }
    out.push(b'}');
    let head = if out.len() > head { head } else { 0 };
    (exact(out), head)
}

/// Without the spare room of the buffer: the text is kept for long.
fn exact(text: Vec<u8>) -> Bytes {
    text.into_boxed_slice().into()
}

fn write_json(out: &mut Vec<u8>, value: &Value) {
    // Writing a JSON value into memory cannot fail.
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
    }
}
