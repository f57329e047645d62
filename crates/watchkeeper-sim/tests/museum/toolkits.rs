//! Mistakes known from Kubernetes itself, from other toolkits, and from the way many operators use them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::Api;
use kube_core::params::{ListParams, WatchParams};
use kube_core::watch::WatchEvent;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use watchkeeper::Client;
use watchkeeper::wire::Class as ErrorClass;
use watchkeeper_sim::{Class, Life, Outside, User};

use crate::common::{
    Child, Cluster, Cx, DB, Done, Exhibit, Reads, child, cluster, key, name, operator, program, visit,
};

/// How long a ReplicaSet controller waits to see what it has created.
const EXPECTATIONS_EXPIRE: Duration = Duration::from_secs(300);

/// Creates Pods with generated names, and no more as long as it expects to see those that it has created. An expectation expires.
///
/// With watchkeeper, an object is not reconciled before the caches have seen what its last reconcile has written, and that does not
/// expire. Mended, each Pod has a name that cannot be taken twice.
async fn replicate(cx: Arc<Cx<Pod>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let (pods, now) = (cx.children(), cx.now());
    let is_waiting = {
        let mut expected = cx.memory.lock();
        expected.retain(|expected, since| {
            !pods.iter().any(|pod| name(&**pod) == expected) && now - *since < EXPECTATIONS_EXPIRE
        });
        !expected.is_empty()
    };
    if is_waiting && !cx.mended {
        return cx.again_after(Duration::from_secs(30));
    }
    for pod in pods.iter().skip(cluster.spec.replicas) {
        cx.delete(pod).await?;
    }
    for replica in pods.len()..cluster.spec.replicas {
        if cx.mended {
            cx.create(&child::<Pod>(&format!("db-{replica}"), "")).await?;
            continue;
        }
        let created = cx.client.api::<Pod>().create(&generated()).await;
        // A Pod may have been created though the answer is an error.
        let expected = created.as_ref().map_or("unknown", name).to_owned();
        cx.memory.lock().insert(expected, cx.now());
        created?;
    }
    Ok(())
}

fn generated() -> Pod {
    let mut pod = child::<Pod>("", "");
    (pod.metadata.name, pod.metadata.generate_name) = (None, Some("db-".to_owned()));
    pod
}

/// Retries a create with a generated name when its outcome is not known, as a client with a retry layer does.
///
/// The client of watchkeeper does not retry writes whose outcome it does not know.
async fn retry_create(cx: Arc<Cx<Pod>>) -> Done {
    if cx.cluster()?.is_none() || !cx.children().is_empty() {
        return Ok(());
    }
    if cx.mended {
        return cx.create(&child::<Pod>("db-0", "")).await;
    }
    for _ in 0..3 {
        match cx.client.api::<Pod>().create(&generated()).await {
            Err(error) if matches!(error.class(), ErrorClass::Timeout | ErrorClass::ConnectionLost) => {}
            created => return Ok(created.map(drop)?),
        }
    }
    Err("cannot create a Pod".into())
}

/// Repeats a create whose outcome is not known, and then takes the name that is already there for a mistake of the user.
async fn already_there(cx: Arc<Cx<Secret>>) -> Done {
    if cx.cluster()?.is_none() || cx.child("db").is_some() || cx.memory.lock().contains_key("db") {
        return Ok(());
    }
    for _ in 0..3 {
        match cx.client.api::<Secret>().create(&child("db", "")).await {
            Err(error) if matches!(error.class(), ErrorClass::Timeout | ErrorClass::ConnectionLost) => {}
            Err(error) if error.class() == ErrorClass::AlreadyExists && !cx.mended => {
                return cx.set_phase("Failed").await;
            }
            Err(error) if error.class() != ErrorClass::AlreadyExists => return Err(error.into()),
            _ => {
                cx.memory.lock().insert("db".to_owned(), cx.now());
                return Ok(());
            }
        }
    }
    Err("cannot create a Secret".into())
}

