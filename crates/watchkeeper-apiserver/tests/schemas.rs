//! What do the schema and the rules of a definition allow?
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/wktest.io/v1/namespaces/wktest/bars";

/// The definition of a kind with this schema for its `spec`.
fn definition(spec: &Value) -> Value {
    json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

fn bar(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {"name": name}, "spec": spec})
}

/// Creates a definition and waits until its kind is served.
async fn define(server: &Server, spec: &Value) {
    post(server, DEFINITIONS, &definition(spec)).await;
    server.until("served", async || (get(server, BARS).await.0 == 200).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn classes_in_patterns_are_of_ascii_alone() {
    let server = Server::start().await;
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let properties =
        json!({"digits": text(r"^\d+$"), "words": text(r"^[\w.]{1,1000}$"), "spaces": text(r"^\S\s\S$")});
    define(&server, &json!({"type": "object", "properties": properties})).await;
    for (field, value, code) in [
        ("digits", "12", 201),
        ("digits", "١٢", 422),
        ("words", "a_b.c", 201),
        ("words", "ä", 422),
        ("spaces", "ä ä", 201),
        ("spaces", "a\u{a0}a", 422),
    ] {
        let object = bar(&format!("b{}", value.len()), &json!({field: value}));
        let (found, status) = call(&server, "POST", &format!("{BARS}?dryRun=All"), &object).await;
        assert_eq!(found, code, "{field} {value}: {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn patterns_that_are_too_large_are_refused() {
    let server = Server::start().await;
    for (pattern, code) in
        [("^.{1,1000}$", 201), ("^a{1,100000}$", 422), ("^((a{0,100}){0,100}){0,100}$", 422)]
    {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let path = format!("{DEFINITIONS}?dryRun=All");
        let (found, status) = call(&server, "POST", &path, &definition(&spec)).await;
        assert_eq!(found, code, "{pattern}: {status}");
        if code == 422 {
            let cause = &status["details"]["causes"][0];
            let field = "openAPIV3Schema.properties[spec].properties[a].pattern";
            assert!(cause["field"].as_str().unwrap().ends_with(field), "{status}");
            assert!(
                cause["message"].as_str().unwrap().contains("must be a valid regular expression"),
                "{cause}"
            );
        }
    }
}
