//! Patches: their effect on an object, and how invalid ones are refused.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod apply;
#[path = "../common/mod.rs"]
mod common;
mod events;

use common::*;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/wktest/deployments";

/// A server with the Deployment `d`, whose container has the environment `env`; returns the path as well.
async fn with_deployment(env: Value) -> (Server, String) {
    let server = Server::start().await;
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod});
    post(&server, DEPLOYMENTS, &json!({"metadata": {"name": "d"}, "spec": spec})).await;
    (server, format!("{DEPLOYMENTS}/d"))
}

/// A patch of a Deployment's pod template.
fn of_pods(change: &Value) -> Value {
    json!({"spec": {"template": {"spec": change}}})
}

fn environment(deployment: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let env = deployment.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
    env.unwrap_or(&Vec::new()).iter().map(|e| format!("{}={}", text(&e["name"]), text(&e["value"]))).collect()
}

/// A server with the ConfigMap `a`; returns the path as well.
async fn with_config_map(data: Value) -> (Server, String) {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &data)).await;
    (server, format!("{CONFIG_MAPS}/a"))
}

/// The patches that kube-rs' finalizer helper sends, with and without existing finalizers.
#[tokio::test(start_paused = true)]
async fn finalizers_are_added_where_a_test_finds_none() {
    let (server, a) = with_config_map(json!({})).await;
    let first = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]},
    ]);
    let (code, object) = patch(&server, &a, JSON_PATCH, &first).await;
    assert_eq!((code, &object["metadata"]["finalizers"]), (200, &json!(["example.com/a"])), "{object}");
    let (code, status) = patch(&server, &a, JSON_PATCH, &first).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
    let second = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": ["example.com/a"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"},
        {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/a"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]);
    let (code, object) = patch(&server, &a, JSON_PATCH, &second).await;
    assert_eq!((code, object["metadata"].get("finalizers")), (200, None), "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_is_read_as_leniently_as_by_the_real_server() {
    let (server, a) = with_config_map(json!({"k": "v"})).await;
    let owners = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["x/a", "x/b"]}]);
    assert_eq!(patch(&server, &a, JSON_PATCH, &owners).await.0, 200);
    for (operation, place, result) in [
        (json!({"op": "replace", "path": "/data/new", "value": "x"}), "/data/new", json!("x")),
        (json!({"op": "test", "path": "/data/no"}), "/data/new", json!("x")),
        (
            json!({"op": "copy", "from": "/data/no", "path": "/metadata/labels"}),
            "/metadata/labels",
            Value::Null,
        ),
        (json!({"op": "move", "from": "any/data/new", "path": "any/data/old"}), "/data/old", json!("x")),
        (
            json!({"op": "add", "path": "/metadata/finalizers/-1", "value": "x/c"}),
            "/metadata/finalizers/2",
            json!("x/c"),
        ),
        (
            json!({"op": "replace", "path": "/metadata/finalizers/-3", "value": "x/d"}),
            "/metadata/finalizers/0",
            json!("x/d"),
        ),
        (json!({"op": "remove", "path": "/metadata/finalizers/+01"}), "/metadata/finalizers/1", json!("x/c")),
        (
            json!({"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}),
            "/metadata/annotations/a~1b",
            json!("1"),
        ),
        (json!({"op": "test", "path": "/metadata/annotations/a~1b", "value": "1"}), "/data/k", json!("v")),
        (json!({"op": "add", "path": "/data/k"}), "/data/k", json!("")),
    ] {
        let (code, object) = patch(&server, &a, JSON_PATCH, &json!([operation])).await;
        let found = object.pointer(place).unwrap_or(&Value::Null);
        assert_eq!((code, found), (200, &result), "{operation}: {object}");
    }
    assert_eq!(raw(&server, "PATCH", &a, &[("content-type", JSON_PATCH)], "null").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_that_does_not_fit_is_refused_without_a_reason_why() {
    let (server, a) = with_config_map(json!({"k": "v"})).await;
    for operation in [
        json!({"op": "test", "path": "/data/k", "value": null}),
        json!({"op": "test", "path": "/no/k", "value": null}),
        json!({"op": "test", "path": "/metadata/managedFields/1", "value": null}),
        json!({"op": "remove", "path": "/data/no"}),
        json!({"op": "remove", "path": "/metadata/managedFields/-"}),
        json!({"op": "remove", "path": "/metadata/managedFields/-2"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "add", "path": "data", "value": {}}),
        json!({"op": "add", "path": "/no/x", "value": "x"}),
        json!({"op": "add", "path": "/data/k/x", "value": "x"}),
        json!({"op": "add", "path": "/metadata/managedFields/5", "value": {}}),
        json!({"op": "add", "path": "/metadata/managedFields/x", "value": {}}),
        json!({"op": "add", "value": "x"}),
        json!({"op": "replace", "path": "/metadata/managedFields/-", "value": {}}),
        json!({"op": "replace", "path": "", "value": 7}),
        json!({"op": "move", "from": "/data/no", "path": "/data/x"}),
        json!({"op": "move", "from": "/metadata", "path": "/metadata/x"}),
        json!({"op": "move", "path": "/data/x"}),
        json!({"op": "copy", "from": "/no/x", "path": "/data/x"}),
        json!({"op": "explode", "path": "/data"}),
        json!({"op": null, "path": "/data"}),
        json!({}),
        Value::Null,
    ] {
        let (code, status) = patch(&server, &a, JSON_PATCH, &json!([operation])).await;
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid",
            "message": "the server rejected our request due to an error in our request", "details": {}, "code": 422});
        assert_eq!((code, status), (422, expected), "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_that_cannot_be_read_is_a_bad_request() {
    let (server, a) = with_config_map(json!({"k": "v"})).await;
    for (body, message) in [
        ("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ("[5]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            r#"[{"op": 5, "path": "/data"}]"#,
            "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (
            r#"[{"op": "remove", "path": ["/data"]}]"#,
            "json: cannot unmarshal array into Go struct field jsonPatchOp.path of type string",
        ),
        (r#"[{"op": "remove""#, "unexpected end of JSON input"),
    ] {
        let (code, status) = raw(&server, "PATCH", &a, &[("content-type", JSON_PATCH)], body).await;
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "BadRequest",
            "message": format!("error decoding patch: {message}"), "code": 400});
        assert_eq!((code, status), (400, expected), "{body}");
    }
    let test = json!({"op": "test", "path": "/data/k", "value": "v"});
    let (code, _) = patch(&server, &a, JSON_PATCH, &json!(vec![&test; 10_000])).await;
    assert_eq!(code, 200);
    let (code, status) = patch(&server, &a, JSON_PATCH, &json!(vec![&test; 10_001])).await;
    let message =
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "RequestEntityTooLarge", "message": message, "code": 413});
    assert_eq!((code, status), (413, expected));
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_of_an_operation_are_reported() {
    let (server, a) = with_config_map(json!({"k": "v"})).await;
    let body = r#"[{"op": "test", "path": "/data/k", "value": "v", "vlaue": 1, "op": "test"}]"#;
    let response = send(&server, "PATCH", &a, &[("content-type", JSON_PATCH)], body).await;
    let warnings = response.headers().get_all("warning").iter();
    let mut warnings: Vec<_> = warnings.map(|warning| warning.to_str().unwrap()).collect();
    warnings.sort_unstable();
    assert_eq!(
        warnings,
        [
            r#"299 - "json patch duplicate field \"[0].op\"""#,
            r#"299 - "json patch unknown field \"[0].vlaue\"""#
        ]
    );
    let strict = format!("{a}?fieldValidation=Strict");
    assert_eq!(raw(&server, "PATCH", &strict, &[("content-type", JSON_PATCH)], body).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_merges_elements_by_key() {
    let (server, d) = with_deployment(json!([])).await;
    let pair = |text: &str| json!({"name": text[..1], "value": text[2..]});
    let replace = json!({"$patch": "replace", "name": "ignored", "value": "x"});
    for (env, order, result) in [
        // A list that is new keeps elements with equal keys.
        (vec![pair("a=1"), pair("a=2"), pair("b=1")], None, vec!["a=1", "a=2", "b=1"]),
        (vec![pair("a=3"), pair("a=4"), pair("c=1"), pair("c=2")], None, vec!["a=4", "a=2", "c=2", "b=1"]),
        // Deletions are applied first.
        (vec![pair("a=5"), json!({"name": "a", "$patch": "delete"})], None, vec!["a=5", "c=2", "b=1"]),
        (vec![pair("y=1"), replace], None, vec!["y=1"]),
        (vec![pair("q=1")], Some(json!([{"name": "q"}, {"name": "y"}])), vec!["q=1", "y=1"]),
        (vec![], Some(json!([{"name": "y"}, {"name": "q"}])), vec!["y=1", "q=1"]),
    ] {
        let mut container = json!({"name": "c", "env": env});
        if let Some(order) = order {
            container["$setElementOrder/env"] = order;
        }
        let change = of_pods(&json!({"containers": [container]}));
        let (code, object) = patch(&server, &d, STRATEGIC, &change).await;
        assert_eq!(
            (code, environment(&object)),
            (200, result.iter().map(|pair| (*pair).to_owned()).collect()),
            "{change}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_merges_plain_values_as_a_set() {
    let (server, d) = with_deployment(json!([])).await;
    for (change, result) in [
        (json!({"finalizers": ["x/b", "x/a", "x/b"]}), json!(["x/b", "x/a", "x/b"])),
        (json!({"finalizers": ["x/c", "x/a"]}), json!(["x/c", "x/b", "x/a"])),
        (
            json!({"finalizers": ["x/d"], "$deleteFromPrimitiveList/finalizers": ["x/c"]}),
            json!(["x/d", "x/b", "x/a"]),
        ),
        (json!({"$setElementOrder/finalizers": ["x/d", "x/a", "x/b"]}), json!(["x/d", "x/a", "x/b"])),
        (json!({"$deleteFromPrimitiveList/finalizers": 5}), json!(["x/d", "x/a", "x/b"])),
        (json!({"$deleteFromPrimitiveList/finalizers": null}), Value::Null),
    ] {
        let (code, object) = patch(&server, &d, STRATEGIC, &json!({"metadata": change})).await;
        assert_eq!((code, &object["metadata"]["finalizers"]), (200, &result), "{change}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_that_cannot_be_applied_is_explained() {
    let (server, d) = with_deployment(json!([{"name": "a", "value": "1"}])).await;
    let env = |env: Value| json!({"containers": [{"name": "c", "env": env}]});
    let ordered = |order: Value, env: Value| json!({"containers": [{"name": "c", "$setElementOrder/env": order, "env": env}]});
    for (change, code, message) in [
        (
            env(json!([{"value": "x", "valueFrom": {"fieldRef": {"fieldPath": "y"}}}])),
            500,
            "map: map[value:x valueFrom:map[fieldRef:map[fieldPath:y]]] does not contain declared merge key: name",
        ),
        (
            env(json!([{"$patch": "delete", "value": "x"}])),
            500,
            "map: map[$patch:delete value:x] does not contain declared merge key: name",
        ),
        (
            env(json!([{"$patch": "replace"}, {"value": "x"}])),
            500,
            "map: map[value:x] does not contain declared merge key: name",
        ),
        (
            env(json!([{"$patch": "explode", "name": "a"}])),
            500,
            "unknown patch type: explode in map: map[$patch:explode name:a]",
        ),
        (
            env(json!([{"$patch": "merge", "name": "a"}])),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"$patch": "merge", "b": true}),
            500,
            "unknown patch type: merge in map: map[$patch:merge b:true]",
        ),
        (
            json!({"$patch": 5, "a": null, "c": [1, "x", 1.5], "d": {"e": 1e21}}),
            500,
            "unknown patch type: %!s(int64=5) in map: map[$patch:5 a:<nil> c:[1 x 1.5] d:map[e:1e+21]]",
        ),
        (env(json!([1, 2])), 500, "list element types are not identical: [[map[name:a value:1]] [1 2]]"),
        (ordered(json!(5), json!([])), 500, "expected a []interface {}, but received a int64"),
        (ordered(json!([]), Value::Null), 500, "expected a []interface {}, but received a %!s(<nil>)"),
        (ordered(json!(["a"]), json!([])), 500, "value for key 0 is not a map"),
        (
            ordered(json!([{"n": "a"}]), json!([])),
            500,
            "map: map[n:a] does not contain declared merge key: name",
        ),
        (
            ordered(json!([{"name": "b"}]), json!([{"name": "a"}])),
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
        (
            json!({"$setElementOrder/foo": [{"name": "b"}]}),
            500,
            "unable to find api field in struct PodSpec for the json field \"foo\"",
        ),
        (json!({"$retainKeys": 5}), 400, "invalid patch format of retainKeys"),
        (json!({"$retainKeys": ["a"], "b": 1}), 400, "invalid patch format of retainKeys"),
        (json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList": []}), 400, "invalid patch format of primitive list"),
    ] {
        let (found, status) = patch(&server, &d, STRATEGIC, &of_pods(&change)).await;
        assert_eq!((found, &status["message"]), (code, &json!(message)), "{change}");
        assert_eq!(status.get("details"), None, "{change}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_is_no_map_is_a_bad_request() {
    let (server, a) = with_config_map(json!({"k": "v"})).await;
    let array = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    let letter = "invalid character 'b' looking for beginning of object key string";
    for (kind, body, message) in [
        (MERGE, "[]", format!("error decoding patch: {array}")),
        (MERGE, "null", "Invalid JSON Patch".to_owned()),
        (MERGE, "{bad", format!("error decoding patch: {letter}")),
        (STRATEGIC, "[]", array.to_owned()),
        (STRATEGIC, "{bad", letter.to_owned()),
    ] {
        let (code, status) = raw(&server, "PATCH", &a, &[("content-type", kind)], body).await;
        assert_eq!((code, &status["message"]), (400, &json!(message)), "{kind} {body}");
    }
    let (code, _) = raw(&server, "PATCH", &a, &[("content-type", STRATEGIC)], "null").await;
    assert_eq!(code, 200);
}

#[tokio::test(start_paused = true)]
async fn duplicate_fields_of_a_patch_are_reported() {
    let (server, a) = with_config_map(json!({})).await;
    for kind in [MERGE, STRATEGIC] {
        let body = r#"{"data": {"k": "1", "k": "2"}}"#;
        let response = send(&server, "PATCH", &a, &[("content-type", kind)], body).await;
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert_eq!(warnings, [r#"299 - "duplicate field \"data.k\"""#], "{kind}");
        let strict = format!("{a}?fieldValidation=Strict");
        let (code, status) = raw(&server, "PATCH", &strict, &[("content-type", kind)], body).await;
        let problem = ": strict decoding error: duplicate field \"data.k\"";
        assert!(code == 422 && status["message"].as_str().unwrap().ends_with(problem), "{kind} {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_make_an_object_into_another() {
    let (server, a) = with_config_map(json!({})).await;
    for (change, problem) in [
        (json!({"apiVersion": "v2"}), "no kind \"ConfigMap\" is registered for version \"v2\""),
        (json!({"kind": "Foo"}), "no kind \"Foo\" is registered for version \"v1\""),
    ] {
        let (code, status) = patch(&server, &a, MERGE, &change).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(problem), "{change} {status}");
        assert_eq!(patch(&server, &a, STRATEGIC, &change).await.0, 200, "{change}");
    }
}

/// A manager that writes a second element with the same key owns all elements of that key.
#[tokio::test(start_paused = true)]
async fn a_duplicate_element_belongs_to_the_manager_that_added_it() {
    let (server, a) = with_config_map(json!({})).await;
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"finalizers": ["x.io/a", "x.io/b"]}});
    patch(&server, &format!("{a}?fieldManager=first"), "application/apply-patch+yaml", &applied).await;
    let owned = |object: &Value, manager: &str| {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let entry = entries.into_iter().find(|entry| entry["manager"] == manager).unwrap_or_default();
        let finalizers = entry["fieldsV1"]["f:metadata"]["f:finalizers"].as_object().cloned();
        finalizers.unwrap_or_default().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let doubled = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "x.io/a"}]);
    let (code, object) = patch(&server, &format!("{a}?fieldManager=second"), JSON_PATCH, &doubled).await;
    assert_eq!((code, object["metadata"]["finalizers"].as_array().map(Vec::len)), (200, Some(3)), "{object}");
    assert_eq!(owned(&object, "first"), [r#"v:"x.io/b""#], "{object}");
    assert!(owned(&object, "second").contains(&r#"v:"x.io/a""#.to_owned()), "{object}");
    let single = json!([{"op": "remove", "path": "/metadata/finalizers/2"}]);
    let (_, object) = patch(&server, &format!("{a}?fieldManager=third"), JSON_PATCH, &single).await;
    assert_eq!(owned(&object, "third"), [r#"v:"x.io/a""#], "{object}");
    patch(&server, &a, MERGE, &json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test(start_paused = true)]
async fn replacing_a_field_that_is_not_there_adds_it() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await;
    let replace = json!([{"op": "replace", "path": "/data/new", "value": "x"}]);
    let (code, object) = patch(&server, &format!("{CONFIG_MAPS}/a"), JSON_PATCH, &replace).await;
    assert_eq!((code, &object["data"]), (200, &json!({"k": "v", "new": "x"})), "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_directive_for_a_map_that_is_not_there_leaves_none() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let replace = json!({"metadata": {"labels": {"$patch": "replace", "app": "b"}}});
    let (_, object) = patch(&server, &format!("{CONFIG_MAPS}/a"), STRATEGIC, &replace).await;
    assert_eq!(object["metadata"].get("labels"), None);
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_of_the_wrong_type_has_an_error_of_its_own() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let (_, status) =
        patch(&server, &format!("{CONFIG_MAPS}/a"), STRATEGIC, &json!({"data": {"k": 5}})).await;
    assert!(status["message"].as_str().unwrap().ends_with("\": cannot convert int64 to string"), "{status}");
}
