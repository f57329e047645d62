//! `/openapi/v2`: what clients read of built-in and custom kinds.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SWAGGER: &str = "/openapi/v2";
const BAR: &str = "io.wktest.v1.Bar";

async fn swagger(server: &Server) -> Value {
    let (code, document) = get(server, SWAGGER).await;
    assert_eq!(code, 200, "{document}");
    document
}

fn definition(schema: &Value) -> Value {
    json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}]}})
}

/// Waits until the published definition of a version is there, or gone.
async fn published(server: &Server, name: &str, wanted: bool) -> Value {
    let found = async || {
        let found = swagger(server).await["definitions"].get(name).cloned();
        (found.is_some() == wanted).then(|| found.unwrap_or_default())
    };
    server.until(name, found).await
}

#[tokio::test(start_paused = true)]
async fn built_in_kinds_have_definitions_and_operations() {
    let server = Server::start().await;
    let document = swagger(&server).await;
    assert_eq!((&document["swagger"], &document["info"]["title"]), (&"2.0".into(), &"Kubernetes".into()));
    let definitions = &document["definitions"];
    let pod = &definitions["io.k8s.api.core.v1.Pod"];
    let gvk = json!({"group": "", "kind": "Pod", "version": "v1"});
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([gvk]));
    assert_eq!(pod["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert!(pod["properties"]["spec"]["description"].as_str().unwrap().contains("desired behavior"));
    let replicas = &definitions["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"];
    assert_eq!((&replicas["type"], &replicas["format"]), (&"integer".into(), &"int32".into()));
    let port = &definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!((&port["type"], &port["format"]), (&"string".into(), &"int-or-string".into()));
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let deployment = json!({"group": "apps", "kind": "Deployment", "version": "v1"});
    assert_eq!(patch["x-kubernetes-group-version-kind"], deployment);
    let list = &document["paths"]["/api/v1/nodes"]["get"];
    assert_eq!(
        (&list["operationId"], &list["x-kubernetes-action"]),
        (&"listCoreV1Node".into(), &"list".into())
    );
    let text = document.to_string();
    for reference in text.split("\"#/definitions/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(definitions.get(name).is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn custom_kinds_are_published_while_they_are_served() {
    let server = Server::start().await;
    let spec = json!({"type": "object", "description": "What is wanted.", "required": ["a", "b"], "properties": {
        "a": {"type": "string", "enum": ["x", "y"]},
        "b": {"type": "integer", "nullable": true},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"c": {"type": "string"}}},
        "port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string"}}}}}});
    post(&server, DEFINITIONS, &definition(&json!({"type": "object", "properties": {"spec": spec}}))).await;
    let bar = published(&server, BAR, true).await;
    let gvk = json!({"group": "wktest.io", "kind": "Bar", "version": "v1"});
    assert_eq!(bar["x-kubernetes-group-version-kind"], json!([gvk]));
    let metadata = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(bar["properties"]["metadata"]["$ref"], metadata);
    let expected = json!({"type": "object", "description": "What is wanted.", "required": ["a"], "properties": {
        "a": {"type": "string", "enum": ["x", "y"]},
        "b": {},
        "open": {"x-kubernetes-preserve-unknown-fields": true},
        "port": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string"}}}}}});
    assert_eq!(bar["properties"]["spec"], expected);
    let path = "/apis/wktest.io/v1/namespaces/{namespace}/bars/{name}";
    assert_eq!(swagger(&server).await["paths"][path]["patch"]["x-kubernetes-group-version-kind"], gvk);
    let unserved = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    published(&server, "io.wktest.v2.Bar", true).await;
    let (code, answer) =
        patch(&server, &format!("{DEFINITIONS}/bars.wktest.io"), JSON_PATCH, &unserved).await;
    assert_eq!(code, 200, "{answer}");
    published(&server, "io.wktest.v2.Bar", false).await;
    published(&server, BAR, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_the_document_does_not_get_it_again() {
    let server = Server::start().await;
    let first = send(&server, "GET", SWAGGER, &[], "").await;
    let etag = first.headers()["etag"].to_str().unwrap().to_owned();
    let again = send(&server, "GET", SWAGGER, &[("if-none-match", etag.as_str())], "").await;
    assert_eq!(again.status(), 304);
    assert!(again.into_body().collect().await.unwrap().to_bytes().is_empty());
    let none = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    post(&server, DEFINITIONS, &definition(&none)).await;
    let bar = published(&server, BAR, true).await;
    let gvk = json!([{"group": "wktest.io", "kind": "Bar", "version": "v1"}]);
    assert_eq!(bar, json!({"type": "object", "x-kubernetes-group-version-kind": gvk}));
    let changed = send(&server, "GET", SWAGGER, &[("if-none-match", etag.as_str())], "").await;
    assert_eq!(changed.status(), 200);
    assert_ne!(changed.headers()["etag"].to_str().unwrap(), etag);
}

/// What client-go's `OpenAPISchema` asks for, and `kubectl` with it.
#[tokio::test(start_paused = true)]
async fn clients_written_in_go_get_the_document_in_protobuf() {
    let server = Server::start().await;
    let form = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "minimum": 3}}});
    post(&server, DEFINITIONS, &definition(&json!({"type": "object", "properties": {"spec": spec}}))).await;
    published(&server, BAR, true).await;
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = send(&server, "GET", SWAGGER, &[("accept", accept)], "").await;
    assert_eq!((answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap()), (200, form));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..5], b"\x0a\x032.0", "the version is the first field");
    let json = swagger(&server).await;
    for (field, of) in [(8, "paths"), (9, "definitions")] {
        let parts: Vec<&[u8]> = fields(&body, field).collect();
        let [part] = parts[..] else { panic!("{} messages of all {of}", parts.len()) };
        // Paths have their extensions in the first field.
        let number = if of == "paths" { 2 } else { 1 };
        let names: Vec<_> = fields(part, number).map(|named| text(named, 1)).collect();
        let mut expected: Vec<_> = json[of].as_object().unwrap().keys().cloned().collect();
        let mut sorted = names.clone();
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected, "{of}");
        if of == "definitions" {
            let at = names.iter().position(|name| name == BAR).unwrap();
            let bar = fields(fields(part, 1).nth(at).unwrap(), 2).next().unwrap();
            let gvk = fields(bar, 31).next().unwrap();
            assert_eq!(text(gvk, 1), "x-kubernetes-group-version-kind");
            assert!(text(fields(gvk, 2).next().unwrap(), 2).contains(r#""kind":"Bar""#));
            let properties = fields(bar, 25).next().unwrap();
            let spec = fields(properties, 1).find(|property| text(property, 1) == "spec").unwrap();
            let spec = fields(spec, 2).next().unwrap();
            assert_eq!(text(fields(spec, 22).next().unwrap(), 1), "object");
            let size = fields(fields(fields(spec, 25).next().unwrap(), 1).next().unwrap(), 2).next().unwrap();
            assert_eq!(fields(size, 9).next().unwrap(), 3.0_f64.to_le_bytes());
        }
    }
    let (code, _) = raw(&server, "GET", SWAGGER, &[("accept", "text/csv")], "").await;
    assert_eq!(code, 406);
}

/// The contents of a field of a protobuf message, each time that it occurs.
fn fields(mut message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            let tag = varint(&mut message);
            let before = message;
            let length = match tag & 7 {
                0 => {
                    varint(&mut message);
                    let length = before.len() - message.len();
                    message = before;
                    length
                }
                1 => 8,
                2 => usize::try_from(varint(&mut message)).unwrap(),
                other => panic!("wire type {other}"),
            };
            let (content, rest) = message.split_at(length);
            message = rest;
            if tag >> 3 == wanted {
                return Some(content);
            }
        }
        None
    })
}

fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(fields(message, field).next().unwrap().to_vec()).unwrap()
}
