//! Helpers to default and to remove fields of JSON objects.

use serde_json::{Map, Value};

/// Sets a field that is absent or null.
pub(crate) fn fill(target: &mut Value, field: &str, default: Value) {
    if target.is_null() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(map) = target {
        let entry = map.entry(field).or_insert(Value::Null);
        if entry.is_null() {
            *entry = default;
        }
    }
}

/// Iterates over the elements of a list; empty for any other value.
pub(crate) fn each(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

/// Removes a null, which indexing an absent field for writing leaves behind.
pub(crate) fn remove_null(value: &mut Value, field: &str) {
    if let Value::Object(map) = value
        && map.get(field).is_some_and(Value::is_null)
    {
        map.remove(field);
    }
}

/// Copies a top-level field from `from`, or removes it if it is absent there.
pub(crate) fn copy_field(from: &Value, to: &mut Value, field: &str) {
    if let Value::Object(map) = to {
        copy(map, field, from.get(field));
    }
}

/// Sets a field to a copy of `value`, or removes it if there is none. A field that has this value is not copied again.
pub(crate) fn copy(map: &mut Map<String, Value>, field: &str, value: Option<&Value>) {
    match (map.get_mut(field), value) {
        (Some(present), Some(value)) if present == value => {}
        (Some(present), Some(value)) => present.clone_from(value),
        (None, Some(value)) => drop(map.insert(field.to_owned(), value.clone())),
        (_, None) => drop(map.remove(field)),
    }
}

/// Sets a field to a text. A field that has this text is left as it is.
pub(crate) fn set_text(value: &mut Value, field: &str, text: &str) {
    if value[field].as_str() != Some(text) {
        value[field] = text.into();
    }
}
