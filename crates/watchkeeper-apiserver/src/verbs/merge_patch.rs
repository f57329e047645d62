//! JSON merge patch (RFC 7386) with the semantics of the real server's library.

use serde_json::Value;

/// Merges `patch` into `target`: a null removes a field, objects merge, other values replace.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge(target.entry(name.as_str()).or_insert(Value::Null), value);
                }
            }
        }
        // A list that replaces an object keeps its nulls. Elsewhere nulls are dropped.
        (target @ Value::Object(_), patch) => target.clone_from(patch),
        (target, patch) => {
            target.clone_from(patch);
            drop_nulls(target);
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_remove_objects_merge_and_the_rest_replaces() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": 1}), json!({"a": null}), json!({"b": 1})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2, "c": null}}), json!({"a": {"b": 2}})),
            (json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
            (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
            (json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
            (json!({"a": {"b": 1}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, result, "{target} with {patch}");
        }
    }
}
