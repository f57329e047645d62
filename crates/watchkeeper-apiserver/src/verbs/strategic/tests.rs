use serde_json::json;

use super::*;
use crate::kinds::registry::Registry;

fn patched(plural: &str, mut object: Value, patch: Value) -> Result<Value> {
    let registry = Registry::new();
    let kind = registry.find("apps", "v1", plural).or_else(|| registry.find("", "v1", plural)).unwrap();
    apply(kind, &mut object, patch)?;
    Ok(object)
}

fn containers(names: &[&str]) -> Value {
    let list: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "old"})).collect();
    json!({"spec": {"containers": list}})
}

fn names(value: &Value) -> Vec<&str> {
    value["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect()
}

#[test]
fn containers_merge_by_name() {
    let patch = json!({"spec": {"containers": [{"name": "b", "image": "new"}]}});
    let result = patched("pods", containers(&["a", "b"]), patch).unwrap();
    assert_eq!(names(&result), ["a", "b"]);
    assert_eq!(result["spec"]["containers"][1]["image"], "new");
}

#[test]
fn a_new_element_comes_first_unless_an_order_is_set() {
    let patch = json!({"spec": {"containers": [{"name": "x"}]}});
    assert_eq!(names(&patched("pods", containers(&["a"]), patch).unwrap()), ["x", "a"]);
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}, {"name": "x"}], "containers": [{"name": "x"}]}});
    assert_eq!(names(&patched("pods", containers(&["a"]), patch).unwrap()), ["a", "x"]);
    let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
    assert_eq!(names(&patched("pods", containers(&["a", "b"]), patch).unwrap()), ["b", "a"]);
}

#[test]
fn directives_delete_replace_and_retain() {
    let patch = json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}});
    assert_eq!(names(&patched("pods", containers(&["a", "b"]), patch).unwrap()), ["b"]);
    let patch = json!({"spec": {"containers": [{"name": "z"}, {"$patch": "replace"}]}});
    assert_eq!(names(&patched("pods", containers(&["a", "b"]), patch).unwrap()), ["z"]);
    let object = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched("deployments", object.clone(), patch).unwrap(),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
    let patch = json!({"spec": {"strategy": {"$patch": "replace", "type": "X"}}});
    assert_eq!(patched("deployments", object, patch).unwrap(), json!({"spec": {"strategy": {"type": "X"}}}));
}

#[test]
fn finalizers_are_a_set() {
    let object = json!({"metadata": {"finalizers": ["a/x", "a/y"]}});
    let patch = json!({"metadata": {"finalizers": ["a/z"], "$deleteFromPrimitiveList/finalizers": ["a/x"]}});
    let result = patched("pods", object, patch).unwrap();
    let mut list: Vec<_> = result["metadata"]["finalizers"].as_array().unwrap().clone();
    list.sort_by_key(ToString::to_string);
    assert_eq!(list, ["a/y", "a/z"]);
}

#[test]
fn ports_are_keyed_by_what_they_belong_to() {
    let object = json!({"spec": {"ports": [{"port": 80, "name": "a"}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "name": "b"}]}});
    assert_eq!(
        patched("services", object, patch).unwrap(),
        json!({"spec": {"ports": [{"port": 80, "name": "b"}]}})
    );
    let object = json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 2}]}]}});
    let patch =
        json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 2, "name": "n"}]}]}});
    let result = patched("pods", object, patch).unwrap();
    assert_eq!(
        result["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 1}, {"containerPort": 2, "name": "n"}])
    );
}

#[test]
fn other_lists_are_replaced_and_null_deletes() {
    let object = json!({"spec": {"tolerations": [{"key": "a"}], "x": 1}});
    let patch = json!({"spec": {"tolerations": [{"key": "b"}], "x": null}});
    assert_eq!(patched("pods", object, patch).unwrap(), json!({"spec": {"tolerations": [{"key": "b"}]}}));
}

#[test]
fn mistakes_are_named() {
    for (patch, text) in [
        (
            json!({"containers": [{"image": "x"}]}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (json!({"$patch": "explode"}), "unknown patch type: explode in map: map[$patch:explode]"),
        (
            json!({"containers": [{"name": "a", "$patch": 5}]}),
            "unknown patch type: %!s(int64=5) in map: map[$patch:5 name:a]",
        ),
        (json!({"containers": [5]}), "list element types are not identical: [[map[image:old name:a]] [5]]"),
        (json!({"$retainKeys": ["x"], "y": 1}), "invalid patch format of retainKeys"),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}),
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
    ] {
        let found = patched("pods", containers(&["a"]), json!({"spec": patch})).unwrap_err();
        assert_eq!(found.to_string(), text);
    }
}

#[test]
fn elements_with_equal_keys_stay_until_they_are_patched() {
    let twice = json!({"spec": {"containers": [{"name": "a"}, {"name": "a", "image": "x"}]}});
    let anew = patched("pods", json!({"spec": {}}), twice.clone()).unwrap();
    assert_eq!(anew, twice);
    let patch = json!({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "b"}, {"name": "b", "image": "z"}]}});
    assert_eq!(
        patched("pods", anew, patch).unwrap()["spec"]["containers"],
        json!([{"name": "a", "image": "y"}, {"name": "a", "image": "x"}, {"name": "b", "image": "z"}])
    );
}
