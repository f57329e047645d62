//! Answers in protobuf, for clients that accept nothing else.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use common::{CONFIG_MAPS, Server, call, config_map, get, post, send, varint, version};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Asks for an answer in protobuf, and returns its code, its media type and its bytes.
async fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, String, Bytes) {
    let headers = [("accept", PROTOBUF), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = send(server, method, path, &headers, body).await;
    let (code, media) =
        (answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap().to_owned());
    (code, media, answer.into_body().collect().await.unwrap().to_bytes())
}

/// The content of the first field of this number that is a message or text.
fn field(bytes: &[u8], number: u64) -> Option<&[u8]> {
    fields(bytes, number).next()
}

fn fields(mut bytes: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            if tag & 7 == 0 {
                varint(&mut bytes);
                continue;
            }
            assert_eq!(tag & 7, 2, "only numbers and messages are expected");
            let length = usize::try_from(varint(&mut bytes)).unwrap();
            let (content, rest) = bytes.split_at(length);
            bytes = rest;
            if tag >> 3 == number {
                return Some(content);
            }
        }
        None
    })
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// The apiVersion, the kind and the message of an object in its envelope.
fn opened(object: &[u8]) -> (String, String, &[u8]) {
    let envelope = object.strip_prefix(b"k8s\0").unwrap();
    let identity = field(envelope, 1).unwrap();
    let part = |number| text(field(identity, number).unwrap()).to_owned();
    (part(1), part(2), field(envelope, 2).unwrap())
}

/// The name in the metadata of an object.
fn name(object: &[u8]) -> &str {
    text(field(field(object, 1).unwrap(), 1).unwrap())
}

/// The entries of the data of a ConfigMap.
fn data(object: &[u8]) -> Vec<(&str, &str)> {
    fields(object, 2).map(|entry| (text(field(entry, 1).unwrap()), text(field(entry, 2).unwrap()))).collect()
}

#[tokio::test(start_paused = true)]
async fn objects_and_lists_are_sent_in_protobuf() {
    let server = Server::start().await;
    let (code, media, created) =
        ask(&server, "POST", CONFIG_MAPS, &config_map("a", &json!({"x": "y", "z": ""}))).await;
    assert_eq!((code, media.as_str()), (201, PROTOBUF));
    let (api_version, kind, message) = opened(&created);
    assert_eq!((api_version.as_str(), kind.as_str(), name(message)), ("v1", "ConfigMap", "a"));
    assert_eq!(data(message), [("x", "y"), ("z", "")]);
    let (code, _, read) = ask(&server, "GET", &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!((code, name(opened(&read).2)), (200, "a"));
    post(&server, CONFIG_MAPS, &config_map("b", &json!({}))).await;
    let (_, media, list) = ask(
        &server,
        "GET",
        &format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt"),
        &Value::Null,
    )
    .await;
    let (api_version, kind, message) = opened(&list);
    assert_eq!((media.as_str(), api_version.as_str(), kind.as_str()), (PROTOBUF, "v1", "ConfigMapList"));
    assert_eq!(fields(message, 2).map(name).collect::<Vec<_>>(), ["a", "b"]);
    let (code, _, status) = ask(&server, "DELETE", &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!((code, opened(&status).1.as_str()), (200, "Status"));
}

/// The object that is sent in protobuf can be written again as it is.
#[tokio::test(start_paused = true)]
async fn what_is_sent_in_protobuf_is_understood_in_protobuf() {
    let server = Server::start().await;
    let container = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "v"}],
        "livenessProbe": {"httpGet": {"port": "web", "path": "/x"}}, "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}});
    let volumes =
        json!([{"name": "v", "configMap": {"name": "m", "optional": true}}, {"name": "e", "emptyDir": {}}]);
    let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes, "nodeSelector": {"a": "b"}});
    let pods = "/api/v1/namespaces/wktest/pods";
    let sent = post(&server, pods, &json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let (_, _, object) = ask(&server, "GET", &format!("{pods}/a"), &Value::Null).await;
    let headers = [("content-type", PROTOBUF)];
    let answer = send(&server, "PUT", &format!("{pods}/a"), &headers, object).await;
    let answer: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let meaning = |mut pod: Value| {
        pod["metadata"].as_object_mut().unwrap().remove("managedFields");
        pod["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        pod["metadata"].as_object_mut().unwrap().remove("namespace");
        pod
    };
    assert_eq!(meaning(answer), meaning(sent));
}

// e2e: client-go should negotiate watch and report errors with accept "application/vnd.kubernetes.protobuf"
#[tokio::test(start_paused = true)]
async fn a_watch_sends_events_and_errors_in_protobuf() {
    let server = Server::start().await;
    let first = post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    post(&server, CONFIG_MAPS, &config_map("b", &json!({"x": "y"}))).await;
    let watch = async |from: u64| {
        let path = format!(
            "{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=b&timeoutSeconds=1&resourceVersion={from}"
        );
        let (code, media, bytes) = ask(&server, "GET", &path, &Value::Null).await;
        assert_eq!((code, media), (200, format!("{PROTOBUF};stream=watch")));
        bytes
    };
    let events = watch(version(&first)).await;
    let (length, event) = events.split_at(4);
    assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, event.len());
    assert_eq!(text(field(event, 1).unwrap()), "ADDED");
    let (_, kind, message) = opened(field(field(event, 2).unwrap(), 1).unwrap());
    assert_eq!((kind.as_str(), name(message), data(message)), ("ConfigMap", "b", vec![("x", "y")]));
    let Some(inside) = server.inside() else { return };
    inside.compact_now();
    let events = watch(1).await;
    assert_eq!(text(field(&events[4..], 1).unwrap()), "ERROR");
    let (_, kind, message) = opened(field(field(&events[4..], 2).unwrap(), 1).unwrap());
    assert_eq!((kind.as_str(), text(field(message, 4).unwrap())), ("Status", "Expired"));
}

#[tokio::test(start_paused = true)]
async fn failures_are_sent_in_protobuf_and_custom_resources_are_not() {
    let server = Server::start().await;
    let (code, media, status) = ask(&server, "GET", &format!("{CONFIG_MAPS}/none"), &Value::Null).await;
    assert_eq!((code, media.as_str()), (404, PROTOBUF));
    let (api_version, kind, message) = opened(&status);
    assert_eq!((api_version.as_str(), kind.as_str()), ("v1", "Status"));
    assert_eq!(text(field(message, 4).unwrap()), "NotFound");
    let group = "protobuf.wktest.dev";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": format!("foos.{group}")}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let path = format!("/apis/{group}/v1/namespaces/wktest/foos");
    server.until("a served kind", async || (get(&server, &path).await.0 == 200).then_some(())).await;
    assert_eq!(ask(&server, "GET", &path, &Value::Null).await.0, 406);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (code, media, review) =
        ask(&server, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await;
    assert_eq!((code, media.as_str(), opened(&review).1.as_str()), (201, PROTOBUF, "SelfSubjectReview"));
    let both = format!("{PROTOBUF},application/json");
    let answer = send(&server, "GET", CONFIG_MAPS, &[("accept", both.as_str())], "").await;
    if server.inside().is_some() {
        // Text is encoded once for all clients.
        assert_eq!(answer.headers()["content-type"], "application/json");
    }
    assert_eq!(
        call(
            &server,
            "DELETE",
            &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.{group}"),
            &Value::Null
        )
        .await
        .0,
        200
    );
}
