//! Mistakes that need an old state: after a restart, the operator is served by a replica of the API server that is behind.
//!
//! All of them delete by name what an old state of the cluster seems to ask for. In watchkeeper two things stand against them by
//! default: informers never start from an old state, and `Context::delete` deletes the object that the cache shows and no other of
//! its name. The mended operators do the same.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use watchkeeper_sim::{Class, User};

use crate::common::{
    Child, Cluster, Cx, DB, Done, Exhibit, NOTE, Reads, child, cluster, note, operator, visit,
};

/// The names of the children, which all belong to one part.
type Names = &'static [&'static str];

/// Deletes what belongs to a cluster that is being deleted, by name: that of a newer cluster of this name too. Mended, it notes the
/// cluster's uid on what it creates.
async fn clean_up<C: Child>(cx: Arc<Cx<C>>, names: Names) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    if !cluster.is_deleting() {
        cx.hold(&cluster).await?;
        return ensure(&cx, names, uid).await;
    }
    for name in names {
        match cx.mended {
            false => cx.delete_by_name::<C>(name).await?,
            true => match cx.read::<C>(name).await? {
                Some(object) if note(&object) == uid => cx.delete(&object).await?,
                _ => {}
            },
        }
    }
    cx.release(&cluster).await
}

async fn ensure<C: Child>(cx: &Cx<C>, names: Names, note: &str) -> Done {
    for name in names.iter().filter(|name| cx.child(name).is_none()) {
        cx.create(&child::<C>(name, note)).await?;
    }
    Ok(())
}

/// Deletes what belongs to no cluster any more, as owner references cannot be used for it.
async fn collect<C: Child>(cx: Arc<Cx<C>>, names: Names) -> Done {
    if cx.cluster()?.is_some() {
        return ensure(&cx, names, "").await;
    }
    for object in cx.children() {
        cx.delete(&object).await?;
    }
    Ok(())
}

/// Keeps an optional part as long as it is wanted.
async fn toggle<C: Child>(cx: Arc<Cx<C>>, names: Names) -> Done {
    match cx.cluster()? {
        Some(cluster) if cluster.spec.enabled => ensure(&cx, names, "").await,
        Some(_) => {
            for object in cx.children() {
                cx.delete(&object).await?;
            }
            Ok(())
        }
        None => Ok(()),
    }
}

/// Deletes an object and creates it again when a setting that cannot be updated differs.
async fn replace<C: Child>(cx: Arc<Cx<C>>, name: &'static str) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    match cx.child(name) {
        Some(object) if note(&*object) == cluster.spec.config => return Ok(()),
        Some(object) => cx.delete(&object).await?,
        None => {}
    }
    cx.create(&child::<C>(name, &cluster.spec.config)).await
}

/// Has one child per replica, and deletes those beyond.
async fn scale<C: Child>(cx: Arc<Cx<C>>, names: Names) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    for object in cx.children().into_iter().skip(cluster.spec.replicas) {
        cx.delete(&object).await?;
    }
    ensure(&cx, &names[..cluster.spec.replicas], "").await
}

/// Shuts members down before it scales their StatefulSet down.
async fn shut_down(cx: Arc<Cx<StatefulSet>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let wanted = cluster.spec.replicas;
    let Some(set) = cx.child("db") else {
        for member in 0..wanted {
            cx.outside.put(&format!("member {member}"), "has data").await?;
        }
        return cx.create(&child::<StatefulSet>("db", &wanted.to_string())).await;
    };
    let running: usize = note(&*set).parse()?;
    for member in wanted..running {
        cx.outside.remove(&format!("member {member}")).await?;
    }
    for member in running..wanted {
        cx.outside.put(&format!("member {member}"), "has data").await?;
    }
    if running == wanted {
        return Ok(());
    }
    cx.patch::<StatefulSet>("db", json!({"metadata": {"annotations": {NOTE: wanted.to_string()}}})).await
}

async fn recreated<C: Child>(user: &User, first: &str) {
    let key = format!("default/{first}");
    user.create(&cluster(json!({}))).await;
    user.eventually::<C>(&key, |_| true).await;
    user.delete::<Cluster>(DB).await;
    user.eventually_gone::<C>(&key).await;
    user.eventually_gone::<Cluster>(DB).await;
    user.create(&cluster(json!({}))).await;
    user.eventually::<C>(&key, |_| true).await;
}

async fn toggled<C: Child>(user: &User, first: &str) {
    let key = format!("default/{first}");
    user.create(&cluster(json!({"enabled": true}))).await;
    user.eventually::<C>(&key, |_| true).await;
    user.patch::<Cluster>(DB, json!({"spec": {"enabled": false}})).await;
    user.eventually_gone::<C>(&key).await;
    user.patch::<Cluster>(DB, json!({"spec": {"enabled": true}})).await;
    user.eventually::<C>(&key, |_| true).await;
}

async fn reconfigured<C: Child>(user: &User, first: &str) {
    let key = format!("default/{first}");
    user.create(&cluster(json!({"config": "small"}))).await;
    user.eventually::<C>(&key, |_| true).await;
    user.patch::<Cluster>(DB, json!({"spec": {"config": "large"}})).await;
    user.eventually::<C>(&key, |object| note(object) == "large").await;
}

async fn scaled<C: Child>(user: &User, last: &str) {
    let key = format!("default/{last}");
    user.create(&cluster(json!({"replicas": 2}))).await;
    user.eventually::<C>(&key, |_| true).await;
    user.patch::<Cluster>(DB, json!({"spec": {"replicas": 1}})).await;
    user.eventually_gone::<C>(&key).await;
    user.patch::<Cluster>(DB, json!({"spec": {"replicas": 2}})).await;
    user.eventually::<C>(&key, |_| true).await;
}

