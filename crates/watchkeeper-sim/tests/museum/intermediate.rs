//! Mistakes that need a crash between two writes that belong together: the operator finds the first one done when it starts again,
//! and takes the second one for done too.
//!
//! No toolkit prevents them. Mended, an operator decides about each write by what that write is to change.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use serde_json::json;
use watchkeeper_sim::{Class, User};

use crate::common::{
    Child, Cluster, Cx, DB, Done, Exhibit, NOTE, Reads, child, cluster, note, operator, visit,
};

/// Creates two objects if the first is missing.
async fn two_at_once<C: Child>(cx: Arc<Cx<C>>, [first, second]: [&'static str; 2]) -> Done {
    if cx.cluster()?.is_none() {
        return Ok(());
    }
    let is_second_missing = cx.mended && cx.child(second).is_none();
    if cx.child(first).is_none() || is_second_missing {
        cx.create(&child::<C>(first, "")).await?;
        cx.create(&child::<C>(second, "")).await?;
    }
    Ok(())
}

/// Marks a member as started, and then starts it.
async fn mark_and_start(cx: Arc<Cx<Pod>>) -> Done {
    if cx.cluster()?.is_none() {
        return Ok(());
    }
    let Some(pod) = cx.child("db-0") else { return cx.create(&child::<Pod>("db-0", "ready to start")).await };
    if note(&*pod) != "ready to start" {
        return Ok(());
    }
    if cx.mended {
        cx.outside.put("member db-0", "started").await?;
    }
    cx.patch::<Pod>("db-0", json!({"metadata": {"annotations": {NOTE: "started"}}})).await?;
    cx.outside.put("member db-0", "started").await?;
    Ok(())
}

/// Lets the cluster go, and then deletes its volume: the next cluster gets the volume of this one.
async fn release_and_clean_up(cx: Arc<Cx<PersistentVolumeClaim>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if !cluster.is_deleting() {
        cx.hold(&cluster).await?;
        return cx.create(&child::<PersistentVolumeClaim>("data-db-0", &cluster.spec.config)).await;
    }
    if cx.mended {
        cx.delete_by_name::<PersistentVolumeClaim>("data-db-0").await?;
        return cx.release(&cluster).await;
    }
    cx.release(&cluster).await?;
    cx.delete_by_name::<PersistentVolumeClaim>("data-db-0").await
}

/// Deletes a StatefulSet and its volume if the StatefulSet is there.
async fn clean_up_both(cx: Arc<Cx<StatefulSet>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if !cluster.is_deleting() {
        cx.hold(&cluster).await?;
        cx.create(&child::<PersistentVolumeClaim>("data-db-0", &cluster.spec.config)).await?;
        return cx.create(&child::<StatefulSet>("db", &cluster.spec.config)).await;
    }
    if cx.mended || cx.read::<StatefulSet>("db").await?.is_some() {
        cx.delete_by_name::<StatefulSet>("db").await?;
        cx.delete_by_name::<PersistentVolumeClaim>("data-db-0").await?;
    }
    cx.release(&cluster).await
}

/// Removes a member, notes that its volume is to be deleted, and deletes it in the next round.
async fn decommission(cx: Arc<Cx<Pod>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if cluster.phase() == "Finalizing" {
        cx.delete_by_name::<PersistentVolumeClaim>("data-db-1").await?;
        return cx.set_phase("Done").await;
    }
    if cluster.spec.replicas < 2 {
        let Some(pod) = cx.child("db-1") else { return Ok(()) };
        if cx.mended {
            cx.delete_by_name::<PersistentVolumeClaim>("data-db-1").await?;
            return cx.delete(&pod).await;
        }
        cx.delete(&pod).await?;
        return cx.set_phase("Finalizing").await;
    }
    for (pod, claim) in [("db-0", "data-db-0"), ("db-1", "data-db-1")] {
        cx.create(&child::<PersistentVolumeClaim>(claim, "")).await?;
        cx.create(&child::<Pod>(pod, "")).await?;
    }
    Ok(())
}

/// Updates a ConfigMap, notes that the member is out of date, and replaces it in the next round.
async fn reload(cx: Arc<Cx<ConfigMap>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let config = &cluster.spec.config;
    let Some(map) = cx.child("db-config") else {
        cx.create(&child::<Pod>("db-0", config)).await?;
        return cx.create(&child::<ConfigMap>("db-config", config)).await;
    };
    if note(&*map) != config {
        cx.patch::<ConfigMap>("db-config", json!({"metadata": {"annotations": {NOTE: config}}})).await?;
        if !cx.mended {
            cx.set_phase("OutOfSync").await?;
        }
    }
    let pod = cx.read::<Pod>("db-0").await?;
    let is_out_of_date = match cx.mended {
        true => pod.as_ref().is_some_and(|pod| note(pod) != config),
        false => cluster.phase() == "OutOfSync",
    };
    if is_out_of_date {
        cx.delete_by_name::<Pod>("db-0").await?;
    }
    if is_out_of_date || pod.is_none() {
        cx.create(&child::<Pod>("db-0", config)).await?;
    }
    if is_out_of_date && !cx.mended {
        return cx.set_phase("InSync").await;
    }
    Ok(())
}

/// Notes that the member is running, and then creates it.
async fn note_and_create(cx: Arc<Cx<Pod>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let is_missing = if cx.mended { cx.child("db-0").is_none() } else { cluster.phase() != "Running" };
    if is_missing {
        cx.set_phase("Running").await?;
        cx.create(&child::<Pod>("db-0", "")).await?;
    }
    Ok(())
}

/// Deletes a StatefulSet to resize its volume; when it is missing, it is created with the new size.
async fn resize(cx: Arc<Cx<StatefulSet>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let size = cluster.spec.storage.to_string();
    let resized = json!({"metadata": {"annotations": {NOTE: size}}});
    match cx.child("db") {
        Some(set) if note(&*set) == size => return Ok(()),
        Some(set) => {
            cx.delete(&set).await?;
            cx.patch::<PersistentVolumeClaim>("data-db-0", resized).await?;
        }
        None => {
            cx.create(&child::<PersistentVolumeClaim>("data-db-0", &size)).await?;
            if cx.mended {
                cx.patch::<PersistentVolumeClaim>("data-db-0", resized).await?;
            }
        }
    }
    cx.create(&child::<StatefulSet>("db", &size)).await
}

async fn created<C: Child>(user: &User, last: &str) {
    user.create(&cluster(json!({}))).await;
    user.eventually::<C>(&format!("default/{last}"), |_| true).await;
}

async fn settled(user: &User) {
    user.create(&cluster(json!({}))).await;
    user.settle().await;
}

async fn recreated(user: &User) {
    user.create(&cluster(json!({"config": "first"}))).await;
    user.eventually::<PersistentVolumeClaim>("default/data-db-0", |_| true).await;
    user.settle().await;
    user.delete::<Cluster>(DB).await;
    user.eventually_gone::<Cluster>(DB).await;
    user.settle().await;
    user.create(&cluster(json!({"config": "second"}))).await;
    user.eventually::<PersistentVolumeClaim>("default/data-db-0", |_| true).await;
}

async fn scaled_down(user: &User) {
    user.create(&cluster(json!({"replicas": 2}))).await;
    user.eventually::<Pod>("default/db-1", |_| true).await;
    user.patch::<Cluster>(DB, json!({"spec": {"replicas": 1}})).await;
    user.eventually_gone::<Pod>("default/db-1").await;
}

async fn reconfigured(user: &User) {
    user.create(&cluster(json!({"config": "first"}))).await;
    user.eventually::<ConfigMap>("default/db-config", |_| true).await;
    user.patch::<Cluster>(DB, json!({"spec": {"config": "second"}})).await;
    user.eventually::<ConfigMap>("default/db-config", |map| note(map) == "second").await;
}

async fn resized(user: &User) {
    user.create(&cluster(json!({"storage": 10}))).await;
    user.eventually::<StatefulSet>("default/db", |_| true).await;
    user.patch::<Cluster>(DB, json!({"spec": {"storage": 15}})).await;
    user.eventually::<StatefulSet>("default/db", |set| note(set) == "15").await;
}

const CRASH: Class = Class::CrashBetweenWrites;

fn pair<C: Child>(title: &'static str, source: &'static str, names: [&'static str; 2]) -> Exhibit {
    let story = async move |user: &User| created::<C>(user, names[0]).await;
    operator((title, source, CRASH), Reads::Latest, move |cx| two_at_once::<C>(cx, names), story)
}

/// The 11 intermediate-state bugs that Sieve found. For three of them, Sieve names the operator and its workload only; the mistake is
/// one that fits.
pub(crate) fn sieve() -> Vec<Exhibit> {
    let latest = Reads::Latest;
    vec![
        operator(
            ("cass-operator never starts a member", "K8SSAND-1023", CRASH),
            latest,
            mark_and_start,
            settled,
        ),
        operator(
            ("cass-operator leaves an old PVC", "Sieve cass-operator intermediate-state-2", CRASH),
            latest,
            release_and_clean_up,
            recreated,
        ),
        operator(
            ("casskop leaves the PVC of a removed member", "Orange-OpenSource/casskop#370", CRASH),
            latest,
            decommission,
            scaled_down,
        ),
        pair::<Secret>("mongodb lacks a Secret", "K8SPSMDB-578", ["db-ssl", "db-ssl-internal"]),
        pair::<ConfigMap>("mongodb lacks a certificate", "K8SPSMDB-579", ["db-ca-cert", "db-ssl-internal"]),
        operator(
            ("nifikop never reloads a config", "konpyutaika/nifikop#49", CRASH),
            latest,
            reload,
            reconfigured,
        ),
        operator(
            ("nifikop never creates a member", "Sieve nifikop intermediate-state-2", CRASH),
            latest,
            note_and_create,
            settled,
        ),
        operator(
            ("rabbitmq never resizes a PVC", "rabbitmq/cluster-operator#782", CRASH),
            latest,
            resize,
            resized,
        ),
        pair::<Secret>("xtradb lacks a Secret", "K8SPXC-896", ["db-ssl", "db-ssl-internal"]),
        pair::<ConfigMap>("xtradb lacks a certificate", "K8SPXC-897", ["db-ca-cert", "db-ssl-internal"]),
        operator(
            ("xtradb leaves an old PVC", "Sieve xtradb intermediate-state-3", CRASH),
            latest,
            clean_up_both,
            recreated,
        ),
    ]
}

#[test]
fn a_crash_between_two_writes_is_found() {
    visit(&sieve());
}
