//! Equality of custom resource definitions' parts, as a server keeps them: what is empty is left out, and numbers have one form.

use serde_json::{Map, Value};

/// Members of a schema whose values are any JSON.
const RAW: [&str; 3] = ["default", "enum", "example"];

/// A schema without what a server leaves out of it.
pub(super) fn normal_schema(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let normal = members.iter().filter_map(|(key, value)| {
        let value = match (key.as_str(), value) {
            (key, value) if RAW.contains(&key) => value.clone(),
            ("properties" | "patternProperties" | "definitions", Value::Object(schemas)) => {
                let schemas = schemas.iter().map(|(name, schema)| (name.clone(), normal_schema(schema)));
                Some(schemas.collect::<Map<_, _>>())
                    .filter(|schemas| !schemas.is_empty())
                    .map(Value::Object)?
            }
            ("additionalProperties" | "additionalItems", value) => normal_schema(value),
            ("items" | "not", Value::Object(_)) => normal_schema(value),
            ("items" | "allOf" | "anyOf" | "oneOf", Value::Array(schemas)) if !schemas.is_empty() => {
                schemas.iter().map(normal_schema).collect()
            }
            ("required", Value::Array(fields)) if !fields.is_empty() => {
                let mut fields = fields.clone();
                fields.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                Value::Array(fields)
            }
            (_, Value::Null | Value::Bool(false)) => return None,
            (_, Value::String(text)) if text.is_empty() => return None,
            (_, Value::Array(list)) if list.is_empty() => return None,
            _ => value.clone(),
        };
        Some((key.clone(), value))
    });
    Value::Object(normal.collect())
}

/// Whether two values outside of a schema are the same to a server: what is empty there is as good as absent.
pub(super) fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.filter(|a| !is_empty(a)), b.filter(|b| !is_empty(b))) {
        (None, None) => true,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.keys().chain(b.keys()).all(|key| same(a.get(key), b.get(key)))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b)))
        }
        (Some(a), Some(b)) => equal(a, b),
        _ => false,
    }
}

/// An object without members means something: `subresources.status` is one.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Equality of JSON in which 1 and 1.0 are the same number.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_leaves_out_makes_no_difference() {
        let written = json!({
            "type": "object", "description": "", "nullable": false, "required": [], "patternProperties": {},
            "properties": {
                "a": {"type": "integer", "minimum": 0.0, "default": 0, "enum": [], "x": null},
                "properties": {},
                "list": {"type": "array", "items": {"type": "string", "title": ""}, "required": ["b", "a"]},
                "map": {"additionalProperties": {"format": "", "type": "string"}},
                "either": {"anyOf": [{"title": ""}, {"type": "string"}], "allOf": [], "not": {"title": ""}},
            },
        });
        let kept = json!({
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": 0, "default": 0, "enum": []},
                "properties": {},
                "list": {"type": "array", "items": {"type": "string"}, "required": ["a", "b"]},
                "map": {"additionalProperties": {"type": "string"}},
                "either": {"anyOf": [{}, {"type": "string"}], "not": {}},
            },
        });
        assert!(equal(&normal_schema(&written), &kept), "{}", normal_schema(&written));
    }

    #[test]
    fn what_means_something_makes_a_difference() {
        let schema = |part: Value| normal_schema(&json!({"properties": {"a": part}}));
        let parts = [
            json!({}),
            json!({"default": false}),
            json!({"default": ""}),
            json!({"minimum": 0}),
            json!({"maxLength": 0}),
            json!({"nullable": true}),
            json!({"additionalProperties": false}),
            json!({"additionalProperties": {}}),
            json!({"properties": {"b": {}}}),
        ];
        for (at, a) in parts.iter().enumerate() {
            assert!(equal(&schema(a.clone()), &schema(a.clone())));
            assert!(parts[at + 1..].iter().all(|b| !equal(&schema(a.clone()), &schema(b.clone()))), "{a}");
        }
    }

    #[test]
    fn outside_of_schemas_empty_is_absent_and_an_empty_object_is_not() {
        for (a, b) in [
            (json!(null), json!([])),
            (json!({"priority": 0, "name": "a"}), json!({"name": "a"})),
            (json!([{"format": ""}]), json!([{}])),
            (json!({"a": 1.0}), json!({"a": 1})),
        ] {
            assert!(same(Some(&a), Some(&b)), "{a} {b}");
            assert!(same(Some(&b), Some(&a)), "{a} {b}");
        }
        assert!(same(None, Some(&json!(false))) && same(None, None));
        for (a, b) in [
            (json!({"status": {}}), json!({})),
            (json!([1]), json!([1, 2])),
            (json!([1, 2]), json!([2, 1])),
            (json!([1, 2]), json!([1, 3])),
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3})),
            (json!("a"), json!("b")),
        ] {
            assert!(!same(Some(&a), Some(&b)), "{a} {b}");
        }
        assert!(!same(None, Some(&json!({}))));
        assert!(!equal(&json!({"a": 1}), &json!({"b": 1})) && !equal(&json!([1]), &json!([])));
    }
}
