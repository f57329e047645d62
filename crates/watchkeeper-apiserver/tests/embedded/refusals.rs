//! Hostile and confidential input.

use crate::common::*;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn no_refusal_repeats_the_content_of_a_secret() {
    let server = Server::embedded(|settings| settings).await;
    let secrets = "/api/v1/namespaces/wktest/secrets";
    for body in [
        r#"{"metadata":{"name":"s"},"data":{"a":"hunter2!"}}"#,
        r#"{"metadata":{"name":"s"},"data":{"a":"hunter2!"}"#,
        r#"{"metadata":{"name":"S"},"stringData":{"a":"hunter2!"}}"#,
        r#"{"metadata":{"name":"s"},"data":"hunter2!"}"#,
    ] {
        let (code, status) = raw(&server, "POST", secrets, &[], body).await;
        assert!(code >= 400 && !status.to_string().contains("hunter2"), "{status}");
    }
    post(&server, secrets, &json!({"metadata": {"name": "s"}, "stringData": {"a": "hunter2!"}})).await;
    for change in [json!({"data": {"b": 7}}), json!({"metadata": {"labels": {"!": "x"}}})] {
        let (code, status) = patch(&server, &format!("{secrets}/s"), MERGE, &change).await;
        assert!(code == 422 && !status.to_string().contains("aHVudGVyMiE"), "{status}");
    }
}

/// No request makes the server panic.
#[tokio::test(start_paused = true)]
async fn odd_objects_are_answered_and_never_panic() {
    let server = Server::embedded(|settings| settings).await;
    let odd = [
        json!(null),
        json!(1),
        json!("x"),
        json!([]),
        json!([null, 1, "x", {}]),
        json!({}),
        json!({"a": null}),
    ];
    let collections = [
        "/api/v1/namespaces/wktest/pods",
        "/api/v1/namespaces/wktest/services",
        "/api/v1/namespaces/wktest/secrets",
        "/api/v1/namespaces/wktest/events",
        "/apis/events.k8s.io/v1/namespaces/wktest/events",
        "/apis/apps/v1/namespaces/wktest/deployments",
        "/apis/apps/v1/namespaces/wktest/statefulsets",
        "/apis/batch/v1/namespaces/wktest/cronjobs",
        "/apis/batch/v1/namespaces/wktest/jobs",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/autoscaling/v2/namespaces/wktest/horizontalpodautoscalers",
        "/api/v1/namespaces",
        "/api/v1/nodes",
    ];
    let fields = [
        "/spec",
        "/status",
        "/metadata",
        "/data",
        "/stringData",
        "/spec/template",
        "/spec/template/spec",
        "/spec/template/spec/containers",
        "/spec/containers",
        "/spec/strategy",
        "/spec/strategy/rollingUpdate",
        "/spec/selector",
        "/spec/ports",
        "/spec/names",
        "/spec/versions",
        "/spec/conversion",
        "/spec/jobTemplate",
        "/spec/jobTemplate/spec",
        "/spec/tolerations",
        "/subjects",
        "/roleRef",
        "/involvedObject",
        "/source",
        "/metadata/labels",
        "/metadata/ownerReferences",
        "/spec/finalizers",
        "/status/conditions",
    ];
    let mut number = 0;
    for collection in collections {
        for field in fields {
            for value in &odd {
                number += 1;
                let mut object = json!({"metadata": {"name": format!("o{number}")}});
                let mut at = &mut object;
                for part in field.trim_start_matches('/').split('/') {
                    if !at.is_object() {
                        *at = json!({});
                    }
                    at = &mut at[part];
                }
                *at = value.clone();
                let (code, answer) = call(&server, "POST", collection, &object).await;
                assert!((200..500).contains(&code), "{collection} {object}: {answer}");
                if code == 201 {
                    let name = answer["metadata"]["name"].as_str().unwrap();
                    for kind in [MERGE, STRATEGIC] {
                        let (code, answer) =
                            patch(&server, &format!("{collection}/{name}"), kind, &object).await;
                        assert!(code <= 500, "{answer}");
                    }
                    call(&server, "DELETE", &format!("{collection}/{name}"), &Value::Null).await;
                }
            }
        }
    }
}

/// Passes on the small stack of an unoptimized test, too.
#[tokio::test(start_paused = true)]
async fn deep_rules_are_followed_and_deeper_ones_refused() {
    let server = Server::embedded(|settings| settings).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (deep, code) in [(40, 201), (10_000, 422)] {
        for rule in [
            format!("{}self.n == 1{}", "(".repeat(deep), ")".repeat(deep)),
            format!("self.n{} > 0", " + 1".repeat(2 * deep)),
            format!("{}true", "self.n > 1 ? false : ".repeat(deep)),
            format!("{}true{}", "[1].all(x, ".repeat(deep), ")".repeat(deep)),
        ] {
            let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]});
            let definition = json!({"metadata": {"name": "bars.example.com"}, "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}});
            let (found, answer) = call(&server, "POST", definitions, &definition).await;
            assert_eq!(found, code, "{}: {}", &rule[..20], answer["message"]);
            if code == 201 {
                let bar = json!({"apiVersion": "example.com/v1", "kind": "Bar", "metadata": {"name": "b"}, "spec": {"n": 1}});
                post(&server, "/apis/example.com/v1/bars", &bar).await;
                call(&server, "DELETE", &format!("{definitions}/bars.example.com"), &Value::Null).await;
            }
        }
    }
}
