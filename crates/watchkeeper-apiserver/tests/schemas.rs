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

/// What the server says of a definition with this schema; it is not kept.
async fn judge(server: &Server, spec: &Value) -> (u16, Value) {
    call(server, "POST", &format!("{DEFINITIONS}?dryRun=All"), &definition(spec)).await
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
    let mut two =
        definition(&json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}));
    let mut other = two["spec"]["versions"][0].clone();
    other["name"] = "v2".into();
    other["storage"] = false.into();
    other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({});
    two["spec"]["versions"].as_array_mut().unwrap().push(other);
    let (_, status) = call(&server, "POST", DEFINITIONS, &two).await;
    let field = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].pattern";
    assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    for (pattern, code) in
        [("^.{1,1000}$", 201), ("^a{1,100000}$", 422), ("^((a{0,100}){0,100}){0,100}$", 422)]
    {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let (found, status) = judge(&server, &spec).await;
        assert_eq!(found, code, "{pattern}: {status}");
        if code == 422 {
            let cause = &status["details"]["causes"][0];
            // A schema that all versions have is told as that of the whole definition.
            let field = "spec.validation.openAPIV3Schema.properties[spec].properties[a].pattern";
            assert_eq!(cause["field"], field, "{status}");
            assert!(
                cause["message"].as_str().unwrap().contains("must be a valid regular expression"),
                "{cause}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rules_that_could_take_too_long_are_refused() {
    let server = Server::start().await;
    let numbers = |most: Option<u64>| match most {
        Some(most) => json!({"type": "array", "maxItems": most, "items": {"type": "integer"}}),
        None => json!({"type": "array", "items": {"type": "integer"}}),
    };
    let lists = |most: Option<u64>| json!({"type": "array", "items": {"type": "object", "properties": {"n": numbers(most)}}});
    let maps = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let once = "self.n.all(x, x > 0)";
    let twice = "self.n.all(x, self.n.all(y, x + y > 0))";
    for (field, rule, code) in [
        (numbers(Some(100)), once, 201),
        (numbers(Some(100)), twice, 201),
        (numbers(None), twice, 422),
        (maps, "self.n.all(k, self.n.exists(l, self.n[k] == self.n[l]))", 422),
        (numbers(None), "self.n.filter(x, x > 0).all(x, self.n.map(y, y + x).exists(y, y > 0))", 422),
        (lists(None), "self.n.all(x, x.n.all(y, y > 0))", 422),
    ] {
        let spec = json!({"type": "object", "properties": {"n": field}, "x-kubernetes-validations": [{"rule": rule}]});
        let (found, status) = judge(&server, &spec).await;
        assert_eq!(found, code, "{rule}: {status}");
        if code == 422 {
            let cause = &status["details"]["causes"][0];
            let field = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
            assert_eq!(cause["field"], field, "{status}");
            let problem = "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
            assert_eq!(cause["message"], problem);
        }
    }
    // A rule that is looked at for each element counts as often.
    let mut spec = json!({"type": "object", "properties": {"n": lists(Some(100))}});
    spec["properties"]["n"]["items"]["x-kubernetes-validations"] = json!([{"rule": twice}]);
    assert_eq!(judge(&server, &spec).await.0, 422);
    spec["properties"]["n"]["maxItems"] = 2.into();
    assert_eq!(judge(&server, &spec).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_read_by_the_schema_as_it_is_now() {
    let server = Server::start().await;
    let before = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    define(&server, &before).await;
    let made = post(&server, BARS, &bar("b", &json!({"a": "1", "b": "2"}))).await;
    post(&server, BARS, &bar("other", &json!({"a": "2", "c": {}}))).await;
    let nested = json!({"type": "object", "properties": {"d": {"type": "integer", "default": 5}}});
    let after = json!({"type": "object", "properties": {"a": {"type": "string"}, "c": nested, "e": {"type": "integer", "default": 7}}});
    let mut versions = definition(&after)["spec"]["versions"].clone();
    versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.a"}]);
    let path = format!("{DEFINITIONS}/bars.wktest.io");
    let (code, answer) = patch(&server, &path, MERGE, &json!({"spec": {"versions": versions}})).await;
    assert_eq!(code, 200, "{answer}");
    let object = format!("{BARS}/b");
    let renewed = async || (get(&server, &object).await.1["spec"]["e"] == 7).then_some(());
    assert!(server.inside().is_none() || renewed().await.is_some(), "not at once");
    server.until("read anew", renewed).await;
    let (_, read) = get(&server, &object).await;
    assert_eq!(read["spec"], json!({"a": "1", "e": 7}));
    assert_eq!(read["metadata"], made["metadata"], "nothing was written");
    let (_, list) = get(&server, &format!("{BARS}?fieldSelector=spec.a%3D1")).await;
    assert_eq!((names(&list), &list["items"][0]["spec"]), (vec!["b"], &read["spec"]), "{list}");
    // Whoever writes what is there brings the store up to date, once.
    let (code, written) = call(&server, "PUT", &object, &read).await;
    assert_eq!(code, 200, "{written}");
    assert_eq!(written["spec"], read["spec"]);
    assert_eq!(&written["metadata"]["generation"], &read["metadata"]["generation"]);
    assert!(version(&written) > version(&read), "{written}");
    let (_, again) = call(&server, "PUT", &object, &written).await;
    assert_eq!(version(&again), version(&written));
    let mut watch =
        Watch::open(&server, &format!("{BARS}?watch=1&resourceVersion={}", version(&again))).await;
    patch(&server, &object, MERGE, &json!({"spec": {"c": {}}})).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["c"]), (&json!("MODIFIED"), &json!({"d": 5})));
}

#[tokio::test(start_paused = true)]
async fn what_a_schema_did_not_show_is_there_when_another_does() {
    let server = Server::start().await;
    let text = json!({"type": "string"});
    let both = json!({"type": "object", "properties": {"a": text, "b": text, "c": text}});
    define(&server, &both).await;
    let made = post(&server, BARS, &bar("b", &json!({"a": "1", "b": "2"}))).await;
    let defaulted = json!({"type": "string", "default": "3"});
    let other = json!({"type": "object", "properties": {"a": text, "c": defaulted}});
    for (schema, spec) in [(&other, json!({"a": "1", "c": "3"})), (&both, json!({"a": "1", "b": "2"}))] {
        let change = json!({"spec": {"versions": definition(schema)["spec"]["versions"]}});
        let (code, answer) = patch(&server, &format!("{DEFINITIONS}/bars.wktest.io"), MERGE, &change).await;
        assert_eq!(code, 200, "{answer}");
        let read = async || get(&server, &format!("{BARS}/b")).await.1;
        if server.inside().is_none() {
            server.until("read anew", async || (read().await["spec"] == spec).then_some(())).await;
        }
        assert_eq!((&read().await["spec"], &read().await["metadata"]), (&spec, &made["metadata"]));
    }
    let (_, written) = call(&server, "PUT", &format!("{BARS}/b"), &made).await;
    assert_eq!(version(&written), version(&made), "it is as it was written");
}
