//! Limits on the size of an object: of etcd, of defaults, of its depth and of the paths of its fields.

use std::io;

use serde_json::Value;

use crate::codec::json;
use crate::failure::{Failure, Result};
use crate::kinds::kind::Kind;
use crate::kinds::merge_type::MergeType;
use crate::types::ValueType;

/// The size limit of etcd requests.
const ETCD_LIMIT: usize = 3 << 19;

/// The size limit of messages in etcd's client.
const GRPC_LIMIT: usize = 2 << 20;

/// The size of a request and of a message without the object and its key, which occurs twice.
const ETCD_OVERHEAD: usize = 55;
const GRPC_OVERHEAD: usize = 26;

/// The maximum size that defaulting may add to an object. It exceeds what can be stored.
pub(crate) const DEFAULTS_LIMIT: usize = 2 * GRPC_LIMIT;

/// The maximum total length of all field paths of an object. Validation builds many of them.
const PATHS_LIMIT: usize = 256 << 20;

/// Refuses an object that the real server could not store at `place`, with the real server's message.
pub(crate) fn check(kind: &Kind, place: impl FnOnce() -> String, value: &Value) -> Result<()> {
    // Most objects are far below the limit, and the key consists of names that the object contains.
    if at_most(value) <= ETCD_LIMIT / 2 {
        return Ok(());
    }
    let version = value["metadata"]["resourceVersion"].as_str().map_or(0, |version| version.len() + 21);
    let object = if kind.custom.is_some() { text(value) } else { encoded(kind.merge_type(), value) };
    let size = object.saturating_sub(version) + 2 * place().len();
    if size + GRPC_OVERHEAD > GRPC_LIMIT {
        return Err(too_large(size + GRPC_OVERHEAD));
    }
    if size + ETCD_OVERHEAD > ETCD_LIMIT {
        return Err(Failure::internal("etcdserver: request is too large"));
    }
    Ok(())
}

/// The failure of an object that exceeds a message.
pub(crate) fn too_large(size: usize) -> Box<Failure> {
    Failure::internal(format!(
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {GRPC_LIMIT})"
    ))
}

/// Returns the length of a value as JSON.
pub(crate) fn text(value: &Value) -> usize {
    let mut length = Length(0);
    // Counting bytes cannot fail.
    let _infallible = serde_json::to_writer(&mut length, value);
    length.0
}

struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Estimates the length of a value of a built-in kind in protobuf, the real server's storage format: field names are
/// numbers and strings are not escaped.
fn encoded(merge_type: MergeType<'_>, value: &Value) -> usize {
    match (merge_type, value) {
        (
            MergeType::Typed(ValueType::Fields | ValueType::Raw | ValueType::Json, _)
            | MergeType::Any
            | MergeType::Whole,
            value,
        ) => text(value),
        (MergeType::Typed(ValueType::Bytes, _), Value::String(text)) => text.len() / 4 * 3,
        (_, Value::String(text)) => text.len(),
        (_, Value::Null) => 0,
        (_, Value::Bool(_)) => 1,
        (_, Value::Number(_)) => 2,
        (_, Value::Array(list)) => list.iter().map(|element| 2 + encoded(merge_type.item(), element)).sum(),
        (_, Value::Object(map)) => {
            let fields = map.iter().map(|(name, value)| match merge_type.field(name) {
                Some((inner, true)) => 2 + encoded(inner, value),
                Some((inner, false)) => name.len() + 6 + encoded(inner, value),
                None => name.len() + 6 + text(value),
            });
            fields.sum()
        }
    }
}

/// Returns an upper bound of the length of a value in either format. It needs no types, so it costs a fraction of the
/// exact length. A byte of a string takes at most six when it is escaped.
fn at_most(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 32,
        Value::String(text) => 6 * text.len() + 2,
        Value::Array(list) => list.iter().fold(2, |size, element| size + 2 + at_most(element)),
        Value::Object(map) => {
            map.iter().fold(2, |size, (name, value)| size + 6 * name.len() + 8 + at_most(value))
        }
    }
}

/// Refuses an object that is too deep, or whose field paths are too long, to be processed.
pub(crate) fn check_shape(value: &Value) -> Result<(), String> {
    if json::is_too_deep(value) {
        return Err(format!("exceeded max depth of {}", json::DEPTH_LIMIT));
    }
    if has_long_paths(value) {
        return Err("the names of its fields are too long".to_owned());
    }
    Ok(())
}

/// Returns whether the paths of an object exceed the limit.
pub(crate) fn has_long_paths(value: &Value) -> bool {
    let mut room = PATHS_LIMIT;
    !takes_paths(value, 0, &mut room)
}

/// Subtracts the paths below a value from `room`; returns whether they fit.
fn takes_paths(value: &Value, path: usize, room: &mut usize) -> bool {
    let mut step = |inner: &Value, length: usize| {
        let path = path + length;
        room.checked_sub(path).is_some_and(|left| {
            *room = left;
            takes_paths(inner, path, room)
        })
    };
    match value {
        Value::Object(map) => map.iter().all(|(name, inner)| step(inner, name.len() + 1)),
        Value::Array(list) => list.iter().all(|inner| step(inner, 8)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::registry::Registry;

    #[test]
    fn names_of_fields_and_escapes_do_not_count_in_a_built_in_kind() {
        let registry = Registry::new();
        let maps = registry.find("", "v1", "configmaps").unwrap();
        let map = |size: usize| json!({"metadata": {"name": "a"}, "data": {"k": "\n".repeat(size)}});
        let place = || "/registry/configmaps/default/a".to_owned();
        assert!(check(maps, place, &map(1 << 20)).is_ok());
        let refused = check(maps, place, &map(ETCD_LIMIT)).unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (500, "etcdserver: request is too large"));
    }

    #[test]
    fn the_upper_bound_is_not_below_the_size_in_either_format() {
        let registry = Registry::new();
        let pods = registry.find("", "v1", "pods").unwrap();
        let values = [
            json!({}),
            json!({"": null}),
            json!({"\u{1}": ["\u{1}", "", null, true, false, {}, [], [[]]]}),
            json!([u64::MAX, i64::MIN, f64::MIN, f64::MIN_POSITIVE, 0, -1.5e-300]),
            json!({"metadata": {"labels": {"": "\n"}, "managedFields": [{"fieldsV1": {"f:\"a\"": {}}}]}}),
            json!({"spec": {"containers": [{"name": "", "ports": [{"containerPort": 1}], "env": []}], "none": 1}}),
        ];
        for value in values {
            let bound = at_most(&value);
            assert!(text(&value) <= bound && encoded(pods.merge_type(), &value) <= bound, "{value}");
        }
    }

    #[test]
    fn a_long_name_with_many_fields_in_it_has_paths_that_are_too_long() {
        let fields = |name: usize, count: usize| {
            let inner: serde_json::Map<_, _> = (0..count).map(|n| (n.to_string(), json!(n))).collect();
            json!({"a".repeat(name): inner})
        };
        assert!(!has_long_paths(&fields(1000, 100_000)));
        assert!(has_long_paths(&fields(1_000_000, 1_000)));
    }
}
