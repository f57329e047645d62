//! Tests of field managers.

use serde_json::json;

use super::*;

fn merge_type(name: &str) -> MergeType<'static> {
    MergeType::Kind(crate::types::named(name).unwrap())
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "v1", subresource: "", now: "t", ignored: &["f:status"] }
}

fn entries(managers: &Managers) -> Value {
    let mut value = json!({});
    managers.clone().write(&mut value);
    let list = value["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    list.iter().map(|entry| json!([entry["manager"], entry["operation"], entry["fieldsV1"]])).collect()
}

#[test]
fn a_write_takes_what_it_changes_from_all_others() {
    let mut managers = Managers::default();
    let first = json!({"metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}});
    managers.update(merge_type("core/v1.ConfigMap"), &json!({"metadata": {}}), &first, &writer("m1"));
    assert_eq!(entries(&managers), json!([["m1", "Update", {"f:data": {".": {}, "f:a": {}, "f:b": {}}}]]));
    let second = json!({"metadata": {"name": "x"}, "data": {"a": "9"}});
    managers.update(merge_type("core/v1.ConfigMap"), &first, &second, &writer("m2"));
    assert_eq!(
        entries(&managers),
        json!([["m1", "Update", {"f:data": {}}], ["m2", "Update", {"f:data": {"f:a": {}}}]])
    );
}

#[test]
fn a_write_that_changes_no_owner_is_recorded_without_decoding_the_sets() {
    let registry = crate::kinds::registry::Registry::new();
    let kind = registry.find("", "v1", "configmaps").unwrap();
    let data = |data: Value| json!({"metadata": {"name": "x"}, "data": data});
    let mut object = data(json!({"a": "0"}));
    track(kind, kind.blank(), &mut object, Some(Managers::default()), &writer("m1"));
    let mut renewed = Vec::new();
    for (at, (manager, change)) in [
        ("m1", json!({"a": "1"})),
        ("m2", json!({"a": "1", "b": "1"})),
        ("m2", json!({"a": "1", "b": "2"})),
        // Its entry is no longer the last one.
        ("m1", json!({"a": "2", "b": "2"})),
        ("m1", json!({"a": "3", "b": "2"})),
        ("m1", json!({"a": "3", "b": "3"})),
        ("m1", json!({"a": "3", "b": "3"})),
        ("m1", json!({"a": "4"})),
    ]
    .into_iter()
    .enumerate()
    {
        let now = format!("t{at}");
        let writer = Writer { now: &now, ..writer(manager) };
        let (mut quick, mut slow) = (data(change.clone()), data(change));
        let changes = Changes::of(kind.merge_type(), &object, &quick, &writer);
        renewed.push(changes.renew(&object, &mut quick.clone(), &writer));
        track(kind, &object, &mut quick, None, &writer);
        track(kind, &object, &mut slow, Some(Managers::read(&object)), &writer);
        assert_eq!(quick, slow);
        object = quick;
    }
    assert_eq!(renewed, [true, false, true, false, true, false, true, false]);
}

#[test]
fn of_two_entries_of_one_manager_a_write_keeps_one() {
    let registry = crate::kinds::registry::Registry::new();
    let kind = registry.find("", "v1", "configmaps").unwrap();
    let entry = |field: &str, time: Value| {
        let writer = writer("m1");
        json!({
            "manager": "m1", "operation": "Update", "apiVersion": writer.api_version, "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}},
        })
    };
    // As a scale to the same number leaves them.
    let entries = json!([entry("f:a", Value::Null), entry("f:b", json!("t0"))]);
    let before = json!({"metadata": {"name": "x", "managedFields": entries}, "data": {"a": "0", "b": "0"}});
    for b in ["0", "1"] {
        let writer = Writer { now: "t1", ..writer("m1") };
        let mut quick = json!({"metadata": {"name": "x"}, "data": {"a": "0", "b": b}});
        let mut slow = quick.clone();
        track(kind, &before, &mut quick, None, &writer);
        track(kind, &before, &mut slow, Some(Managers::read(&before)), &writer);
        assert_eq!(quick, slow);
        assert_eq!(quick["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn what_is_no_longer_applied_goes_unless_somebody_else_wants_it() {
    let mut managers = Managers::default();
    let apply = |managers: &mut Managers, live: &Value, data: Value, who: &str| {
        let config = json!({"metadata": {"name": "x"}, "data": data});
        managers.apply(merge_type("core/v1.ConfigMap"), live, &config, &writer(who), false)
    };
    let live =
        apply(&mut managers, &json!({"metadata": {}}), json!({"a": "1", "b": "2", "c": "3"}), "m1").unwrap();
    let live = apply(&mut managers, &live, json!({"b": "2"}), "m2").unwrap();
    let live = apply(&mut managers, &live, json!({"a": "1"}), "m1").unwrap();
    assert_eq!(live["data"], json!({"a": "1", "b": "2"}));
    let refused = apply(&mut managers, &live, json!({"a": "9"}), "m2").unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"m1\": .data.a");
}

#[test]
fn elements_of_keyed_lists_have_owners_of_their_own() {
    let mut managers = Managers::default();
    let with = |name: &str| {
        let container = json!({"name": name, "image": "i", "ports": [{"containerPort": 80}]});
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    };
    let live = managers
        .apply(merge_type("apps/v1.Deployment"), &json!({}), &with("a"), &writer("m1"), false)
        .unwrap();
    let live =
        managers.apply(merge_type("apps/v1.Deployment"), &live, &with("b"), &writer("m2"), false).unwrap();
    let names = |value: &Value| -> Vec<String> {
        let list = value["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
        list.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&live), ["a", "b"]);
    let port = &entries(&managers)[0][2]["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"a\"}"]
        ["f:ports"];
    assert_eq!(
        *port,
        json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}})
    );
    let nothing = json!({"spec": {"template": {"spec": {}}}});
    let live =
        managers.apply(merge_type("apps/v1.Deployment"), &live, &nothing, &writer("m2"), false).unwrap();
    assert_eq!(names(&live), ["a"]);
}
