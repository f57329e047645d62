//! How does an object look in another version of its kind? Stored forms to requested forms, and back.

use serde_json::{Map, Value};

use crate::kinds::registry::Kind;
use crate::kinds::schema::Schema;
use crate::types;

/// The pairs of names under which core/v1 and events.k8s.io/v1 know the same field.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn is_new_event(kind: &Kind) -> bool {
    kind.is("events.k8s.io", "Event")
}

fn rename(value: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let Value::Object(map) = value else { return };
    let renamed: Map<String, Value> =
        pairs.filter_map(|(from, to)| map.remove(from).map(|value| (to.to_owned(), value))).collect();
    map.extend(renamed);
}

/// Prints zeros as the type does.
fn normalize_as(api_version: &str, value: &mut Value) {
    if let Some(id) = types::of_kind(api_version, "Event") {
        // Both types know the same fields under their two names: what fits one fits the other.
        let _fits = types::normalize::normalize(id, value);
    }
}

/// A stored object in the version of `kind`.
pub(crate) fn from_storage(kind: &Kind, mut value: Value) -> Value {
    if is_new_event(kind) {
        rename(&mut value, EVENT_FIELDS.iter().copied());
        normalize_as("events.k8s.io/v1", &mut value);
    }
    let schema = kind.custom.as_ref().map(|custom| &*custom.schema);
    relabel(&mut value, &kind.api_version, schema);
    value
}

/// An object in the version of `kind`, as it is stored.
pub(crate) fn to_storage(kind: &Kind, mut value: Value) -> Value {
    if is_new_event(kind) {
        rename(&mut value, EVENT_FIELDS.iter().map(|(old, new)| (*new, *old)));
        value["apiVersion"] = "v1".into();
        normalize_as("v1", &mut value);
    }
    if let Some(custom) = &kind.custom {
        relabel(&mut value, &custom.storage_version, custom.storage_schema.as_deref());
    }
    value
}

/// Makes an object one of another version: what the schema of that one does not know is lost.
fn relabel(value: &mut Value, version: &str, schema: Option<&Schema>) {
    if value["apiVersion"] != version
        && let Some(schema) = schema
    {
        schema.prune(value, false);
    }
    value["apiVersion"] = version.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::registry::Registry;

    #[test]
    fn an_event_has_two_views_and_loses_nothing() {
        let registry = Registry::new();
        let new = registry.find("events.k8s.io", "v1", "events").unwrap();
        let mut core = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"name": "p"}, "reason": "R"});
        normalize_as("v1", &mut core);
        let seen = from_storage(new, core.clone());
        assert_eq!(
            (&seen["apiVersion"], &seen["note"], &seen["regarding"], &seen["reason"]),
            (&json!("events.k8s.io/v1"), &json!("m"), &json!({"name": "p"}), &json!("R"))
        );
        assert_eq!(to_storage(new, seen), core);
    }
}
