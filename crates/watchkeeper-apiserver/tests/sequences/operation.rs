//! One operation: a request with placeholders that each server fills with its own versions, uids and tokens.

use std::fmt;

use serde_json::Value;

/// Stands for the namespace of a sequence in paths and bodies.
pub(crate) const SPACE: &str = "wkspace";

/// A placeholder: `<version widgets/o1>` is the newest version seen of that object, `<stale ..>` the one before it,
/// `<uid ..>` its uid, `<continue widgets>` the newest continue token of that list, `<past 3>` a version of this
/// namespace, counted from the newest, and `<first 0>` the version before the sequence.
pub(crate) const GAP: &str = r"<(version|stale|uid|continue|past|first) ([^>]*)>";

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    /// Null if the request has no body.
    pub(crate) body: Value,
    /// A watch stays open and is read at the end of the sequence.
    pub(crate) watch: bool,
}

impl Operation {
    pub(crate) fn new(method: &'static str, path: String, body: Value) -> Self {
        Self { method, path, content_type: "application/json", body, watch: false }
    }

    pub(crate) fn get(path: String) -> Self {
        Self::new("GET", path, Value::Null)
    }

    pub(crate) fn patch(path: String, content_type: &'static str, body: Value) -> Self {
        Self { content_type, ..Self::new("PATCH", path, body) }
    }

    pub(crate) fn watch(path: String) -> Self {
        Self { watch: true, ..Self::get(path) }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        if !self.body.is_null() {
            write!(f, " {} {}", self.content_type, self.body)?;
        }
        Ok(())
    }
}
