//! The controllers of endpoints through every fault: the user plays Pods and nodes.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use watchkeeper::Kind;
use watchkeeper_controllers::{endpoint_slice, endpoint_slice_mirroring, endpoints};
use watchkeeper_sim::{Check, User};

async fn create<K>(user: &User, object: Value)
where
    K: Kind<DynamicType: Default> + Serialize + DeserializeOwned + std::fmt::Debug,
{
    user.create(&serde_json::from_value::<K>(object).unwrap()).await;
}

async fn run_pod(user: &User, name: &str, address: &str) {
    let spec = json!({"nodeName": "n1", "containers": [{"name": "main", "image": "a"}]});
    let metadata = json!({"name": name, "namespace": "default", "labels": {"app": "a"}});
    create::<Pod>(user, json!({"metadata": metadata, "spec": spec})).await;
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status =
        json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]});
    user.patch_status::<Pod>(&format!("default/{name}"), json!({ "status": status })).await;
}

/// A Service gets Pods, loses one, and another Service gets Endpoints from the user.
async fn services(user: &User) {
    create::<Node>(user, json!({"metadata": {"name": "n1"}})).await;
    let spec = json!({"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": 8080}]});
    create::<Service>(user, json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})).await;
    run_pod(user, "p1", "10.1.0.1").await;
    run_pod(user, "p2", "10.1.0.2").await;
    user.settle().await;
    user.delete::<Pod>("default/p1").await;
    user.patch::<Service>("default/web", json!({"metadata": {"labels": {"team": "b"}}})).await;

    let metadata = json!({"name": "db", "namespace": "default"});
    create::<Service>(user, json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}})).await;
    let subset = json!({"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]});
    create::<Endpoints>(user, json!({"metadata": metadata, "subsets": [subset]})).await;
    user.patch::<Endpoints>("default/db", json!({"metadata": {"labels": {"team": "b"}}})).await;
    user.settle().await;

    create::<Service>(user, json!({"metadata": {"name": "old", "namespace": "default"}, "spec": spec})).await;
    user.eventually::<Endpoints>("default/old", |_| true).await;
    user.delete::<Service>("default/old").await;
    user.settle().await;
}

#[test]
fn through_every_fault_services_have_the_endpoints_behind_them() {
    let report = Check::builder()
        .name("services")
        .pairs(5)
        .seeds(5)
        .run(
            |_| (),
            |manager, ()| {
                endpoint_slice::register(manager)?;
                endpoint_slice_mirroring::register(manager)?;
                endpoints::register(manager)
            },
            services,
        )
        .unwrap();
    println!("{report}");
}
