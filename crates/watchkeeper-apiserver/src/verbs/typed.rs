//! Validation of applied configurations: unknown fields, wrong types and duplicate elements are errors.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::kinds::merge_type::{MergeType, Treatment};
use crate::types::ValueType;

/// Returns the problems of a value, each with its path.
pub(crate) fn problems(merge_type: MergeType<'_>, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    visit(merge_type, value, "", &mut problems);
    problems
}

fn visit(merge_type: MergeType<'_>, value: &Value, path: &str, problems: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) if has_fields(merge_type, map) => {
            for (name, value) in map {
                match merge_type.field(name) {
                    Some((inner, _)) => visit(inner, value, &format!("{path}.{name}"), problems),
                    None => problems.push(format!("{path}.{name}: field not declared in schema")),
                }
            }
        }
        Value::Array(list) => elements(merge_type, list, path, problems),
        scalar => problems.extend(unexpected(merge_type, scalar).map(|problem| format!("{path}: {problem}"))),
    }
}

fn elements(merge_type: MergeType<'_>, list: &[Value], path: &str, problems: &mut Vec<String>) {
    let treatment = merge_type.treatment(&Value::Null);
    let mut seen = BTreeSet::new();
    for (at, element) in list.iter().enumerate() {
        let step = match (&treatment, merge_type.step(&treatment, element)) {
            (Treatment::Keys(keys), None) if keys.iter().all(|key| element.get(key).is_none()) => {
                let keys: Vec<_> = keys.iter().map(|key| Value::from(*key).to_string()).collect();
                problems.push(format!(
                    "{path}: element {at}: associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ));
                continue;
            }
            (Treatment::Keys(_) | Treatment::Set, Some(step)) => shown(&step),
            _ => String::new(),
        };
        if !step.is_empty() && seen.contains(&step) {
            problems.push(format!("{path}: duplicate entries for key {step}"));
        }
        visit(merge_type.item(), element, &format!("{path}{step}"), problems);
        seen.insert(step);
    }
}

/// Formats an element for a path: `[name="c"]`, or `[="x"]` in a set.
fn shown(step: &str) -> String {
    if let Some(value) = step.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys: Map<String, Value> =
        step.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok()).unwrap_or_default();
    let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("[{}]", keys.join(","))
}

/// Returns the problem with the type of a scalar.
fn unexpected(merge_type: MergeType<'_>, value: &Value) -> Option<String> {
    let wanted = match merge_type {
        MergeType::Typed(
            ValueType::String | ValueType::Bytes | ValueType::Time | ValueType::MicroTime,
            _,
        ) => "string",
        MergeType::Typed(ValueType::Int32 | ValueType::Int64 | ValueType::Float, _) => "integer",
        MergeType::Typed(ValueType::Bool, _) => "boolean",
        MergeType::Node(node) => node.kind(),
        _ => return None,
    };
    match (wanted, value) {
        ("string", Value::Number(_) | Value::Bool(_)) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{value}}}"))
        }
        ("integer" | "number", Value::String(_)) => {
            Some("expected numeric (int or float), got string".to_owned())
        }
        ("integer" | "number", Value::Bool(_)) => {
            Some("expected numeric (int or float), got bool".to_owned())
        }
        ("boolean", Value::String(_) | Value::Number(_)) => {
            Some(format!("expected boolean, got &{{{}}}", value.as_str().unwrap_or(&value.to_string())))
        }
        _ => None,
    }
}

/// Returns whether the merge type defines the fields of the map.
fn has_fields(merge_type: MergeType<'_>, map: &Map<String, Value>) -> bool {
    match merge_type {
        MergeType::Typed(ValueType::Message(_) | ValueType::Map(_), _)
        | MergeType::Kind(_)
        | MergeType::Custom(_) => true,
        MergeType::Node(_) => !map.is_empty(),
        _ => false,
    }
}
