//! The operator on an API server in this process, and through faults.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io;

use k8s_openapi::api::core::v1::Event;
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::controller::Role;
use watchkeeper_sim::{Check, Outside, User};
use watchkeeper_test::TestCluster;

use super::*;
use crate::types::WebsiteSpec;

/// A cluster with the operator and a Website.
async fn cluster(buckets: &Arc<InMemory>) -> TestCluster {
    let env = Env::simulated(1);
    let cluster = TestCluster::builder().env(&env).start(|manager| register(manager, buckets.clone())).await;
    cluster.apply(include_str!("site.yaml")).await;
    cluster.eventually::<Website>("default/site", |site| site.status.is_some()).await;
    cluster
}

/// Does what Kubernetes' Deployment controller would do.
async fn roll_out(client: &Client, name: &str, replicas: i32) -> Result<(), ApiError> {
    let status = json!({"status": {"replicas": replicas, "readyReplicas": replicas}});
    let deployments = client.api::<Deployment>();
    deployments.patch_status(&key(name), &Patch::Merge(status)).await.map(drop)
}

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

#[tokio::test(start_paused = true)]
async fn a_website_gets_its_children_and_is_ready_when_they_are() {
    let buckets = Arc::<InMemory>::default();
    let cluster = cluster(&buckets).await;
    let deployment = cluster.eventually::<Deployment>("default/site", |_| true).await;
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    assert!(cluster.get::<Service>("default/site").await.is_some());
    assert!(cluster.get::<ConfigMap>("default/site").await.is_some());
    assert!(buckets.0.lock().contains(&key("site")));
    roll_out(cluster.client(), "site", 2).await.unwrap();
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    cluster.eventually_any::<Event>(|event| event.reason.as_deref() == Some("Ready")).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_edited_is_restored() {
    let cluster = cluster(&Arc::default()).await;
    let edit = "{apiVersion: v1, kind: ConfigMap, metadata: {name: site}, data: {index.html: Hacked}}";
    cluster.apply(edit).await;
    let is_restored = |map: &ConfigMap| map.data.as_ref().unwrap()["index.html"] == "Hello";
    cluster.eventually::<ConfigMap>("default/site", is_restored).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_website_takes_its_bucket_and_its_children_along() {
    let buckets = Arc::<InMemory>::default();
    let cluster = cluster(&buckets).await;
    cluster.delete::<Website>("default/site").await;
    cluster.eventually_gone::<Website>("default/site").await;
    assert!(buckets.0.lock().is_empty());
    cluster.eventually_gone::<Deployment>("default/site").await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_reported_and_a_changed_one_rolls_out() {
    let cluster = cluster(&Arc::default()).await;
    let version = |deployment: &Deployment| {
        let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
        template.annotations.as_ref()?.get("example.dev/secret-version").cloned()
    };
    let before = version(&cluster.get("default/site").await.unwrap());
    cluster.delete::<Secret>("default/credentials").await;
    cluster.eventually_any::<Event>(|event| event.reason.as_deref() == Some("MissingSecret")).await;
    let reason = |site: &Website| site.status.as_ref().unwrap().conditions[0].reason.clone();
    cluster.eventually::<Website>("default/site", |site| reason(site) == "MissingSecret").await;
    cluster.apply(include_str!("site.yaml")).await;
    cluster.eventually::<Deployment>("default/site", |it| version(it) != before).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_role_grants_what_the_operator_needs_and_nothing_else() {
    let cluster = cluster(&Arc::default()).await;
    cluster.delete::<Website>("default/site").await;
    cluster.eventually_gone::<Website>("default/site").await;
    cluster.permissions().check(include_str!("role.yaml")).unwrap_or_else(|error| panic!("{error}"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_role_that_print_role_prints_is_all_that_the_operator_needs() {
    let mut printed = Role::default();
    let cluster = TestCluster::builder().env(&Env::simulated(1)).start(|manager| {
        register(manager, Arc::<InMemory>::default())?;
        printed = manager.role();
        Ok(())
    });
    let cluster = cluster.await;
    cluster.apply(include_str!("site.yaml")).await;
    cluster.eventually::<Website>("default/site", |site| site.status.is_some()).await;
    assert_eq!(cluster.permissions().role(), printed);
    cluster.stop().await;
}

/// Buckets in the simulated world outside, whose calls fail as requests do.
struct Simulated(Outside);

impl Buckets for Simulated {
    async fn ensure(&self, site: &ObjectName) -> io::Result<()> {
        self.0.put(&format!("bucket {site}"), "empty").await.map_err(io::Error::other)
    }

    async fn remove(&self, site: &ObjectName) -> io::Result<()> {
        self.0.remove(&format!("bucket {site}")).await.map_err(io::Error::other)
    }
}

/// Users create two Websites, change one, delete the other, and edit children.
async fn users(user: &User) {
    let secret = json!({"metadata": {"name": "credentials", "namespace": "default"}});
    user.create::<Secret>(&serde_json::from_value(secret).unwrap()).await;
    for name in ["a", "b"] {
        let spec = WebsiteSpec { page: "Hello".into(), replicas: 1, secret: "credentials".into() };
        let mut site = Website::new(name, spec);
        site.metadata.namespace = Some("default".into());
        user.create(&site).await;
        user.eventually::<Deployment>(&format!("default/{name}"), |_| true).await;
    }
    user.patch::<Website>("default/a", json!({"spec": {"replicas": 3}})).await;
    user.eventually::<Deployment>("default/a", |it| it.spec.as_ref().unwrap().replicas == Some(3)).await;
    user.patch::<Deployment>("default/a", json!({"spec": {"replicas": 0}})).await;
    user.delete::<ConfigMap>("default/a").await;
    user.eventually::<Deployment>("default/a", |it| it.spec.as_ref().unwrap().replicas == Some(3)).await;
    // What Kubernetes' Deployment controller would do.
    user.patch_status::<Deployment>("default/a", json!({"status": {"replicas": 3, "readyReplicas": 3}}))
        .await;
    user.delete::<Website>("default/b").await;
    user.eventually_gone::<Website>("default/b").await;
}

#[test]
fn through_every_fault_nothing_is_lost_doubled_or_left_behind() {
    let report = Check::builder()
        .name("website")
        .crd::<Website>()
        .pairs(20)
        .seeds(40)
        // A backup is restored while a cache has not seen the controller's last write: the server has lost it.
        .schedule(
            "stall @ watch secrets #1 event 1; stall @ watch deployments.apps #1 event 2; set-back @ step 4",
        )
        .run(
            |outside| Arc::new(Simulated(outside.clone())),
            |manager, buckets| register(manager, buckets.clone()),
            users,
        )
        .unwrap();
    println!("{report}");
}
