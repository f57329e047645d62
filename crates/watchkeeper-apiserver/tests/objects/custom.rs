//! Custom objects: nulls, status and scale.

use serde_json::{Value, json};

use crate::APPLY;
use crate::common::*;
use crate::scale::owners;

const FOOS: &str = "/apis/wktest.io/v1/namespaces/wktest/foos";

/// A server with a custom kind.
async fn with_foos() -> Server {
    let server = Server::start().await;
    let text = json!({"type": "string", "enum": ["A", "B"]});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"mode": text, "replicas": {"type": "integer", "default": 1}}},
        "status": {"type": "object", "properties": {"phase": text, "replicas": {"type": "integer"}}}}});
    let definition = json!({"metadata": {"name": "foos.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]}});
    post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    server.until("served", async || (get(&server, FOOS).await.0 == 200).then_some(())).await;
    server
}

fn foo(spec: &Value) -> Value {
    json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec})
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap().to_owned();
    let mut causes: Vec<_> =
        causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect();
    causes.sort();
    causes
}

#[tokio::test(start_paused = true)]
async fn an_applied_null_of_a_custom_object_is_refused_where_no_default_takes_its_place() {
    let server = with_foos().await;
    let path = format!("{FOOS}/f?fieldManager=one");
    let (_, status) = patch(&server, &path, APPLY, &foo(&json!({"mode": null}))).await;
    let expected = [
        r#"spec.mode: Invalid value: "null": spec.mode in body must be of type string: "null""#,
        r#"spec.mode: Unsupported value: null: supported values: "A", "B""#,
    ];
    assert_eq!(causes(&status), expected, "{status}");
    let (code, object) = patch(&server, &path, APPLY, &foo(&json!({"replicas": null}))).await;
    assert_eq!((code, &object["spec"]["replicas"]), (201, &json!(1)), "{object}");
    let made = post(&server, FOOS, &json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": "g"}, "spec": {"mode": null}})).await;
    assert_eq!(made["spec"], json!({"replicas": 1}), "elsewhere a null is nothing");
}

#[tokio::test(start_paused = true)]
async fn a_custom_status_is_validated_apart_from_its_object() {
    let server = with_foos().await;
    post(&server, FOOS, &foo(&json!({}))).await;
    let path = format!("{FOOS}/f/status");
    let (_, status) = patch(&server, &path, MERGE, &json!({"status": {"replicas": "many"}})).await;
    let expected = [
        ".status.replicas: Invalid value: 0: .status.replicas accessor error: many is of the type string, expected int64",
        r#"status.replicas: Invalid value: "string": replicas in body must be of type integer: "string""#,
    ];
    assert_eq!(causes(&status), expected, "{status}");
    let config =
        json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "status": null});
    let (code, object) = patch(&server, &format!("{path}?fieldManager=one"), APPLY, &config).await;
    assert_eq!((code, object.get("status")), (200, None), "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_of_a_custom_object_without_a_kind_has_no_owner() {
    let server = with_foos().await;
    let made = post(&server, FOOS, &foo(&json!({"mode": "A", "replicas": 1}))).await;
    assert_eq!(owners(&made), ["main at a time"]);
    let scale = json!({"metadata": {"name": "f"}, "spec": {"replicas": 2}});
    let (code, answer) = call(&server, "PUT", &format!("{FOOS}/f/scale"), &scale).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(2)), "{answer}");
    assert_eq!(owners(&get(&server, &format!("{FOOS}/f")).await.1), Vec::<String>::new());
}

// e2e: ServerSideApply should work for CRDs
#[tokio::test(start_paused = true)]
async fn finalizers_of_custom_objects_need_no_domain() {
    let server = with_foos().await;
    let mut held = foo(&json!({}));
    held["metadata"]["finalizers"] = json!(["test-finalizer"]);
    let made = post(&server, FOOS, &held).await;
    assert_eq!(made["metadata"]["finalizers"], json!(["test-finalizer"]));
    let path = format!("{FOOS}/f");
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, &path, MERGE, &free).await.0, 200);
    held["metadata"] = json!({"name": "g", "finalizers": ["a b"]});
    assert_eq!(call(&server, "POST", FOOS, &held).await.0, 422);
}
