//! A whole operator on the embedded server: what its children, its status and its finalizer go through.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::website::{Outside, Website, manifest, register};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Env, ObjectName};
use watchkeeper_test::TestCluster;

fn outside() -> Arc<Outside> {
    Arc::default()
}

async fn cluster(outside: &Arc<Outside>) -> TestCluster {
    let env = Env::simulated(1);
    TestCluster::builder().env(&env).start(|manager| register(manager, outside)).await
}

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

/// Lets virtual time pass.
async fn pass(cluster: &TestCluster, time: Duration) {
    cluster.client().env().clock.sleep(time).await;
}

/// The last error of a website, once there is one.
async fn failure(cluster: &TestCluster, name: &str) -> String {
    loop {
        let record = cluster.operator().explain("website", &key(name));
        if let Some(error) = record.and_then(|record| record.last_error) {
            return error.message.into();
        }
        pass(cluster, Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_website_gets_its_children_its_status_and_its_bucket() {
    let outside = outside();
    let cluster = cluster(&outside).await;
    cluster.apply(&manifest("site", 3)).await;
    let site = cluster.eventually::<Website>("default/site", Website::is_ready).await;
    let deployment = cluster.get::<Deployment>("default/site").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(3));
    let owner = &deployment.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (&owner.kind[..], &owner.uid, owner.controller),
        ("Website", &site.metadata.uid.clone().unwrap(), Some(true))
    );
    assert!(cluster.get::<Service>("default/site").await.is_some());
    assert!(cluster.get::<ConfigMap>("default/site").await.is_some());
    assert_eq!(site.metadata.finalizers.as_deref(), Some(&["example.dev/bucket".to_owned()][..]));
    assert_eq!(site.status.unwrap().conditions[0].observed_generation, site.metadata.generation);
    assert_eq!(outside.buckets.lock().len(), 1);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_edited_or_deleted_is_restored() {
    let outside = outside();
    let cluster = cluster(&outside).await;
    cluster.apply(&manifest("site", 3)).await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    let edit = Patch::Merge(json!({"spec": {"replicas": 7}}));
    cluster.client().api::<Deployment>().patch(&key("site"), &edit).await.unwrap();
    cluster
        .eventually::<Deployment>("default/site", |it| it.spec.as_ref().unwrap().replicas == Some(3))
        .await;
    let uid = cluster.get::<Service>("default/site").await.unwrap().metadata.uid;
    cluster.delete::<Service>("default/site").await;
    cluster.eventually::<Service>("default/site", |service| service.metadata.uid != uid).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_website_is_cleaned_up_and_its_children_are_collected() {
    let outside = outside();
    let cluster = cluster(&outside).await;
    cluster.apply(&manifest("site", 1)).await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    cluster.delete::<Website>("default/site").await;
    cluster.eventually_gone::<Website>("default/site").await;
    assert!(outside.buckets.lock().is_empty());
    cluster.eventually_gone::<Deployment>("default/site").await;
    cluster.eventually_gone::<ConfigMap>("default/site").await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_terminal_until_the_secret_appears() {
    let outside = outside();
    let cluster = cluster(&outside).await;
    let site = "{apiVersion: example.dev/v1, kind: Website, metadata: {name: site}, spec: {image: nginx, replicas: 1, secret: tls}}";
    cluster.apply(site).await;
    cluster.eventually_any::<Event>(|event| event.reason.as_deref() == Some("MissingSecret")).await;
    let tries = outside.reconciles.load(Relaxed);
    pass(&cluster, Duration::from_secs(3600)).await;
    assert_eq!(outside.reconciles.load(Relaxed), tries, "a terminal error is not retried");
    cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: tls}}").await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_child_is_not_taken_over() {
    let outside = outside();
    let cluster = cluster(&outside).await;
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: site}, data: {mine: 'yes'}}").await;
    cluster.apply(&manifest("site", 1)).await;
    let record = failure(&cluster, "site").await;
    assert!(
        record
            .contains("ConfigMap default/site exists already and is not controlled by Website default/site"),
        "{record}"
    );
    assert!(record.contains("nothing controls it"), "{record}");
    let map = cluster.get::<ConfigMap>("default/site").await.unwrap();
    assert!(map.metadata.owner_references.is_none() && map.data.unwrap().contains_key("mine"));
    cluster.delete::<ConfigMap>("default/site").await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_for_hours_and_a_restart_changes_no_version() {
    let outside = outside();
    let mut cluster = cluster(&outside).await;
    for number in 0..20 {
        cluster.apply(&manifest(&format!("site-{number}"), 1)).await;
    }
    for number in 0..20 {
        cluster.eventually::<Website>(&format!("default/site-{number}"), Website::is_ready).await;
    }
    pass(&cluster, Duration::from_secs(60)).await;
    let versions = |cluster: &TestCluster| {
        let client = cluster.client().clone();
        async move {
            let all = client.api::<Deployment>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
            let sites = client.api::<Website>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
            let deployments = all.complete().unwrap().into_iter().map(|it| it.metadata.resource_version);
            deployments
                .chain(sites.complete().unwrap().into_iter().map(|it| it.metadata.resource_version))
                .collect::<Vec<_>>()
        }
    };
    let (before, revision) = (versions(&cluster).await, cluster.server().revision());
    pass(&cluster, Duration::from_secs(2 * 3600)).await;
    assert_eq!(cluster.server().revision(), revision, "nothing is written at rest");
    cluster.stop_operator().await;
    let applies = outside.reconciles.load(Relaxed);
    cluster.start_operator(|manager| register(manager, &outside)).await;
    pass(&cluster, Duration::from_secs(60)).await;
    assert_eq!(outside.reconciles.load(Relaxed), applies + 20, "each is reconciled once");
    assert_eq!(versions(&cluster).await, before, "a restart changes nothing");
    cluster.stop().await;
}
