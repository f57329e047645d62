//! `ResourceQuota`. On the embedded server alone: a quota would reach objects of other tests.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::common::{CONFIG_MAPS, MERGE, Server, call, config_map, get, patch, post};
use crate::{PODS, refused};

const QUOTAS: &str = "/api/v1/namespaces/wktest/resourcequotas";
const SERVICES: &str = "/api/v1/namespaces/wktest/services";

/// A server with a quota whose status its controller has written.
async fn server(spec: Value) -> Server {
    let server = Server::embedded_with_admission("ResourceQuota").await;
    post(&server, QUOTAS, &json!({"metadata": {"name": "q"}, "spec": spec})).await;
    let hard = spec["hard"].as_object().unwrap();
    let none: Value =
        hard.keys().map(|name| (name.clone(), json!("0"))).collect::<serde_json::Map<_, _>>().into();
    let status = json!({"status": {"hard": hard, "used": none}});
    assert_eq!(patch(&server, &format!("{QUOTAS}/q/status"), MERGE, &status).await.0, 200);
    server
}

async fn used(server: &Server) -> Value {
    get(server, &format!("{QUOTAS}/q")).await.1["status"]["used"].clone()
}

fn pod(name: &str, resources: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": resources});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_charged_or_refused() {
    let server = server(json!({"hard": {"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"}})).await;
    let resources = json!({"requests": {"cpu": "600m"}, "limits": {"memory": "512Mi"}});
    post(&server, PODS, &pod("a", &resources)).await;
    assert_eq!(used(&server).await, json!({"pods": "1", "requests.cpu": "600m", "limits.memory": "512Mi"}));
    assert_eq!(
        refused(call(&server, "POST", PODS, &pod("b", &resources)).await, 403),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    assert_eq!(
        refused(call(&server, "POST", PODS, &pod("b", &json!({"requests": {"cpu": "1m"}}))).await, 403),
        "pods \"b\" is forbidden: failed quota: q: must specify limits.memory for: c"
    );
    let dry = format!("{PODS}?dryRun=All");
    let small = json!({"requests": {"cpu": "1m"}, "limits": {"memory": "1Mi"}});
    assert_eq!(call(&server, "POST", &dry, &pod("b", &small)).await.0, 201);
    assert_eq!(used(&server).await["pods"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_quota_without_a_status_is_not_in_force_or_unknown() {
    let server = Server::embedded_with_admission("ResourceQuota").await;
    post(&server, QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "0"}}})).await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let status = json!({"status": {"hard": {"configmaps": "0"}}});
    patch(&server, &format!("{QUOTAS}/q/status"), MERGE, &status).await;
    assert_eq!(
        refused(call(&server, "POST", CONFIG_MAPS, &config_map("b", &json!({}))).await, 403),
        "configmaps \"b\" is forbidden: status unknown for quota: q, resources: configmaps"
    );
}

#[tokio::test(start_paused = true)]
async fn only_objects_in_scope_are_charged() {
    let server = server(json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})).await;
    post(&server, PODS, &pod("a", &json!({"requests": {"cpu": "1"}}))).await;
    assert_eq!(used(&server).await["pods"], "0");
    post(&server, PODS, &pod("b", &json!({}))).await;
    assert_eq!(used(&server).await["pods"], "1");
    let (code, _) = call(&server, "POST", PODS, &pod("c", &json!({}))).await;
    assert_eq!(code, 403);
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_service_is_charged_for_what_it_adds() {
    let server = server(json!({"hard": {"services": "2", "services.nodeports": "1"}})).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    post(&server, SERVICES, &service).await;
    let path = format!("{SERVICES}/s");
    let (code, _) = patch(&server, &path, MERGE, &json!({"spec": {"type": "NodePort"}})).await;
    assert_eq!((code, used(&server).await), (200, json!({"services": "1", "services.nodeports": "1"})));
    let ports = json!([{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]);
    assert_eq!(
        refused(patch(&server, &path, MERGE, &json!({"spec": {"ports": ports}})).await, 403),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, \
         limited: services.nodeports=1"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_is_used_than_allowed_by_many_at_once() {
    let server = server(json!({"hard": {"count/configmaps": "7"}})).await;
    let names: Vec<_> = (0..20).map(|at| format!("m{at}")).collect();
    let made = join_all(
        names
            .iter()
            .map(async |name| call(&server, "POST", CONFIG_MAPS, &config_map(name, &json!({}))).await.0),
    );
    let codes = made.await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 7, "{codes:?}");
    assert_eq!(used(&server).await["count/configmaps"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_quota_below_zero_is_refused() {
    let server = Server::embedded_with_admission("ResourceQuota").await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "-1", "secrets": "1.5"}}});
    assert_eq!(
        refused(call(&server, "POST", QUOTAS, &quota).await, 422),
        "ResourceQuota \"q\" is invalid: [spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0, \
         spec.hard[secrets]: Invalid value: \"1500m\": must be an integer]"
    );
}
