//! Requests that race with changes of their kind.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use watchkeeper_controllers::namespace_controller;

use crate::common::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/wktest.io/v1/namespaces/wktest/bars";

async fn server() -> Server {
    let server = Server::embedded(|settings| settings).await;
    post(&server, DEFINITIONS, &definition("Namespaced", 9)).await;
    server
}

fn definition(scope: &str, most: usize) -> Value {
    let spec = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": most}}});
    json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": scope, "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

fn bar() -> Value {
    json!({"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {"name": "b"}, "spec": {"name": "abc"}})
}

/// Sends a request whose body arrives only after `meanwhile`; returns the status code.
async fn slow(server: &Server, (method, path): (&str, &str), body: &Value, meanwhile: impl AsyncFn()) -> u16 {
    let (sender, receiver) = oneshot::channel::<Bytes>();
    let frames = stream::once(async { Ok::<_, Infallible>(Frame::data(receiver.await.unwrap())) });
    let kind = if method == "PATCH" { MERGE } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let mut answer = inside(server).service().oneshot(request.body(StreamBody::new(frames)).unwrap());
    assert!(futures::poll!(&mut answer).is_pending(), "answered without its body");
    meanwhile().await;
    sender.send(body.to_string().into()).unwrap();
    answer.await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_after_its_kind_has_gone_is_not_found() {
    for request in [("POST", BARS), ("PATCH", &format!("{BARS}/b")), ("DELETE", BARS)] {
        let server = server().await;
        let path = format!("{DEFINITIONS}/bars.wktest.io");
        let body = if request.0 == "DELETE" { json!({}) } else { bar() };
        let code = slow(&server, request, &body, async || {
            call(&server, "DELETE", &path, &Value::Null).await;
            assert_eq!(get(&server, BARS).await.0, 404);
        });
        assert_eq!(code.await, 404, "{request:?}");
        post(&server, DEFINITIONS, &definition("Namespaced", 9)).await;
        assert_eq!(get(&server, BARS).await.1["items"], json!([]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_judged_by_its_kind_as_it_is_when_the_body_comes() {
    let server = server().await;
    let path = format!("{DEFINITIONS}/bars.wktest.io");
    let narrow = async |most| {
        let change = json!({"spec": definition("Namespaced", most)["spec"]});
        assert_eq!(patch(&server, &path, MERGE, &change).await.0, 200);
    };
    assert_eq!(slow(&server, ("POST", BARS), &bar(), async || narrow(2).await).await, 422);
    assert_eq!(slow(&server, ("POST", BARS), &bar(), async || narrow(3).await).await, 201);
    let other = async || {
        call(&server, "DELETE", &path, &Value::Null).await;
        post(&server, DEFINITIONS, &definition("Cluster", 9)).await;
    };
    assert_eq!(slow(&server, ("POST", BARS), &bar(), other).await, 404);
    assert_eq!(get(&server, "/apis/wktest.io/v1/bars").await.1["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_waits_for_a_version_is_of_the_kind_as_it_is_then() {
    let server = server().await;
    post(&server, BARS, &bar()).await;
    let (path, definition) = (format!("{DEFINITIONS}/bars.wktest.io"), definition("Cluster", 9));
    // Five writes: the definition is marked, its object and the definition are deleted, the definition is created
    // again, and a namespace is created.
    let awaited = revision(&server).await + 5;
    let list = format!("{BARS}?resourceVersion={awaited}&resourceVersionMatch=NotOlderThan");
    let mut answer = Box::pin(get(&server, &list));
    assert!(futures::poll!(&mut answer).is_pending(), "answered before the version was there");
    call(&server, "DELETE", &path, &Value::Null).await;
    post(&server, DEFINITIONS, &definition).await;
    post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "wktest-n"}})).await;
    assert_eq!(revision(&server).await, awaited);
    assert_eq!(answer.await.0, 404, "bars are no longer in namespaces");
}

#[tokio::test(start_paused = true)]
async fn a_definition_of_what_is_built_in_takes_nothing_along() {
    let server = Server::embedded(|settings| settings).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/wktest/leases";
    let lease = post(&server, leases, &json!({"metadata": {"name": "a"}})).await;
    let mut watch =
        Watch::open(&server, &format!("{leases}?watch=1&resourceVersion={}", version(&lease))).await;
    let mut definition = definition("Namespaced", 9);
    definition["metadata"] = json!({"name": "leases.coordination.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"}});
    definition["spec"]["group"] = "coordination.k8s.io".into();
    definition["spec"]["names"] = json!({"kind": "Lease", "plural": "leases"});
    post(&server, DEFINITIONS, &definition).await;
    let path = format!("{DEFINITIONS}/leases.coordination.k8s.io");
    call(&server, "DELETE", &path, &Value::Null).await;
    assert_eq!(get(&server, &path).await.0, 404);
    assert_eq!(get(&server, &format!("{leases}/a")).await, (200, lease));
    call(&server, "DELETE", &format!("{leases}/a"), &Value::Null).await;
    assert_eq!(watch.event().await.0, "DELETED", "the watch has gone on");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_leaves_behind_what_is_not_served() {
    let server = server().await;
    post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "wktest-n"}})).await;
    post(&server, "/apis/wktest.io/v1/namespaces/wktest-n/bars", &bar()).await;
    let mut held = bar();
    held["metadata"] = json!({"name": "held", "finalizers": ["example.com/f"]});
    post(&server, "/apis/wktest.io/v1/namespaces/wktest-n/bars", &held).await;
    let serve = async |served: bool| {
        let change = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": served}]);
        let path = format!("{DEFINITIONS}/bars.wktest.io");
        assert_eq!(patch(&server, &path, JSON_PATCH, &change).await.0, 200);
    };
    serve(false).await;
    assert_eq!(get(&server, BARS).await.0, 404);
    let stop = CancellationToken::new();
    let (clients, token) = (server.clients(), stop.clone());
    let controller = tokio::spawn(async move { namespace_controller::run(&clients, token).await });
    let path = "/api/v1/namespaces/wktest-n";
    call(&server, "DELETE", path, &Value::Null).await;
    server.until("gone", async || (get(&server, path).await.0 == 404).then_some(())).await;
    stop.cancel();
    controller.await.unwrap();
    // As on a real cluster: discovery does not tell of them.
    serve(true).await;
    let left = get(&server, "/apis/wktest.io/v1/bars").await.1;
    assert_eq!(names(&left), ["b", "held"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_does_not_outlive_the_schema_by_which_it_selects() {
    let server = server().await;
    let path = format!("{DEFINITIONS}/bars.wktest.io");
    let schema = async |default: Value| {
        let mut versions = definition("Namespaced", 9)["spec"]["versions"].clone();
        versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.name"}]);
        let properties = &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        properties["name"]["default"] = default;
        assert_eq!(patch(&server, &path, MERGE, &json!({"spec": {"versions": versions}})).await.0, 200);
    };
    schema(Value::Null).await;
    let mut nameless = bar();
    nameless["spec"] = json!({});
    let made = post(&server, BARS, &nameless).await;
    let selected = format!("{BARS}?fieldSelector=spec.name%3Dnew");
    let from = |object: &Value| format!("{selected}&watch=1&resourceVersion={}", version(object));
    let mut watch = Watch::open(&server, &from(&made)).await;
    schema(json!("new")).await;
    assert_eq!(watch.next().await, None, "it cannot know that the object is selected now");
    let expired = Watch::open(&server, &from(&made)).await.next().await.unwrap();
    assert_eq!(expired["object"]["code"], 410);
    let (_, list) = get(&server, &selected).await;
    assert_eq!((names(&list), version(&list["items"][0])), (vec!["b"], version(&made)));
    let mut watch = Watch::open(&server, &from(&list)).await;
    call(&server, "DELETE", &format!("{BARS}/b"), &Value::Null).await;
    assert_eq!(watch.event().await.0, "DELETED");
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_its_objects_hold_is_still_served_as_it_says() {
    let server = server().await;
    let mut held = bar();
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    held["spec"] = json!({});
    post(&server, BARS, &held).await;
    let path = format!("{DEFINITIONS}/bars.wktest.io");
    call(&server, "DELETE", &path, &Value::Null).await;
    let mut change = definition("Namespaced", 9);
    change["metadata"]["finalizers"] = Value::Null;
    change["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"]
        ["default"] = "new".into();
    assert_eq!(patch(&server, &path, MERGE, &change).await.0, 200);
    assert_eq!(get(&server, &format!("{BARS}/b")).await.1["spec"], json!({"name": "new"}));
    patch(&server, &format!("{BARS}/b"), MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(get(&server, &path).await.0, 404);
}
