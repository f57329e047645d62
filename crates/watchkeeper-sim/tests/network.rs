//! The controllers of endpoints, quotas, claims and lost Pods through every fault: the user plays nodes and their kubelets.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Node, PersistentVolumeClaim, Pod, ResourceQuota, Service,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use watchkeeper::Kind;
use watchkeeper_controllers::{
    endpoint_slice, endpoint_slice_mirroring, endpoints, pod_collector, resource_quota, storage_protection,
};
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

fn used(quota: &ResourceQuota, name: &str) -> Option<String> {
    quota.status.as_ref()?.used.as_ref()?.get(name).map(|used| used.0.clone())
}

/// A quota counts Pods and config maps that come, end and go.
async fn quotas(user: &User) {
    let hard = json!({"pods": "5", "requests.cpu": "2", "configmaps": "3"});
    let metadata = json!({"name": "q", "namespace": "default"});
    create::<ResourceQuota>(user, json!({"metadata": metadata, "spec": {"hard": hard}})).await;
    for name in ["a", "b"] {
        let spec = json!({"containers": [{"name": "main", "image": "a", "resources": {"requests": {"cpu": "500m"}}}]});
        create::<Pod>(user, json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).await;
        create::<ConfigMap>(user, json!({"metadata": {"name": name, "namespace": "default"}})).await;
    }
    user.eventually::<ResourceQuota>("default/q", |it| used(it, "requests.cpu").as_deref() == Some("1"))
        .await;
    user.patch_status::<Pod>("default/a", json!({"status": {"phase": "Succeeded"}})).await;
    user.delete::<ConfigMap>("default/b").await;
    user.patch::<ResourceQuota>("default/q", json!({"spec": {"hard": {"pods": "1"}}})).await;
    let counted = |quota: &ResourceQuota| {
        let all = ["pods", "requests.cpu", "configmaps"].map(|name| used(quota, name).unwrap_or_default());
        all == ["1", "500m", "1"]
    };
    user.eventually::<ResourceQuota>("default/q", counted).await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_quota_says_what_is_used() {
    let report = Check::builder()
        .name("quotas")
        .pairs(5)
        .seeds(5)
        .run(|_| (), |manager, ()| resource_quota::register(manager), quotas)
        .unwrap();
    println!("{report}");
}

/// A claim is deleted while a Pod uses it, and the Pod's node goes.
async fn claims(user: &User) {
    create::<Node>(user, json!({"metadata": {"name": "n1"}})).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let metadata = json!({"name": "data", "namespace": "default"});
    create::<PersistentVolumeClaim>(user, json!({"metadata": metadata, "spec": spec})).await;
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    let spec = json!({"nodeName": "n1", "containers": [{"name": "main", "image": "a"}], "volumes": [volume]});
    create::<Pod>(user, json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})).await;
    let is_held =
        |it: &PersistentVolumeClaim| it.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
    user.settle().await;
    // A restored backup may have lost the finalizer: whoever deletes a claim before it is protected again loses it.
    user.eventually::<PersistentVolumeClaim>("default/data", is_held).await;
    user.delete::<PersistentVolumeClaim>("default/data").await;
    user.settle().await;
    assert!(user.get::<PersistentVolumeClaim>("default/data").await.is_some());
    user.delete::<Node>("n1").await;
    user.eventually_gone::<Pod>("default/p").await;
    user.eventually_gone::<PersistentVolumeClaim>("default/data").await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_claim_outlives_its_pods_and_they_do_not_outlive_their_node() {
    let report = Check::builder()
        .name("claims")
        // A restored backup has lost the finalizer of the claim, and the watch is not open yet when the claim is deleted.
        .schedule(
            "cut(53) @ watch nodes #1 event 2; delay(490ms) @ watch persistentvolumeclaims #1 event 2; \
             cut(98) @ watch nodes #2 event 1; set-back @ step 3; never-open @ watch persistentvolumeclaims #3",
        )
        .pairs(5)
        .seeds(5)
        .run(
            |_| (),
            |manager, ()| {
                pod_collector::register(manager)?;
                storage_protection::register_claims(manager)?;
                storage_protection::register_volumes(manager)
            },
            claims,
        )
        .unwrap();
    println!("{report}");
}
