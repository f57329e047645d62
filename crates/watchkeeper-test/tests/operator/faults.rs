//! A whole operator through every fault, and with stale caches, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::website::{Outside, Website, WebsiteSpec, register};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::controller::Manager;
use watchkeeper::report::WithCauses;
use watchkeeper::{Client, ObjectName};
use watchkeeper_sim::{Check, Cluster, Scenario, User};

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn website(name: &str, replicas: i32) -> Website {
    let mut site =
        Website::new(name, WebsiteSpec { image: "nginx".to_owned(), replicas, secret: String::new() });
    site.metadata.namespace = Some("default".to_owned());
    site
}

/// Users create, change and delete websites, and edit and delete children by hand.
async fn users(user: &User) {
    for name in ["a", "b"] {
        user.create(&website(name, 1)).await;
        user.eventually::<Website>(&format!("default/{name}"), Website::is_ready).await;
    }
    user.patch::<Website>("default/a", json!({"spec": {"replicas": 3}})).await;
    user.eventually::<Deployment>("default/a", |it| it.spec.as_ref().unwrap().replicas == Some(3)).await;
    user.patch::<Deployment>("default/a", json!({"spec": {"replicas": 9}})).await;
    user.delete::<ConfigMap>("default/a").await;
    user.delete::<Website>("default/b").await;
    user.settle().await;
}

#[test]
fn through_every_fault_websites_become_as_they_are_without() {
    let report = Check::builder()
        .name("websites")
        // A backup brought a deleted object back while no watch was open.
        .schedule("cut(23) @ watch deployments.apps #1 event 3; set-back @ step 6")
        .crd::<Website>()
        .pairs(20)
        .seeds(40)
        .run(|_| Arc::<Outside>::default(), register, users)
        .unwrap();
    println!("{report}");
}

/// One life of the operator. One that cannot start is started again, as by a kubelet.
async fn operator(client: Client, stop: tokio_util::sync::CancellationToken, outside: &Arc<Outside>) {
    let mut manager = Manager::builder("website-operator", &client).build();
    register(&mut manager, outside).unwrap();
    if let Err(error) = manager.run(stop).await {
        tracing::info!(error = %WithCauses(&error), "the operator ended");
    }
}

async fn create(cluster: &Cluster, name: &str, replicas: i32) {
    // The operator installs the definition.
    while let Err(error) = cluster.user.api::<Website>().create(&website(name, replicas)).await {
        assert!(error.is_not_found(), "{error}");
        cluster.env.clock.sleep(Duration::from_millis(100)).await;
    }
}

/// Whether the sites `names` have their children and a status that agrees.
async fn are_up(cluster: &Cluster, names: &[&str]) -> bool {
    let requests = cluster.user.requests();
    for name in names {
        let name = key(name);
        let site = requests.api::<Website>().get(&name).await.unwrap();
        let Ok(deployment) = requests.api::<Deployment>().get(&name).await else { return false };
        let owner = deployment.metadata.owner_references.unwrap_or_default().pop();
        let is_own = owner.is_some_and(|owner| Some(owner.uid) == site.metadata.uid);
        let is_observed = site.status.as_ref().is_some_and(|status| {
            status.conditions.iter().all(|it| it.observed_generation == site.metadata.generation)
        });
        let replicas = deployment.spec.unwrap().replicas;
        let others = requests.api::<Service>().get(&name).await.is_ok()
            && requests.api::<ConfigMap>().get(&name).await.is_ok();
        if !is_own || replicas != Some(site.spec.replicas) || !site.is_ready() || !is_observed || !others {
            return false;
        }
    }
    true
}

#[test]
fn stale_caches_lead_to_no_write_twice() {
    for (held, resource) in
        [(1, "deployments"), (360, "deployments"), (1, "websites"), (360, "websites"), (360, "configmaps")]
    {
        let outside = Arc::<Outside>::default();
        let run = Scenario::new(3).run(
            async |client, stop| operator(client, stop, &outside).await,
            async |cluster| {
                create(cluster, "warm", 1).await;
                assert!(cluster.converged(async || are_up(cluster, &["warm"]).await).await);
                cluster.net.hold(resource);
                create(cluster, "a", 1).await;
                for _ in 0..held {
                    cluster.env.clock.sleep(Duration::from_secs(1)).await;
                    // Something else brings the key back, again and again.
                    let touch = Patch::Merge(
                        json!({"metadata": {"annotations": {"t": cluster.env.clock.wall().to_string()}}}),
                    );
                    drop(cluster.user.api::<Service>().patch(&key("a"), &touch).await);
                }
                cluster.net.release();
                assert!(
                    cluster.converged(async || are_up(cluster, &["a"]).await).await,
                    "{held} s of {resource}"
                );
            },
        );
        for child in ["deployments.apps", "configmaps", "services"] {
            assert_eq!(
                run.count(&format!("apply {child} default/a"), 201),
                1,
                "{child}, {held} s of {resource}: {run:#?}"
            );
        }
        assert_eq!(run.count("", 409), 0, "{held} s of {resource}: {run:#?}");
        assert!(run.count("apply deployments.apps default/a", 200) <= 1, "{held} s of {resource}: {run:#?}");
    }
}

#[test]
fn without_faults_there_is_no_conflict_of_its_own_making() {
    let outside = Arc::<Outside>::default();
    let run = Scenario::new(1).run(
        async |client, stop| operator(client, stop, &outside).await,
        async |cluster| {
            create(cluster, "a", 1).await;
            assert!(cluster.converged(async || are_up(cluster, &["a"]).await).await);
            for replicas in 2..6 {
                let more = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                cluster.user.api::<Website>().patch(&key("a"), &more).await.unwrap();
                assert!(cluster.converged(async || are_up(cluster, &["a"]).await).await);
            }
        },
    );
    assert_eq!(run.count("", 409), 0, "{run:#?}");
}
