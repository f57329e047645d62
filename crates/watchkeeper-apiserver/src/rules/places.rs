//! Where do rules apply in an object, and to what? In order, so that what is told does not depend on chance.

use kube_cel::{CompiledSchema, ValidationError};
use serde_json::Value;

/// A rule at a part of an object.
pub(super) struct Place<'a> {
    /// What the rule is about.
    pub(super) value: &'a Value,
    /// Whether the part is as it was before a change, and the rule is not about changes: a rule may have come since.
    pub(super) tolerated: bool,
    field: String,
    rule: &'a str,
}

impl Place<'_> {
    /// Whether the error was made here.
    pub(super) fn is_of(&self, error: &ValidationError) -> bool {
        self.field == error.field_path && self.rule == error.rule
    }
}

/// All rules of a schema, at the parts of an object to which they apply.
pub(super) fn of<'a>(
    schema: &Value,
    compiled: &'a CompiledSchema,
    value: &'a Value,
    old: Option<&Value>,
) -> Vec<Place<'a>> {
    let mut places = Vec::new();
    walk(schema, compiled, (value, old, false), "", &mut places);
    places
}

/// `same`: whether a part that has this one in it is as it was.
fn walk<'a>(
    schema: &Value,
    compiled: &'a CompiledSchema,
    (value, old, same): (&'a Value, Option<&Value>, bool),
    path: &str,
    places: &mut Vec<Place<'a>>,
) {
    let same = same || old == Some(value);
    for compiled in compiled.validations.iter().flatten() {
        let field = match compiled.rule.field_path.as_deref() {
            Some(inside) => join(path, inside.trim_start_matches('.')),
            None => path.to_owned(),
        };
        let tolerated = same && !compiled.is_transition_rule;
        places.push(Place { value, tolerated, field, rule: &compiled.rule.rule });
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let (schema, compiled) = match compiled.properties.get(name) {
            Some(property) => (&schema["properties"][name], property),
            None => match &compiled.additional_properties {
                Some(additional) => (&schema["additionalProperties"], &**additional),
                None => continue,
            },
        };
        let old = old.and_then(|old| old.get(name));
        walk(schema, compiled, (value, old, same), &join(path, name), places);
    }
    if let (Some(items), Some(list)) = (&compiled.items, value.as_array()) {
        for (at, value) in list.iter().enumerate() {
            let old = old.and_then(|old| twin(schema, value, old));
            walk(&schema["items"], items, (value, old, same), &format!("{path}[{at}]"), places);
        }
    }
}

/// The element of a list that was this one before, where elements have keys.
fn twin<'a>(schema: &Value, value: &Value, old: &'a Value) -> Option<&'a Value> {
    let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
    let equal =
        |other: &Value| keys.iter().filter_map(Value::as_str).all(|key| other.get(key) == value.get(key));
    old.as_array()?.iter().find(|other| equal(other))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
