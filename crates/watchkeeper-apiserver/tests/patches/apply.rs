//! Server-side apply.

use serde_json::json;

use crate::DEPLOYMENTS;
use crate::common::*;

const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test(start_paused = true)]
async fn an_apply_that_does_not_fit_its_kind_is_refused_with_the_place() {
    let server = Server::start().await;
    let path = format!("{DEPLOYMENTS}/d?fieldManager=one");
    let containers = "/spec/template/spec/containers";
    for (place, value, problem) in [
        ("/spec/replicas", json!("3"), ".spec.replicas: expected numeric (int or float), got string"),
        (
            containers,
            json!([{"name": "c", "surprise": 1}]),
            ".spec.template.spec.containers[name=\"c\"].surprise: field not declared in schema",
        ),
        (
            containers,
            json!([{"name": "c"}, {"name": "c"}]),
            ".spec.template.spec.containers: duplicate entries for key [name=\"c\"]",
        ),
    ] {
        let mut config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        config["spec"]["replicas"] = 1.into();
        *config.pointer_mut(place).unwrap() = value;
        let (code, status) = patch(&server, &path, APPLY, &config).await;
        assert_eq!(code, 500, "{status}");
        assert!(status["message"].as_str().unwrap().ends_with(problem), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_without_effect_has_no_time() {
    let server = Server::start().await;
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    post(&server, CONFIG_MAPS, &object).await;
    let path = format!("{CONFIG_MAPS}/a?fieldManager=one");
    let (_, applied) = patch(&server, &path, APPLY, &object).await;
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let one = managers.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!(one.get("time"), None);
}

#[tokio::test(start_paused = true)]
async fn an_applied_null_leaves_the_parts_that_others_have() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {}}, "data": null});
    let (code, object) = patch(&server, &format!("{CONFIG_MAPS}/a?fieldManager=one"), APPLY, &config).await;
    assert_eq!((code, &object["data"]), (200, &json!({"k": "v"})), "{object}");
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let one = managers.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!(one["fieldsV1"], json!({"f:data": {}, "f:metadata": {"f:labels": {}}}));
}
