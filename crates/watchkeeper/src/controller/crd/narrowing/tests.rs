use serde_json::json;

use super::*;
use crate::controller::crd::schema::normal_schema;

/// What is found between two schemas of the field `size`.
fn found(old: &Value, new: &Value) -> Option<String> {
    let root = |schema: &Value| normal_schema(&json!({"type": "object", "properties": {"size": schema}}));
    let found = narrowing(&root(old), &root(new), "root")?;
    assert_eq!(found.path, "root.properties.size");
    Some(found.what)
}

/// Asserts that `new` allows less than `old`, and that nothing is lost on the way back.
fn narrower(old: Value, new: Value, what: &str) {
    assert_eq!(found(&old, &new).as_deref(), Some(what), "{old} {new}");
    wider(new, old);
}

fn wider(old: Value, new: Value) {
    assert_eq!(found(&old, &new), None, "{old} {new}");
    assert!([old, new].iter().all(|same| found(same, same).is_none()));
}

/// Asserts that each of both allows something that the other does not.
fn other(a: Value, b: Value) {
    assert!(found(&a, &b).is_some() && found(&b, &a).is_some(), "{a} {b}");
    assert!([a, b].iter().all(|same| found(same, same).is_none()));
}

#[test]
fn another_type_is_narrower_unless_it_has_all_values_of_the_old_one() {
    narrower(json!({"type": "number"}), json!({"type": "integer"}), "the type number has become integer");
    let either = json!({"x-kubernetes-int-or-string": true});
    narrower(either.clone(), json!({"type": "integer"}), "the type integer or string has become integer");
    narrower(either.clone(), json!({"type": "string"}), "the type integer or string has become string");
    other(either, json!({"type": "boolean"}));
    let any = json!({"x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(found(&any, &json!({"type": "object"})).unwrap(), "the type any has become object");
    other(json!({"type": "string"}), json!({"type": "integer"}));
    narrower(
        json!({"type": "string", "nullable": true}),
        json!({"type": "string"}),
        "null is no longer allowed",
    );
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
    narrower(json!({"type": "object"}), embedded, "only whole resources are allowed now");
}

#[test]
fn another_format_is_narrower_unless_it_has_all_values_of_the_old_one() {
    let format = |format: &str| json!({"type": "integer", "format": format});
    narrower(format("int64"), format("int32"), "the format int64 has become int32");
    narrower(format("uint32"), format("uint8"), "the format uint32 has become uint8");
    narrower(format("int64"), format("uint32"), "the format int64 has become uint32");
    narrower(format(""), format("int32"), "the format must be int32 now");
    narrower(format("double"), format("float"), "the format double has become float");
    other(format("int64"), format("uint64"));
    other(format("date"), format("date-time"));
}

#[test]
fn lost_values_are_narrower() {
    let values = |values: Value| json!({"type": "string", "enum": values});
    narrower(
        values(json!(["a", "b", "c"])),
        values(json!(["b"])),
        r#"the values "a", "c" are no longer allowed"#,
    );
    narrower(json!({"type": "string"}), values(json!(["a"])), "only some values are allowed now");
    wider(values(json!([1])), values(json!([2, 1.0])));
    let pattern = |pattern: &str| json!({"type": "string", "pattern": pattern});
    narrower(pattern(""), pattern("a"), r#"there is a pattern now: "a""#);
    other(pattern("a"), pattern("b"));
    other(json!({"multipleOf": 2}), json!({"multipleOf": 3}));
    wider(json!({"multipleOf": 2}), json!({"multipleOf": 2.0}));
}

#[test]
fn tighter_bounds_are_narrower() {
    let none = json!({"type": "integer"});
    narrower(none.clone(), json!({"type": "integer", "minimum": -5}), "the minimum is -5 now");
    narrower(none.clone(), json!({"type": "integer", "maximum": 5}), "the maximum is 5 now");
    narrower(json!({"minimum": 1}), json!({"minimum": 2}), "the minimum is 2 now");
    narrower(json!({"maximum": 2.5}), json!({"maximum": 2}), "the maximum is 2 now");
    let exclusive = json!({"minimum": 1, "exclusiveMinimum": true});
    narrower(json!({"minimum": 1}), exclusive.clone(), "the minimum is 1 exclusively now");
    narrower(exclusive, json!({"minimum": 2}), "the minimum is 2 now");
    let exclusive = json!({"maximum": 1, "exclusiveMaximum": true});
    narrower(json!({"maximum": 1}), exclusive, "the maximum is 1 exclusively now");
    for (least, most) in SIZES {
        narrower(none.clone(), json!({"type": "integer", least: 1}), &format!("{least} is 1 now"));
        narrower(json!({least: 1}), json!({least: 2}), &format!("{least} is 2 now"));
        wider(json!({}), json!({least: 0}));
        narrower(json!({}), json!({most: 9}), &format!("{most} is 9 now"));
        narrower(json!({most: 9}), json!({most: 8}), &format!("{most} is 8 now"));
    }
}

#[test]
fn fields_that_are_gone_are_named() {
    let schema = |properties: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let (old, new) = (schema(json!({"a": {}, "size": {}})), schema(json!({"a": {}, "new": {}})));
    let path = "root.properties.spec.properties.size".to_owned();
    assert_eq!(narrowing(&old, &new, "root"), Some(Narrowing { path, what: "the field is gone".to_owned() }));
    for kept in [
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"additionalProperties": true}),
        json!({"additionalProperties": {}}),
    ] {
        // Without a type, it may be anything.
        assert_eq!(narrowing(&old["properties"]["spec"], &kept, "root"), None, "{kept}");
    }
    let strings = json!({"additionalProperties": {"type": "string"}});
    let integer = json!({"properties": {"size": {"type": "integer"}}});
    assert_eq!(narrowing(&integer, &strings, "root").unwrap().path, "root.properties.size");
    let none = json!({"additionalProperties": false});
    assert_eq!(narrowing(&integer, &none, "root").unwrap().what, "the field is gone");
}

#[test]
fn what_every_object_has_may_be_left_out_at_the_root_only() {
    let old = json!({"properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "spec": {}}});
    assert_eq!(narrowing(&old, &json!({"properties": {"spec": {}}}), "root"), None);
    let nested = |schema: &Value| json!({"properties": {"a": schema}});
    let found = narrowing(&nested(&old), &nested(&json!({"properties": {"spec": {}}})), "root").unwrap();
    assert_eq!(found.path, "root.properties.a.properties.apiVersion");
}

#[test]
fn unknown_and_additional_fields_stay_allowed() {
    let preserving = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    narrower(preserving.clone(), json!({"type": "object"}), "unknown fields are no longer preserved");
    let map = |values: Value| json!({"type": "object", "additionalProperties": values});
    narrower(map(json!(true)), json!({"type": "object"}), "additional properties are no longer allowed");
    wider(map(json!({"type": "string"})), map(json!(true)));
    wider(map(json!({"type": "string"})), preserving);
    wider(map(json!(false)), json!({"type": "object"}));
    let root = |values: Value| normal_schema(&map(values));
    let found = |old: Value, new: Value| narrowing(&root(old), &root(new), "root").map(|found| found.path);
    let path = Some("root.additionalProperties".to_owned());
    assert_eq!(found(json!({"type": "string"}), json!({"type": "integer"})), path);
    assert_eq!(found(json!(true), json!({"type": "integer"})), path);
    let lists = |items: Value| json!({"type": "array", "items": items});
    let found = narrowing(&lists(json!({"type": "string"})), &lists(json!({"type": "integer"})), "root");
    assert_eq!(found.unwrap().path, "root.items");
}

#[test]
fn a_new_required_field_needs_a_default() {
    let schema = |required: &[&str], size: Value| json!({"required": required, "properties": {"size": size}});
    let found = |old: &Value, new: &Value| narrowing(old, new, "root").map(|found| (found.path, found.what));
    let refused = |what: &str| Some(("root.properties.size".to_owned(), what.to_owned()));
    let (free, required) = (schema(&[], json!({})), schema(&["size"], json!({})));
    let with_default = schema(&["size"], json!({"default": 1}));
    assert_eq!(found(&free, &required), refused("the field is required now and has no default"));
    assert_eq!(found(&free, &with_default), None);
    assert_eq!(found(&required, &required), None);
    assert_eq!(found(&with_default, &required), refused("the required field has lost its default"));
    assert_eq!(found(&with_default, &free), None);
}

#[test]
fn conditions_that_cannot_be_judged_may_only_be_lifted() {
    let rule = |rules: &[&str]| {
        let rules: Vec<_> = rules.iter().map(|rule| json!({"rule": rule, "message": rule})).collect();
        json!({"x-kubernetes-validations": rules})
    };
    narrower(rule(&["a"]), rule(&["a", "b"]), "there is a new rule: b");
    other(rule(&["a"]), rule(&["b"]));
    for key in ["anyOf", "oneOf"] {
        let (one, two) =
            (json!({key: [{"required": ["a"]}]}), json!({key: [{"required": ["b"]}, {"required": ["a"]}]}));
        narrower(two, one.clone(), &format!("{key} has other alternatives"));
        narrower(json!({}), one, &format!("{key} has other alternatives"));
    }
    let (one, two) = (json!({"allOf": [{"minimum": 1}]}), json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}));
    narrower(one.clone(), two, "allOf has other conditions");
    narrower(json!({}), one, "allOf has other conditions");
    narrower(json!({}), json!({"not": {"minimum": 1}}), "not has another condition");
    other(json!({"not": {"minimum": 2}}), json!({"not": {"minimum": 1}}));
    let list = |kind: &str| json!({"type": "array", "x-kubernetes-list-type": kind});
    narrower(list("atomic"), list("set"), "the list is a set of other elements now");
    narrower(list(""), list("map"), "the list is a map of other elements now");
    let keys = |key: &str| json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]});
    other(keys("a"), keys("b"));
    narrower(json!({}), json!({"uniqueItems": true}), "elements may not repeat now");
}
