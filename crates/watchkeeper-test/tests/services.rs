//! Services and quotas on a test cluster: the Pods behind a Service, and what they use of a quota.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, ResourceQuota, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_core::params::Patch;
use serde_json::{Value, json};
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Env, Kind, ObjectName};
use watchkeeper_test::TestCluster;

async fn cluster() -> TestCluster {
    let patience = Duration::from_secs(600);
    TestCluster::builder().env(&Env::simulated(1)).patience(patience).nodes(1).without_operator().await
}

async fn list<K: Kind<DynamicType: Default>>(cluster: &TestCluster, labels: &str) -> Vec<K> {
    let selection = Selection { labels: labels.to_owned(), ..Selection::default() };
    let scope = Scope::Namespace("default".to_owned());
    cluster.client().api::<K>().list(&scope, &selection).await.unwrap().complete().unwrap()
}

async fn patch<K: Kind<DynamicType: Default>>(cluster: &TestCluster, name: &str, patch: Value) {
    let key = ObjectName::namespaced("default", name);
    cluster.client().api::<K>().patch(&key, &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the slices of a Service have so many endpoints that are ready, and are so many.
async fn slices(cluster: &TestCluster, service: &str, ready: usize, count: usize) -> Vec<EndpointSlice> {
    for _ in 0..600 {
        let slices = list::<EndpointSlice>(cluster, &format!("kubernetes.io/service-name={service}")).await;
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let is_ready = endpoints.filter(|it| it.conditions.as_ref().unwrap().ready == Some(true)).count();
        if (is_ready, slices.len()) == (ready, count) {
            return slices;
        }
        cluster.client().env().clock.sleep(Duration::from_secs(1)).await;
    }
    panic!("the slices of {service} never had {ready} ready endpoints");
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: a, ports: [{name: http, containerPort: 8080}]}]}
";
const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, labels: {team: a}}
spec: {selector: {app: web}, ports: [{name: web, port: 80, targetPort: http}]}
";

