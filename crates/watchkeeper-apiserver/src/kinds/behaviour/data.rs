//! The `data` of ConfigMaps and Secrets: its keys, its size, and `immutable`.

use serde_json::Value;

use crate::failure::Cause;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

const LIMIT: usize = 1024 * 1024;

/// Reports keys that are not allowed.
pub(super) fn validate_keys(object: &Value, causes: &mut Vec<Cause>) {
    for field in ["data", "binaryData"] {
        for key in object[field].as_object().into_iter().flatten().map(|(key, _)| key) {
            let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
            if key.is_empty() || !key.chars().all(fits) {
                causes.push(Cause::invalid(&format!("{field}[{key}]"), &key.as_str().into(), KEY));
            }
        }
    }
}

/// Reports at `field` that so many bytes are too many.
pub(super) fn validate_size(size: usize, field: &str, causes: &mut Vec<Cause>) {
    if size > LIMIT {
        causes.push(Cause::too_long(field, LIMIT, "bytes"));
    }
}

/// The texts of a map.
pub(super) fn texts(map: &Value) -> impl Iterator<Item = &str> {
    map.as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str())
}

/// Returns the decoded length of a base64 text.
pub(super) fn decoded_length(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// Validates that an immutable object does not change from `old` to `new`.
pub(super) fn validate_immutable(old: &Value, new: &Value) -> Vec<Cause> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let problem = "field is immutable when `immutable` is set";
    let fields = ["immutable", "data", "binaryData"].into_iter();
    let changed = fields.filter(|field| old.get(field) != new.get(field));
    changed.map(|field| Cause::forbidden(field, problem)).collect()
}
