//! Behaviour that kubectl relies on: migration to server-side apply, logs of pending pods, duplicate keys.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::{CONFIG_MAPS, MERGE, OURS, Server, call, get, patch, post, raw, send};
use serde_json::{Value, json};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const APPLY: &[(&str, &str)] = &[("content-type", "application/apply-patch+yaml")];

/// Creates a ConfigMap as client-side `kubectl apply` with these data leaves it.
async fn applied_by_client(server: &Server, data: &Value) {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let mut object = config.clone();
    object["metadata"]["annotations"] = json!({ANNOTATION: config.to_string()});
    post(server, &format!("{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply"), &object).await;
}

async fn apply(server: &Server, manager: &str, data: &Value) -> (u16, Value) {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let path = format!("{CONFIG_MAPS}/a?fieldManager={manager}");
    raw(server, "PATCH", &path, APPLY, &config.to_string()).await
}

#[tokio::test]
async fn kubectl_takes_over_what_it_applied_on_its_own_side() {
    let server = Server::embedded(|settings| settings).await;
    applied_by_client(&server, &json!({"x": "1", "y": "1"})).await;
    let (code, refused) = apply(&server, "somebody", &json!({"x": "2"})).await;
    assert_eq!(code, 409, "{refused}");
    let (code, applied) = apply(&server, "kubectl", &json!({"x": "2"})).await;
    assert_eq!((code, &applied["data"]["x"]), (200, &json!("2")));
    let noted: Value =
        serde_json::from_str(applied["metadata"]["annotations"][ANNOTATION].as_str().unwrap()).unwrap();
    let metadata = json!({"name": "a", "namespace": OURS});
    assert_eq!(
        noted,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "2"}})
    );
}

#[tokio::test]
async fn kubectl_does_not_take_what_others_have_changed_since() {
    let server = Server::embedded(|settings| settings).await;
    applied_by_client(&server, &json!({"x": "1", "y": "1"})).await;
    patch(&server, &format!("{CONFIG_MAPS}/a?fieldManager=somebody"), MERGE, &json!({"data": {"x": "9"}}))
        .await;
    let (code, refused) = apply(&server, "kubectl", &json!({"x": "2", "y": "2"})).await;
    assert_eq!(code, 409);
    let message = "Apply failed with 1 conflict: conflict with \"somebody\" using v1: .data.x";
    assert_eq!(refused["message"], message);
}

#[tokio::test]
async fn an_apply_that_changes_nothing_has_no_time() {
    let server = Server::embedded(|settings| settings).await;
    applied_by_client(&server, &json!({"x": "1"})).await;
    let (_, applied) = apply(&server, "somebody", &json!({"x": "1"})).await;
    let entries = applied["metadata"]["managedFields"].as_array().unwrap();
    let times: Vec<_> = entries
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry.get("time").is_some()))
        .collect();
    assert_eq!(times, [("somebody", false), ("kubectl-client-side-apply", true)]);
}

#[tokio::test]
async fn keys_that_are_there_twice_in_yaml_are_warned_of_or_refused() {
    let server = Server::embedded(|settings| settings).await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata:\n  x: '1'\n  x: '2'\n  y: '1'\n  y: '2'\n";
    let twice = ["line 6: key \"x\" already set in map", "line 8: key \"y\" already set in map"];
    let created = [("content-type", "application/yaml")];
    let applied = format!("{CONFIG_MAPS}/b?fieldManager=m&");
    for (method, path, headers, refusal) in [
        (
            "POST",
            format!("{CONFIG_MAPS}?"),
            &created[..],
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error",
        ),
        ("PATCH", applied, APPLY, "error strict decoding YAML: error converting YAML to JSON"),
    ] {
        let strict = format!("{path}fieldValidation=Strict");
        let (code, refused) = raw(&server, method, &strict, headers, text).await;
        let problem = format!("{refusal}: yaml: unmarshal errors:\n  {}", twice.join("\n  "));
        assert_eq!((code, &refused["message"]), (400, &json!(problem)));
        let warn = format!("{path}fieldValidation=Warn&dryRun=All");
        let answer = send(&server, method, &warn, headers, text).await;
        let warnings: Vec<_> =
            answer.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
        assert_eq!(warnings, twice.map(|line| format!("299 - {}", Value::from(line))), "{method}");
    }
}

#[tokio::test]
async fn the_log_of_a_pod_without_a_node_is_empty() {
    let server = Server::embedded(|settings| settings).await;
    let pods = "/api/v1/namespaces/default/pods";
    let containers = json!([{"name": "one", "image": "i"}, {"name": "two", "image": "i"}]);
    post(&server, pods, &json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})).await;
    assert_eq!(get(&server, &format!("{pods}/p/log?container=two")).await, (204, json!("")));
    for (query, message) in [
        ("", "a container name must be specified for pod p, choose one of: [one two]"),
        ("?container=three", "container three is not valid for pod p"),
    ] {
        let (code, refused) = get(&server, &format!("{pods}/p/log{query}")).await;
        assert_eq!((code, &refused["message"]), (400, &json!(message)));
    }
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(call(&server, "POST", &format!("{pods}/p/binding"), &binding).await.0, 201);
    assert_eq!(get(&server, &format!("{pods}/p/log?container=two")).await.0, 404, "no such node");
    post(&server, "/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    assert_eq!(get(&server, &format!("{pods}/p/log?container=two")).await.0, 500, "no address of the node");
}