async fn members(user: &User) {
    for replicas in [2_usize, 1, 2] {
        match user.get::<Cluster>(DB).await {
            None => drop(user.create(&cluster(json!({"replicas": replicas}))).await),
            Some(_) => drop(user.patch::<Cluster>(DB, json!({"spec": {"replicas": replicas}})).await),
        }
        user.eventually::<StatefulSet>("default/db", |set| note(set) == replicas.to_string()).await;
    }
}

const STALE: Class = Class::StaleRead;

fn recreate<C: Child>(title: &'static str, source: &'static str, names: Names) -> Exhibit {
    let story = async |user: &User| recreated::<C>(user, names[0]).await;
    operator((title, source, STALE), Reads::Any, move |cx| clean_up::<C>(cx, names), story)
}

fn disable_enable<C: Child>(title: &'static str, source: &'static str, names: Names) -> Exhibit {
    let story = async |user: &User| toggled::<C>(user, names[0]).await;
    operator((title, source, STALE), Reads::Any, move |cx| toggle::<C>(cx, names), story)
}

fn reconfigure<C: Child>(title: &'static str, source: &'static str, name: &'static str) -> Exhibit {
    let story = async |user: &User| reconfigured::<C>(user, name).await;
    operator((title, source, STALE), Reads::Any, move |cx| replace::<C>(cx, name), story)
}

fn scale_down_up<C: Child>(title: &'static str, source: &'static str, names: Names) -> Exhibit {
    let story = async |user: &User| scaled::<C>(user, names[1]).await;
    operator((title, source, STALE), Reads::Any, move |cx| scale::<C>(cx, names), story)
}

/// The 19 stale-state bugs that Sieve found.
pub(crate) fn sieve() -> Vec<Exhibit> {
    let secrets: Names = &["db-elastic-user", "db-http-certs-public", "db-transport-certs-public"];
    let story = async |user: &User| recreated::<Secret>(user, secrets[0]).await;
    vec![
        recreate::<PersistentVolumeClaim>(
            "cass-operator deletes a new PVC",
            "K8SSAND-559",
            &["server-data-db-0"],
        ),
        recreate::<PersistentVolumeClaim>(
            "cassandra-operator deletes a new PVC",
            "instaclustr/cassandra-operator#402",
            &["data-volume-db-0"],
        ),
        scale_down_up::<PersistentVolumeClaim>(
            "cassandra-operator deletes a PVC in use",
            "instaclustr/cassandra-operator#407",
            &["data-volume-db-0", "data-volume-db-1"],
        ),
        recreate::<PersistentVolumeClaim>(
            "casskop deletes a new PVC",
            "Orange-OpenSource/casskop#316",
            &["data-db-0"],
        ),
        reconfigure::<PodDisruptionBudget>(
            "casskop replaces a right PDB",
            "Orange-OpenSource/casskop#321",
            "db",
        ),
        operator(
            ("elastic deletes new Secrets", "elastic/cloud-on-k8s#5249", STALE),
            Reads::Any,
            move |cx| collect::<Secret>(cx, secrets),
            story,
        ),
        operator(
            ("elastic shuts a wanted member down", "elastic/cloud-on-k8s#5274", STALE),
            Reads::Any,
            shut_down,
            members,
        ),
        recreate::<PersistentVolumeClaim>("mongodb deletes a new PVC", "K8SPSMDB-430", &["mongod-data-db-0"]),
        disable_enable::<StatefulSet>("mongodb deletes new config servers", "K8SPSMDB-433", &["db-cfg"]),
        disable_enable::<StatefulSet>("mongodb deletes a new arbiter", "K8SPSMDB-438", &["db-arbiter"]),
        recreate::<StatefulSet>(
            "rabbitmq deletes a new StatefulSet",
            "rabbitmq/cluster-operator#648",
            &["db-server"],
        ),
        reconfigure::<StatefulSet>(
            "rabbitmq replaces a resized StatefulSet",
            "rabbitmq/cluster-operator#653",
            "db-server",
        ),
        recreate::<PersistentVolumeClaim>("xtradb deletes a new PVC", "K8SPXC-716", &["datadir-db-pxc-0"]),
        disable_enable::<StatefulSet>("xtradb deletes a new HAProxy", "K8SPXC-725", &["db-haproxy"]),
        disable_enable::<StatefulSet>("xtradb deletes a new ProxySQL", "K8SPXC-763", &["db-proxysql"]),
        disable_enable::<Secret>(
            "yugabyte deletes new certificates",
            "yugabyte/yugabyte-operator#35",
            &["yb-master-tls-cert", "yb-tserver-tls-cert"],
        ),
        disable_enable::<Service>(
            "yugabyte deletes a new Service",
            "yugabyte/yugabyte-operator#36",
            &["yb-tserver-ui"],
        ),
        recreate::<PersistentVolumeClaim>(
            "zookeeper deletes a new PVC",
            "pravega/zookeeper-operator#312",
            &["data-db-0"],
        ),
        scale_down_up::<PersistentVolumeClaim>(
            "zookeeper deletes a PVC in use",
            "pravega/zookeeper-operator#314",
            &["data-db-0", "data-db-1"],
        ),
    ]
}

#[test]
fn acting_on_an_old_state_is_found() {
    visit(&sieve());
}