/// Logs the error of a write, and goes on.
async fn ignore_errors(cx: Arc<Cx<Secret>>) -> Done {
    if cx.cluster()?.is_none() {
        return Ok(());
    }
    for name in ["db-first", "db-second"] {
        let created = match cx.child(name) {
            Some(_) => Ok(()),
            None => cx.create(&child::<Secret>(name, "")).await,
        };
        if cx.mended {
            created?;
        }
    }
    Ok(())
}

/// Takes the answer of a server that does not serve a kind, such as one whose definition is being installed, for that to a request
/// about an object that does not exist.
async fn unserved(cx: Arc<Cx<Secret>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if !cluster.is_deleting() {
        cx.hold(&cluster).await?;
        return cx.create(&child::<Secret>("db", "")).await;
    }
    if cx.mended {
        cx.delete_by_name::<Secret>("db").await?;
    } else {
        match cx.client.api::<Secret>().delete(&key("db")).await {
            Err(error) if error.is_not_found() => {}
            deleted => deleted?,
        }
    }
    cx.release(&cluster).await
}

/// Takes an object that cannot be decoded for one that does not exist.
async fn undecodable(cx: Arc<Cx<Secret>>) -> Done {
    let found = match cx.mended {
        true => cx.cluster()?,
        false => cx.cluster().ok().flatten(),
    };
    match found {
        Some(_) if cx.child("db").is_none() => cx.create(&child::<Secret>("db", "")).await,
        Some(_) => Ok(()),
        None => cx.delete_by_name::<Secret>("db").await,
    }
}

/// Takes its finalizer off before it cleans up.
///
/// `Controller::finalizer` takes it off when the clean-up has succeeded.
async fn release_first(cx: Arc<Cx<ConfigMap>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if !cluster.is_deleting() {
        cx.hold(&cluster).await?;
        return Ok(cx.outside.put("bucket", "").await?);
    }
    if cx.mended {
        cx.outside.remove("bucket").await?;
        return cx.release(&cluster).await;
    }
    cx.release(&cluster).await?;
    Ok(cx.outside.remove("bucket").await?)
}

/// Takes its finalizer off only if there was something to clean up: never, if it does not learn that the first
/// attempt has succeeded.
async fn never_release(cx: Arc<Cx<ConfigMap>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    if !cluster.is_deleting() {
        cx.hold(&cluster).await?;
        return Ok(cx.outside.put("bucket", "").await?);
    }
    let is_there = cx.outside.get("bucket").await?.is_some();
    if !is_there && !cx.mended {
        return Err("there is no such bucket".into());
    }
    cx.outside.remove("bucket").await?;
    cx.release(&cluster).await
}

/// Cleans up when it sees that a cluster is gone, without a finalizer.
async fn clean_up_on_delete(cx: Arc<Cx<ConfigMap>>) -> Done {
    match cx.cluster()? {
        None if cx.mended => Ok(()),
        None => Ok(cx.outside.remove("bucket").await?),
        Some(cluster) if cluster.is_deleting() => {
            cx.outside.remove("bucket").await?;
            cx.release(&cluster).await
        }
        Some(cluster) => {
            if cx.mended {
                cx.hold(&cluster).await?;
            }
            Ok(cx.outside.put("bucket", "").await?)
        }
    }
}

/// Remembers by name, not by uid, which clusters it has set up.
async fn remember_by_name(cx: Arc<Cx<ConfigMap>>) -> Done {
    let Some(cluster) = cx.cluster()? else {
        cx.memory.lock().clear();
        return Ok(());
    };
    let uid = cluster.metadata.uid.clone().unwrap_or_default();
    let known = if cx.mended { uid.clone() } else { "db".to_owned() };
    if cx.memory.lock().contains_key(&known) {
        return Ok(());
    }
    cx.outside.put("owner", uid).await?;
    cx.memory.lock().insert(known, cx.now());
    Ok(())
}

/// How long a cluster lives.
const LIFETIME: Duration = Duration::from_secs(55 * 60);

