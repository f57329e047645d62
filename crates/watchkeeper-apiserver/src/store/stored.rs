//! What is one version of one object? Its JSON text, made once, and what is asked of it most.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;

use crate::registry::Kind;
use crate::selector;

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

    /// An object as it was kept; none if the text is not that of an object of this revision.
    ///
    /// Of a kind that is no longer served nothing can be selected by field.
    pub(crate) fn restore(kind: Option<&Kind>, revision: u64, text: (Bytes, usize)) -> Option<Self> {
        let value: Value = serde_json::from_slice(&text.0).ok()?;
        let metadata = &value["metadata"];
        let part = |field: &str| metadata[field].as_str().unwrap_or_default();
        let key = Key::new(part("namespace"), part("name"));
        let sound = part("resourceVersion") == revision.to_string() && text.1 < text.0.len();
        sound.then(|| Self::new(kind, key, revision, &value, text))
    }

    fn new(
        kind: Option<&Kind>,
        key: Key,
        revision: u64,
        value: &Value,
        (bytes, head): (Bytes, usize),
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
            labels: labels.unwrap_or_default().into(),
            fields: kind.map(|kind| selector::selectable(kind, value)).unwrap_or_default().into(),
            bytes,
            head,
        }
    }

    /// The object as JSON again.
    pub(crate) fn value(&self) -> Value {
        // The text is our own encoding, which always parses.
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// The JSON text of an object, and where it goes on after kind and apiVersion.
pub(crate) fn encode(custom: bool, value: &Value) -> (Bytes, usize) {
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
