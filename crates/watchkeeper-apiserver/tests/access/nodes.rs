//! What a node may do: read what Pods on it refer to, and write its own object.

use serde_json::{Value, json};

use crate::common::{Server, call, post, raw};
use crate::refused;

const NODE: &str = "wktest-node";
const SECRETS: &str = "/api/v1/namespaces/wktest/secrets";

async fn as_node(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let user = format!("system:node:{NODE}");
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", user.as_str()),
        ("impersonate-group", "system:nodes"),
    ];
    let text = if body.is_null() { String::new() } else { body.to_string() };
    raw(server, method, path, &headers, &text).await
}

async fn get(server: &Server, path: &str) -> (u16, Value) {
    as_node(server, "GET", path, &Value::Null).await
}

/// A real server runs with the node authorizer only if it is started so.
async fn server() -> Option<Server> {
    let server = Server::with_roles().await;
    server.inside().is_some().then_some(server)
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_pods_on_it_refer_to() {
    let Some(server) = server().await else { return };
    let unrelated = |resource: &str, name: &str| {
        format!(
            "{resource} \"{name}\" is forbidden: User \"system:node:{NODE}\" cannot get resource \"{resource}\" in API group \"\" in the namespace \"wktest\": no relationship found between node '{NODE}' and this object"
        )
    };
    for name in ["volume", "env", "pull", "other"] {
        post(&server, SECRETS, &json!({"metadata": {"name": name}})).await;
        // An absent object is refused alike.
        assert_eq!(
            refused(get(&server, &format!("{SECRETS}/{name}")).await, 403),
            unrelated("secrets", name)
        );
    }
    assert_eq!(refused(get(&server, &format!("{SECRETS}/none")).await, 403), unrelated("secrets", "none"));
    let pod = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "nodeName": node,
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"name": "c", "image": "i", "env": [
                {"name": "E", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "volume"}},
                {"name": "b", "projected": {"sources": [{"configMap": {"name": "map"}}]}}]}})
    };
    let pods = "/api/v1/namespaces/wktest/pods";
    post(&server, pods, &pod("elsewhere", "another-node")).await;
    assert_eq!(get(&server, &format!("{SECRETS}/volume")).await.0, 403);
    post(&server, pods, &pod("here", NODE)).await;
    for name in ["volume", "env", "pull"] {
        assert_eq!(get(&server, &format!("{SECRETS}/{name}")).await.0, 200, "{name}");
    }
    assert_eq!(get(&server, &format!("{SECRETS}/other")).await.0, 403);
    let maps = "/api/v1/namespaces/wktest/configmaps";
    // The Pod refers to it, so that it does not exist is no secret.
    assert_eq!(get(&server, &format!("{maps}/map")).await.0, 404);
    assert_eq!(refused(get(&server, &format!("{maps}/no")).await, 403), unrelated("configmaps", "no"));
    assert!(refused(get(&server, SECRETS).await, 403).ends_with(": No Object name found"));
    let deleted = as_node(&server, "DELETE", &format!("{SECRETS}/volume"), &Value::Null).await;
    assert!(refused(deleted, 403).ends_with(": can only read resources of this type"));
}

#[tokio::test(start_paused = true)]
async fn a_node_writes_its_own_object_only() {
    let Some(server) = server().await else { return };
    let nodes = "/api/v1/nodes";
    let node = |name: &str| json!({"metadata": {"name": name}});
    let problem =
        format!("nodes \"foo\" is forbidden: node \"{NODE}\" is not allowed to modify node \"foo\"");
    assert_eq!(refused(as_node(&server, "POST", nodes, &node("foo")).await, 403), problem);
    assert_eq!(as_node(&server, "POST", nodes, &node(NODE)).await.0, 201);
    post(&server, nodes, &node("foo")).await;
    assert_eq!(refused(as_node(&server, "PUT", &format!("{nodes}/foo"), &node("foo")).await, 403), problem);
    let deleted = as_node(&server, "DELETE", &format!("{nodes}/foo"), &Value::Null).await;
    assert!(refused(deleted, 403).contains("cannot delete resource \"nodes\""));
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(as_node(&server, "POST", leases, &node(NODE)).await.0, 201);
    assert_eq!(get(&server, &format!("{leases}/{NODE}")).await.0, 200);
    assert_eq!(get(&server, &format!("{leases}/foo")).await.0, 403);
    // Without the group, the name alone gives nothing.
    let other = [("impersonate-user", "system:node:x"), ("impersonate-group", "others")];
    assert_eq!(raw(&server, "GET", nodes, &other, "").await.0, 403);
    assert_eq!(call(&server, "GET", nodes, &Value::Null).await.0, 200);
}