/// Deletes a cluster when its time is over, by its own clock and the server's time of creation.
///
/// Mended, it measures the time since it has seen the cluster.
async fn time_to_live(cx: Arc<Cx<ConfigMap>>) -> Done {
    let Some(cluster) = cx.cluster()? else { return Ok(()) };
    let age = match (cx.mended, &cluster.metadata.creation_timestamp) {
        (false, Some(created)) => {
            Duration::try_from(cx.client.env().clock.wall().duration_since(created.0)).unwrap_or_default()
        }
        _ => cx.now() - *cx.memory.lock().entry("seen".to_owned()).or_insert(cx.now()),
    };
    match LIFETIME.checked_sub(age) {
        Some(left) if !left.is_zero() => cx.again_after(left),
        _ => Ok(cx.client.api::<Cluster>().delete(&key("db")).await?),
    }
}

/// A cache by name, with a watch of its own, in the way of kube-rs.
struct Mirror<K> {
    objects: Mutex<BTreeMap<String, K>>,
}

/// What a [`Mirror`] does right.
#[derive(Clone, Copy)]
struct Rights {
    /// It notices which objects are gone when it lists again.
    notices_gone: bool,
    /// It lists again when a version has expired.
    lists_when_expired: bool,
}

impl<K: Child> Mirror<K> {
    fn new() -> Self {
        Self { objects: Mutex::default() }
    }

    fn has(&self, name: &str) -> bool {
        self.objects.lock().contains_key(name)
    }

