//! Mistakes that need a state which the operator never sees: what it does at the end depends on what it has seen on the way.
//!
//! No toolkit prevents them. Mended, an operator compares what there is with what is wanted now.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;
use watchkeeper_sim::{Class, User};

use crate::common::{
    Child, Cluster, Cx, DB, Done, Exhibit, NOTE, Reads, child, cluster, name, note, operator, visit,
};

/// The names of the children, by replica.
type Names = [&'static str; 3];

/// Creates a volume per replica, and leaves those beyond.
async fn leave<C: Child>(cx: Arc<Cx<C>>, names: Names) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if cx.mended {
        for object in cx.children().into_iter().skip(cluster.spec.replicas) {
            cx.delete(&object).await?;
        }
    }
    for name in &names[..cluster.spec.replicas] {
        if cx.child(name).is_none() {
            cx.create(&child::<C>(name, "")).await?;
        }
    }
    Ok(())
}

/// Scales up, and refuses to scale down.
async fn only_up(cx: Arc<Cx<StatefulSet>>, name: &'static str) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let wanted = cluster.spec.replicas;
    let Some(set) = cx.child(name) else {
        return cx.create(&child::<StatefulSet>(name, &wanted.to_string())).await;
    };
    let running: usize = note(&*set).parse()?;
    if running < wanted || (cx.mended && running > wanted) {
        cx.patch::<StatefulSet>(name, json!({"metadata": {"annotations": {NOTE: wanted.to_string()}}}))
            .await?;
    }
    Ok(())
}

/// Removes one member at a time, and refuses to remove more.
async fn one_at_a_time(cx: Arc<Cx<Pod>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let pods = cx.children();
    let beyond = pods.len().saturating_sub(cluster.spec.replicas);
    match pods.last() {
        Some(last) if beyond == 1 || (beyond > 1 && cx.mended) => cx.delete(last).await,
        _ if beyond > 1 => Ok(()),
        _ => {
            for name in &["db-0", "db-1", "db-2"][..cluster.spec.replicas] {
                cx.create(&child::<Pod>(name, "")).await?;
            }
            Ok(())
        }
    }
}

/// Deletes the volume of a member when it sees that the cluster is scaled down, so that the next member starts with a new one.
async fn renew(cx: Arc<Cx<PersistentVolumeClaim>>, names: Names) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let config = &cluster.spec.config;
    for claim in cx.children().into_iter().skip(cluster.spec.replicas) {
        cx.delete(&claim).await?;
    }
    for claim in cx.children().iter().filter(|claim| cx.mended && note(&***claim) != config) {
        let patch = json!({"metadata": {"annotations": {NOTE: config}}});
        cx.patch::<PersistentVolumeClaim>(name(&**claim), patch).await?;
    }
    for name in &names[..cluster.spec.replicas] {
        if cx.child(name).is_none() {
            cx.create(&child::<PersistentVolumeClaim>(name, config)).await?;
        }
    }
    Ok(())
}

/// Goes through these states; how the operator has taken them is not looked at.
async fn through(user: &User, specs: &[serde_json::Value]) {
    user.create(&cluster(specs[0].clone())).await;
    user.settle().await;
    for spec in &specs[1..] {
        user.patch::<Cluster>(DB, json!({"spec": spec})).await;
        user.settle().await;
    }
}

async fn up_and_down(user: &User) {
    through(user, &[json!({"replicas": 1}), json!({"replicas": 3}), json!({"replicas": 2})]).await;
}

async fn down_and_up(user: &User) {
    let down = json!({"replicas": 1, "config": "second"});
    through(user, &[json!({"replicas": 2, "config": "first"}), down, json!({"replicas": 2})]).await;
}

async fn down_to_none(user: &User) {
    through(user, &[json!({"replicas": 2}), json!({"replicas": 1}), json!({"replicas": 0})]).await;
}

const UNOBSERVED: Class = Class::UnobservedState;

/// The 7 unobserved-state bugs that Sieve found. For that of the zookeeper-operator, Sieve names its workload only; the mistake is one
/// that fits.
pub(crate) fn sieve() -> Vec<Exhibit> {
    let latest = Reads::Latest;
    let volumes = |title, source, names| {
        operator(
            (title, source, UNOBSERVED),
            latest,
            move |cx| leave::<PersistentVolumeClaim>(cx, names),
            up_and_down,
        )
    };
    let renewed = |title, source, names| {
        operator((title, source, UNOBSERVED), latest, move |cx| renew(cx, names), down_and_up)
    };
    let members = |title, source, name| {
        operator((title, source, UNOBSERVED), latest, move |cx| only_up(cx, name), up_and_down)
    };
    vec![
        renewed(
            "cassandra-operator keeps a used PVC",
            "instaclustr/cassandra-operator#398",
            ["data-volume-db-0", "data-volume-db-1", "data-volume-db-2"],
        ),
        operator(
            ("casskop never scales to zero", "Orange-OpenSource/casskop#342", UNOBSERVED),
            latest,
            one_at_a_time,
            down_to_none,
        ),
        volumes(
            "mongodb leaves a PVC, or not",
            "K8SPSMDB-585",
            ["mongod-data-db-0", "mongod-data-db-1", "mongod-data-db-2"],
        ),
        members("rabbitmq has a member more, or not", "rabbitmq/cluster-operator#758", "db-server"),
        volumes(
            "xtradb leaves PVCs, or not",
            "K8SPXC-918",
            ["datadir-db-pxc-0", "datadir-db-pxc-1", "datadir-db-pxc-2"],
        ),
        members("yugabyte has a member more, or not", "yugabyte/yugabyte-operator#39", "yb-tserver"),
        renewed(
            "zookeeper keeps a used PVC",
            "Sieve zookeeper-operator unobserved-state-1",
            ["data-db-0", "data-db-1", "data-db-2"],
        ),
    ]
}

#[test]
fn relying_on_a_state_on_the_way_is_found() {
    visit(&sieve());
}
