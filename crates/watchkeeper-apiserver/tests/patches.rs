//! Patches: what each kind of patch makes of an object, and how the server refuses one.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

/// A server with the ConfigMap `a`, and the path to it.
async fn with_config_map(data: Value) -> (Server, String) {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &data)).await;
    (server, format!("{CONFIG_MAPS}/a"))
}

/// What kube-rs' finalizer helper sends, with and without finalizers there.
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
async fn fields_that_no_operation_has_are_told() {
    let (server, a) = with_config_map(json!({"k": "v"})).await;
    let body = r#"[{"op": "test", "path": "/data/k", "value": "v", "vlaue": 1, "op": "test"}]"#;
    let response = send(&server, "PATCH", &a, &[("content-type", JSON_PATCH)], body).await;
    let told = response.headers().get_all("warning").iter();
    let mut told: Vec<_> = told.map(|told| told.to_str().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            r#"299 - "json patch duplicate field \"[0].op\"""#,
            r#"299 - "json patch unknown field \"[0].vlaue\"""#
        ]
    );
    let strict = format!("{a}?fieldValidation=Strict");
    assert_eq!(raw(&server, "PATCH", &strict, &[("content-type", JSON_PATCH)], body).await.0, 422);
}