    /// Keeps the cache up to date, and notifies of what has changed.
    async fn follow(&self, client: &Client, changed: &Notify, rights: Rights) {
        let api = Api::<K>::all(client.kube().clone());
        loop {
            let Ok(list) = api.list(&ListParams::default()).await else {
                client.env().clock.sleep(Duration::from_secs(1)).await;
                continue;
            };
            let is_any_there = !list.items.is_empty();
            *self.objects.lock() = list.items.into_iter().map(|it| (name(&it).to_owned(), it)).collect();
            if is_any_there || rights.notices_gone {
                changed.notify_one();
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            self.watch(client, &api, version, changed, rights).await;
        }
    }

    /// Watches from a version until it has expired.
    async fn watch(&self, client: &Client, api: &Api<K>, from: String, changed: &Notify, rights: Rights) {
        let (clock, mut version) = (&client.env().clock, from);
        let is_over = |code: u16| code == 410 && rights.lists_when_expired;
        loop {
            let params = WatchParams::default().timeout(290);
            let events = match clock.timeout(Duration::from_secs(30), api.watch(&params, &version)).await {
                Ok(Err(kube_client::Error::Api(status))) if is_over(status.code) => return,
                events => events,
            };
            if let Ok(Ok(events)) = events {
                let mut events = pin!(events);
                while let Ok(Some(event)) = clock.timeout(Duration::from_secs(295), events.next()).await {
                    match event {
                        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                            version = object.meta().resource_version.clone().unwrap_or_default();
                            self.objects.lock().insert(name(&object).to_owned(), object);
                        }
                        Ok(WatchEvent::Deleted(object)) => {
                            version = object.meta().resource_version.clone().unwrap_or_default();
                            self.objects.lock().remove(name(&object));
                        }
                        Ok(WatchEvent::Bookmark(mark)) => {
                            version = mark.metadata.resource_version;
                            continue;
                        }
                        Ok(WatchEvent::Error(status)) if is_over(status.code) => return,
                        Err(kube_client::Error::Api(status)) if is_over(status.code) => return,
                        Ok(WatchEvent::Error(_)) | Err(_) => break,
                    }
                    changed.notify_one();
                }
            }
            clock.sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Keeps a Secret as long as there is a ConfigMap of its name. It looks again whenever a [`Mirror`] has changed.
async fn keep_a_secret(life: Life, rights: Rights) {
    let client = life.client;
    let (maps, secrets, changed) = (Mirror::<ConfigMap>::new(), Mirror::<Secret>::new(), Notify::new());
    let work = async {
        loop {
            changed.notified().await;
            while maps.has("db") && !secrets.has("db") {
                match client.api::<Secret>().create(&child("db", "")).await {
                    Err(error) if error.class() != ErrorClass::AlreadyExists => {
                        client.env().clock.sleep(Duration::from_secs(1)).await;
                    }
                    _ => break,
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = life.stop.cancelled() => {}
        () = maps.follow(&client, &changed, rights) => {}
        () = secrets.follow(&client, &changed, rights) => {}
        () = work => {}
    }
}

/// The user deletes the Secret, which is to come back.
async fn a_secret_is_deleted(user: &User) {
    user.create(&child::<ConfigMap>("db", "")).await;
    user.eventually::<Secret>("default/db", |_| true).await;
    user.settle().await;
    user.delete::<Secret>("default/db").await;
    user.settle().await;
}

async fn two_replicas(user: &User) {
    user.create(&cluster(json!({"replicas": 2}))).await;
    user.settle().await;
}

async fn created(user: &User) {
    user.create(&cluster(json!({}))).await;
    user.settle().await;
}

async fn reconfigured(user: &User) {
    created(user).await;
    user.patch::<Cluster>(DB, json!({"spec": {"config": "second"}})).await;
    user.settle().await;
}

async fn deleted(user: &User) {
    created(user).await;
    user.delete::<Cluster>(DB).await;
    user.settle().await;
}

async fn recreated(user: &User) {
    deleted(user).await;
    created(user).await;
}

/// What is not among the bugs that Sieve found.
fn exhibits() -> Vec<Exhibit> {
    let latest = Reads::Latest;
    let kube_rs = |title, source, class, wrong: Rights| {
        program((title, source, class), a_secret_is_deleted, move |life: Life, _: Outside, mended| {
            let right = Rights { notices_gone: true, lists_when_expired: true };
            keep_a_secret(life, if mended { right } else { wrong })
        })
    };
    vec![
        operator(
            ("expectations expire", "kubernetes/kubernetes#129795", Class::StaleRead),
            latest,
            replicate,
            two_replicas,
        ),
        kube_rs(
            "a relist hides a deletion",
            "kube-rs: Store",
            Class::LostWakeUp,
            Rights { notices_gone: false, lists_when_expired: true },
        ),
        kube_rs(
            "a watch is opened at an expired version for ever",
            "kube-rs/kube#1042",
            Class::UnobservedState,
            Rights { notices_gone: true, lists_when_expired: false },
        ),
        operator(
            ("a create is retried", "kube-rs: RetryPolicy", Class::NotIdempotent),
            latest,
            retry_create,
            created,
        ),
        operator(
            ("an object of its own is in the way", "operators", Class::NotIdempotent),
            latest,
            already_there,
            created,
        ),
        operator(("an error is ignored", "operators", Class::ErrorHandling), latest, ignore_errors, created),
        operator(("a kind that is not served", "operators", Class::ErrorHandling), latest, unserved, deleted),
        operator(
            ("an object that cannot be decoded", "operators", Class::ErrorHandling),
            latest,
            undecodable,
            reconfigured,
        ),
        operator(
            ("a finalizer is removed too early", "operators", Class::CrashBetweenWrites),
            latest,
            release_first,
            deleted,
        ),
        operator(
            ("a finalizer is never removed", "operators", Class::CrashBetweenWrites),
            latest,
            never_release,
            deleted,
        ),
        operator(
            ("cleaned up without a finalizer", "operators", Class::UnobservedState),
            latest,
            clean_up_on_delete,
            deleted,
        ),
        operator(
            ("a name instead of a uid", "operators", Class::UnobservedState),
            latest,
            remember_by_name,
            recreated,
        ),
        operator(("a clock that is ahead", "operators", Class::Time), latest, time_to_live, created),
    ]
}

#[test]
fn known_mistakes_of_toolkits_and_their_users_are_found() {
    visit(&exhibits());
}
