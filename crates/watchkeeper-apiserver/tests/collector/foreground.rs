//! Foreground deletion: an owner waits for the dependents that block it.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{Patch, PropagationPolicy};
use serde_json::json;

use crate::cluster::{Cluster, blocking};

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_waits_for_those_that_block_it() {
    let cluster = Cluster::new().await;
    let root = cluster.create("root", &[]).await;
    cluster.create("blocking", &[blocking(root.clone())]).await;
    cluster.create("free", &[root]).await;
    cluster.set_finalizers("blocking", &["example.com/hold"]).await;
    cluster.set_finalizers("free", &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    cluster.left(&["root", "blocking", "free"], "root blocking free").await;
    let root = cluster.get("root").await.unwrap().metadata;
    assert!(root.deletion_timestamp.is_some());
    assert_eq!(root.finalizers.unwrap(), ["foregroundDeletion"]);
    let marked = async || cluster.get("blocking").await?.metadata.deletion_timestamp;
    cluster.server.until("blocking marked", marked).await;
    cluster.set_finalizers("blocking", &[]).await;
    cluster.left(&["root", "blocking", "free"], "free").await;
    cluster.set_finalizers("free", &[]).await;
    cluster.left(&["free"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_goes_when_the_last_that_blocks_it_has_another_owner() {
    let cluster = Cluster::new().await;
    let (root, other) = (cluster.create("root", &[]).await, cluster.create("other", &[]).await);
    cluster.create("child", &[blocking(root)]).await;
    cluster.set_finalizers("child", &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    let marked = async || cluster.get("child").await?.metadata.deletion_timestamp;
    cluster.server.until("child marked", marked).await;
    cluster.left(&["root", "child", "other"], "root child other").await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [blocking(other)]}}));
    cluster.clients.api::<ConfigMap>().patch(&cluster.key("child"), &patch).await.unwrap();
    cluster.left(&["root", "child", "other"], "child other").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_a_chain_goes_from_its_end() {
    let cluster = Cluster::new().await;
    let root = cluster.create("root", &[]).await;
    let child = cluster.create("child", &[blocking(root)]).await;
    cluster.create("grandchild", &[blocking(child)]).await;
    cluster.set_finalizers("grandchild", &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    cluster.left(&["root", "child", "grandchild"], "root child grandchild").await;
    let waits = async || {
        let finalizers = cluster.get("child").await?.metadata.finalizers?;
        (finalizers == ["foregroundDeletion"]).then_some(())
    };
    cluster.server.until("the child waits", waits).await;
    cluster.set_finalizers("grandchild", &[]).await;
    cluster.left(&["root", "child", "grandchild"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_that_own_each_other_go_in_the_foreground_too() {
    let cluster = Cluster::new().await;
    let a = cluster.create("a", &[]).await;
    let b = cluster.create("b", &[blocking(a)]).await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [blocking(b)]}}));
    cluster.clients.api::<ConfigMap>().patch(&cluster.key("a"), &patch).await.unwrap();
    cluster.left(&["a", "b"], "a b").await;
    cluster.delete("a", PropagationPolicy::Foreground).await;
    cluster.left(&["a", "b"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreground_delete_does_not_request_owners_of_a_kind_that_is_not_served() {
    let cluster = Cluster::new().await;
    let unknown = json!({"apiVersion": "no.io/v1", "kind": "Nope", "name": "x", "uid": "u1"});
    cluster.create("owned", &[unknown]).await;
    cluster.delete("owned", PropagationPolicy::Foreground).await;
    cluster.left(&["owned"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn owners_that_wait_for_each_other_stay_and_are_reported_without_a_storm_of_requests() {
    // As with kube-controller-manager when all are deleted before it observes the first deletion.
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let (mut cluster, theirs, requests) = Cluster::counting(|_| None).await;
        let mut references = Vec::new();
        for name in names {
            references.push(blocking(cluster.create(name, &[]).await));
        }
        references.rotate_left(1);
        for (name, owner) in names.iter().zip(&references) {
            let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
            cluster.clients.api::<ConfigMap>().patch(&cluster.key(name), &patch).await.unwrap();
        }
        for name in names {
            cluster.delete(name, PropagationPolicy::Foreground).await;
        }
        cluster.start(theirs);
        cluster.assert_quiet_after(1, &requests).await;
        cluster.left(names, &names.join(" ")).await;
        // Removing one reference by hand releases all of them.
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": []}}));
        cluster.clients.api::<ConfigMap>().patch(&cluster.key("a"), &patch).await.unwrap();
        cluster.left(names, "").await;
        cluster.stop.cancel();
    }
}
