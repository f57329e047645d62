//! Selectable fields of custom kinds.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/wktest.io/v1/namespaces/wktest/bars";

fn definition(paths: &[&str]) -> Value {
    let field = |path: &&str| json!({"jsonPath": path});
    let number = |at: u8| (format!("f{at}"), json!({"type": "integer"}));
    let mut spec: serde_json::Map<_, _> = (0..9).map(number).collect();
    spec.extend([
        ("color".to_owned(), json!({"type": "string"})),
        ("on".to_owned(), json!({"type": "boolean"})),
        ("parts".to_owned(), json!({"type": "array", "items": {"type": "string"}})),
        ("labels".to_owned(), json!({"type": "object", "additionalProperties": {"type": "string"}})),
    ]);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    let fields: Vec<_> = paths.iter().map(field).collect();
    json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "selectableFields": fields,
            "schema": {"openAPIV3Schema": schema}}]}})
}

#[tokio::test(start_paused = true)]
async fn a_selectable_field_is_a_scalar_of_the_schema() {
    let server = Server::start().await;
    let at = "spec.selectableFields[0].jsonPath";
    let invalid =
        |path: &str, problem: &str| (at.to_owned(), format!("Invalid value: \"{path}\": {problem}"));
    let types = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
    let all: Vec<_> = (0..9).map(|at| format!(".spec.f{at}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    for (paths, expected) in [
        (&[".spec.x"][..], invalid(".spec.x", "is an invalid path: does not refer to a valid field")),
        (&["spec.color"], invalid("spec.color", "is an invalid path: expected [ or . but got: spec")),
        (&[".spec['color']"], invalid(".spec['color']", "is an invalid path: array notation is not allowed")),
        (&[".spec.parts"], invalid(".spec.parts", types)),
        (&[""], (at.to_owned(), "Required value".to_owned())),
        (
            &[".spec.on", ".spec.on"],
            ("spec.selectableFields[1].jsonPath".to_owned(), "Duplicate value: \".spec.on\"".to_owned()),
        ),
        (&all, ("spec.selectableFields".to_owned(), "Too many: 9: must have at most 8 items".to_owned())),
    ] {
        let (code, status) =
            call(&server, "POST", &format!("{DEFINITIONS}?dryRun=All"), &definition(paths)).await;
        assert_eq!(code, 422, "{paths:?}: {status}");
        let cause = &status["details"]["causes"][0];
        let found =
            (cause["field"].as_str().unwrap().to_owned(), cause["message"].as_str().unwrap().to_owned());
        assert_eq!(found, expected, "{paths:?}");
    }
    let right = definition(&[".spec.color", ".spec.on", ".spec.f1", ".spec.labels.a"]);
    let (code, status) = call(&server, "POST", &format!("{DEFINITIONS}?dryRun=All"), &right).await;
    assert_eq!(code, 201, "{status}");
}

#[tokio::test(start_paused = true)]
async fn lists_and_deletes_select_by_the_fields() {
    let server = Server::start().await;
    post(&server, DEFINITIONS, &definition(&[".spec.color", ".spec.on"])).await;
    server.until("served", async || (get(&server, BARS).await.0 == 200).then_some(())).await;
    for (name, color, on) in [("a", "red", true), ("b", "blue", false), ("c", "red", false)] {
        let spec = json!({"color": color, "on": on});
        post(
            &server,
            BARS,
            &json!({"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }
    let listed = async |selector: &str| {
        let (code, list) = get(&server, &format!("{BARS}?fieldSelector={selector}")).await;
        assert_eq!(code, 200, "{list}");
        names(&list).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed("spec.color%3Dred").await, ["a", "c"]);
    assert_eq!(listed("spec.color!%3Dred").await, ["b"]);
    assert_eq!(listed("spec.color%3Dred,spec.on%3Dfalse").await, ["c"]);
    let (code, status) = get(&server, &format!("{BARS}?fieldSelector=spec.f1%3D1")).await;
    assert_eq!((code, &status["message"]), (400, &json!("field label not supported: spec.f1")));
    let (code, _) =
        call(&server, "DELETE", &format!("{BARS}?fieldSelector=spec.on%3Dtrue"), &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(listed("").await, ["b", "c"]);
}