#[tokio::test(start_paused = true)]
async fn a_service_has_the_pods_that_it_selects() {
    let cluster = cluster().await;
    cluster.apply(SERVICE).await;
    let empty = slices(&cluster, "web", 0, 1).await;
    assert_eq!(empty[0].ports.as_deref().unwrap_or_default().len(), 0);
    cluster.apply(WEB).await;
    let slice = &slices(&cluster, "web", 3, 1).await[0];
    assert_eq!(slice.metadata.name, empty[0].metadata.name);
    let labels = slice.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "endpointslice-controller.k8s.io");
    assert_eq!(labels["team"], "a");
    assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(8080));
    let pods = list::<Pod>(&cluster, "app=web").await;
    for endpoint in slice.endpoints.as_ref().unwrap() {
        let target = endpoint.target_ref.as_ref().unwrap();
        let pod = pods.iter().find(|pod| pod.metadata.uid == target.uid).unwrap();
        assert_eq!(Some(&endpoint.addresses[0]), pod.status.as_ref().unwrap().pod_ip.as_ref());
        assert_eq!(endpoint.node_name.as_deref(), Some("node-1"));
    }
    let is_full = |of: &Endpoints| {
        let subsets = of.subsets.as_deref().unwrap_or_default();
        subsets.iter().any(|subset| subset.addresses.as_ref().is_some_and(|all| all.len() == 3))
    };
    let endpoints = cluster.eventually::<Endpoints>("default/web", is_full).await;
    assert_eq!(
        endpoints.metadata.labels.unwrap()["endpoints.kubernetes.io/managed-by"],
        "endpoint-controller"
    );

    patch::<Deployment>(&cluster, "web", json!({"spec": {"replicas": 1}})).await;
    slices(&cluster, "web", 1, 1).await;
    cluster.delete::<Service>("default/web").await;
    slices(&cluster, "web", 0, 0).await;
    cluster.eventually_gone::<Endpoints>("default/web").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_ready_is_listed_and_gets_no_traffic() {
    let cluster = cluster().await;
    cluster.apply(SERVICE).await;
    cluster
        .apply(&WEB.replace(
            "labels: {app: web}}",
            "labels: {app: web}, annotations: {watchkeeper.dev/ready-delay: never}}",
        ))
        .await;
    let unready = |of: &Endpoints| {
        let subsets = of.subsets.as_deref().unwrap_or_default();
        subsets.iter().any(|it| it.not_ready_addresses.as_ref().is_some_and(|all| all.len() == 3))
    };
    cluster.eventually::<Endpoints>("default/web", unready).await;
    let slice = &slices(&cluster, "web", 0, 1).await[0];
    assert_eq!(slice.endpoints.as_ref().unwrap().len(), 3);
    patch::<Service>(&cluster, "web", json!({"spec": {"publishNotReadyAddresses": true}})).await;
    slices(&cluster, "web", 3, 1).await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_a_user_writes_are_mirrored() {
    let cluster = cluster().await;
    cluster
        .apply("{apiVersion: v1, kind: Service, metadata: {name: db}, spec: {ports: [{port: 5432}]}}")
        .await;
    let endpoints = "{apiVersion: v1, kind: Endpoints, metadata: {name: db, annotations: {note: x}}, \
         subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 5432}]}]}";
    cluster.apply(endpoints).await;
    let slice = &slices(&cluster, "db", 1, 1).await[0];
    let labels = slice.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "endpointslicemirroring-controller.k8s.io");
    assert_eq!(slice.metadata.annotations.as_ref().unwrap()["note"], "x");
    assert_eq!(slice.metadata.owner_references.as_ref().unwrap()[0].kind, "Endpoints");
    let two = json!([{"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}], "ports": [{"port": 5432}]}]);
    patch::<Endpoints>(&cluster, "db", json!({ "subsets": two })).await;
    slices(&cluster, "db", 2, 1).await;
    patch::<Endpoints>(
        &cluster,
        "db",
        json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}),
    )
    .await;
    slices(&cluster, "db", 0, 0).await;
    patch::<Endpoints>(&cluster, "db", json!({"metadata": {"labels": null}})).await;
    slices(&cluster, "db", 2, 1).await;
    cluster.delete::<Endpoints>("default/db").await;
    slices(&cluster, "db", 0, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_says_what_is_used() {
    let cluster = cluster().await;
    let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: '5', count/deployments.apps: '2', \
         count/leases.coordination.k8s.io: '3', services.nodeports: '4'}}}";
    cluster.apply(quota).await;
    cluster.apply(WEB).await;
    cluster.apply(&SERVICE.replace("spec: {selector", "spec: {type: NodePort, selector")).await;
    cluster.apply("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}, spec: {}}").await;
    let expected = json!({"pods": "3", "count/deployments.apps": "1", "count/leases.coordination.k8s.io": "1",
        "services.nodeports": "1"});
    let says = |it: &ResourceQuota, expected: &Value| {
        let status = serde_json::to_value(&it.status).unwrap();
        status["used"] == *expected && status["hard"] == serde_json::to_value(&it.spec).unwrap()["hard"]
    };
    cluster.eventually::<ResourceQuota>("default/q", |it| says(it, &expected)).await;
    cluster.delete::<Deployment>("default/web").await;
    cluster.delete::<Service>("default/web").await;
    let none = json!({"pods": "0", "count/deployments.apps": "0", "count/leases.coordination.k8s.io": "1",
        "services.nodeports": "0"});
    cluster.eventually::<ResourceQuota>("default/q", |it| says(it, &none)).await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_are_removed() {
    let cluster = cluster().await;
    let spec = "spec: {nodeName: lost, containers: [{name: main, image: a}]}";
    cluster.apply("{apiVersion: v1, kind: Node, metadata: {name: lost}}").await;
    cluster.apply(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, {spec}}}")).await;
    cluster.client().env().clock.sleep(Duration::from_secs(100)).await;
    assert!(cluster.get::<Pod>("default/p").await.is_some());
    cluster.client().api::<Node>().delete(&ObjectName::cluster("lost")).await.unwrap();
    let start = cluster.client().env().clock.wall();
    cluster.eventually_gone::<Pod>("default/p").await;
    let took = cluster.client().env().clock.wall().duration_since(start).as_secs();
    assert!((39..60).contains(&took), "after {took} s");
}
