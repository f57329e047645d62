//! The quota controller at work, on an API server in the same process.
//!
//! `cargo run -p examples --example quotas_story`. The controller is quotas.rs.

use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use watchkeeper_test::TestCluster;

#[path = "quotas.rs"]
#[expect(dead_code, reason = "it is run by the story, not by its own main")]
mod quotas;

#[tokio::main]
async fn main() {
    play(TestCluster::start(quotas::register).await).await;
}

/// A namespace is created, grows, and is given a size that does not exist.
async fn play(cluster: TestCluster) {
    println!("a small namespace is created");
    label(&cluster, "small").await;
    quota(&cluster, "10").await;

    println!("it becomes a large one");
    label(&cluster, "large").await;
    quota(&cluster, "100").await;

    println!("somebody edits the quota, and labels it");
    edit(&cluster, "500").await;
    let quota = quota(&cluster, "100").await;
    let labels = quota.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("team").map(String::as_str), Some("infra"), "fields of others stay");

    println!("somebody asks for a size that does not exist");
    label(&cluster, "huge").await;
    let is_warning = |event: &Event| event.reason.as_deref() == Some("UnknownSize");
    let event = cluster.eventually_any::<Event>(is_warning).await;
    println!("  Warning UnknownSize: {}", event.message.unwrap_or_default());
    cluster.stop().await;
}

async fn label(cluster: &TestCluster, size: &str) {
    let labels = format!("{{size: {size}}}");
    cluster
        .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: team-a, labels: {labels}}}}}"))
        .await;
}

async fn edit(cluster: &TestCluster, pods: &str) {
    let quota = format!(
        "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: size, namespace: team-a, labels: {{team: infra}}}}, \
         spec: {{hard: {{pods: '{pods}'}}}}}}"
    );
    cluster.apply(&quota).await;
}

/// Waits until the quota allows so many Pods, and prints it.
async fn quota(cluster: &TestCluster, pods: &str) -> ResourceQuota {
    let quota = cluster.eventually::<ResourceQuota>("team-a/size", |quota| is_for(quota, pods)).await;
    println!("  quota team-a/size allows {pods} Pods");
    quota
}

fn is_for(quota: &ResourceQuota, pods: &str) -> bool {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    hard.is_some_and(|hard| hard.get("pods") == Some(&Quantity(pods.to_owned())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;
    use watchkeeper::Env;
    use watchkeeper_sim::{Check, User};

    use super::*;

    async fn cluster() -> TestCluster {
        TestCluster::builder().env(&Env::simulated(1)).start(quotas::register).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_story_comes_to_its_end() {
        play(cluster().await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_quota_of_somebody_else_is_left_alone_until_it_is_removed() {
        let cluster = cluster().await;
        cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}").await;
        edit(&cluster, "77").await;
        let theirs = cluster.get::<ResourceQuota>("team-a/size").await;
        label(&cluster, "small").await;
        cluster.client().env().clock.sleep(std::time::Duration::from_secs(10)).await;
        assert_eq!(cluster.get::<ResourceQuota>("team-a/size").await, theirs);
        cluster.delete::<ResourceQuota>("team-a/size").await;
        quota(&cluster, "10").await;
        cluster.stop().await;
    }

    /// Users create and label namespaces, change and delete quotas by hand, and delete a namespace and create it again.
    async fn users(user: &User) {
        let namespace = |name: &str, size: &str| {
            let meta = json!({"name": name, "labels": {"size": size}});
            serde_json::from_value::<Namespace>(json!({ "metadata": meta })).unwrap()
        };
        let resize = async |name: &str, size: &str| {
            user.patch::<Namespace>(name, json!({"metadata": {"labels": {"size": size}}})).await;
        };
        let allows = async |key: &str, pods: &str| {
            user.eventually::<ResourceQuota>(key, |quota| is_for(quota, pods)).await;
        };
        user.create(&namespace("team-a", "small")).await;
        user.create(&namespace("team-b", "large")).await;
        allows("team-a/size", "10").await;
        allows("team-b/size", "100").await;
        user.patch::<ResourceQuota>("team-a/size", json!({"spec": {"hard": {"pods": "500"}}})).await;
        allows("team-a/size", "10").await;
        resize("team-a", "huge").await;
        resize("team-a", "large").await;
        allows("team-a/size", "100").await;
        user.delete::<ResourceQuota>("team-a/size").await;
        user.delete::<Namespace>("team-b").await;
        user.eventually_gone::<Namespace>("team-b").await;
        user.create(&namespace("team-b", "small")).await;
        user.settle().await;
    }

    #[test]
    fn through_every_fault_quotas_become_as_they_are_without() {
        let check = Check::builder().name("quotas").pairs(20).seeds(40);
        let report = check.run(|_| (), |manager, ()| quotas::register(manager), users).unwrap();
        println!("{report}");
    }
}
