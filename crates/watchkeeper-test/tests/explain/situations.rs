//! The situations of `docs/explain.md`, each planted in a world of its own.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kube_core::CustomResourceExt;
use kube_core::params::{Patch, PatchParams};
use serde_json::{Value, json};
use watchkeeper::controller::{
    Action, Controller, Error, Manager, OnStale, Watch, generation_changed, labels_changed,
};
use watchkeeper::leader::LeaderElection;
use watchkeeper::workqueue::limiter::{ItemExponential, MaxOf, TokenBucket};
use watchkeeper::workqueue::{Priority, Trigger};
use watchkeeper::{Client, ObjectName};

use crate::net::Way;
use crate::website::Website;
use crate::world::World;

const A: (&str, &str) = ("ConfigMap", "default/a");
const SECRET: (&str, &str) = ("Secret", "default/s");

/// Plants a situation; returns the kind and the key to ask for, or nothing if there is no such situation.
pub(crate) async fn plant(world: &mut World, situation: &str) -> Option<(&'static str, &'static str)> {
    let asked = match situation {
        "reconciled" => well(world).await,
        "requeued" => {
            world.work(|| Ok(Action::requeue_after(Duration::from_secs(60)))).await;
            touch(world, 10_000).await
        }
        "retry-left" => retry_left(world).await,
        "running" => hangs(world, 10_000).await,
        "hangs" => hangs(world, 120_000).await,
        "running-after-failures" => fails_twice(world).await,
        "waiting" => queue(world, &["0", "1"], 3_000).await,
        "behind-a-hung-run" => behind_hung_runs(world, 1, &["b"], 0).await,
        "behind-hung-runs" => behind_hung_runs(world, 2, &["b", "c"], 0).await,
        "beside-a-hung-run" => behind_hung_runs(world, 2, &["b"], 20).await,
        "queue-long" => {
            let names: Vec<String> = (0..20).map(|number| format!("n-{number:02}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            queue(world, &names, 33_000).await;
            ("ConfigMap", "default/a")
        }
        "fails" => {
            world.work(|| Err(Error::message("disk full"))).await;
            touch(world, 10_000).await
        }
        "fails-with-delay" => {
            let minute = Duration::from_secs(60);
            world.work(move || Err(Error::requeue_after(minute, std::io::Error::other("disk full")))).await;
            touch(world, 10_000).await
        }
        "panics" => {
            world.work(|| std::panic::resume_unwind(Box::new("boom"))).await;
            touch(world, 10_000).await
        }
        "times-out" => {
            let two = Duration::from_secs(2);
            world
                .start(|manager| {
                    let maps = Controller::<ConfigMap>::new(manager).timeout(two);
                    maps.reconcile(|_, _| pending()).unwrap();
                })
                .await;
            touch(world, 8_050).await
        }
        "terminal" => {
            world.work(|| Err(Error::terminal("BadData", "data.size is missing"))).await;
            touch(world, 10_000).await
        }
        "terminal-filtered" => {
            filtered(world, || Err(Error::terminal("BadData", "data.size is missing"))).await
        }
        "cleanup-fails" => cleanup(world).await,
        "held-by-others" => held(world, Action::done()).await,
        "requeued-and-held" => held(world, Action::requeue_after(Duration::from_secs(60))).await,
        "undecodable" => undecodable(world).await,
        "filtered" => filtered(world, || Ok(Action::done())).await,
        "requeued-and-filtered" => {
            filtered(world, || Ok(Action::requeue_after(Duration::from_secs(60)))).await
        }
        "rate-limited" => rate_limited(world).await,
        "write-not-seen" => write_not_seen(world).await,
        "deleted" => {
            well(world).await;
            delete(world).await
        }
        "requeued-and-deleted" => {
            world.work(|| Ok(Action::requeue_after(Duration::from_secs(60)))).await;
            touch(world, 1_000).await;
            delete(world).await
        }
        "not-found" => {
            world.work(|| Ok(Action::done())).await;
            A
        }
        "not-remembered" => {
            // A queue remembers the last 16,384 idle keys.
            world.work(|| Ok(Action::done())).await;
            world.map("a").await;
            for number in 0..16_384 {
                world.map(&format!("n-{number}")).await;
            }
            world.pass(1_000).await;
            A
        }
        "never-queued" => {
            world.low_level().await;
            touch(world, 1_000).await
        }
        "change-lost" => {
            let queue = world.low_level().await;
            touch(world, 1_000).await;
            queue.add_because(ObjectName::namespaced("default", "a"), Priority::Normal, Trigger::External);
            let mut item = queue.get().await.unwrap();
            item.saw(&world.version("a").await);
            item.forget();
            grow(world).await;
            world.pass(20_000).await;
            A
        }
        "wrong-namespace" => {
            world.start_with(|manager| manager.namespaces(["production"]), idle).await;
            touch(world, 1_000).await
        }
        "wrong-selector" => {
            world
                .start(|manager| {
                    let maps = Controller::<ConfigMap>::new(manager).only(Watch::new().labels("app=web"));
                    maps.reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
                })
                .await;
            touch(world, 1_000).await
        }
        "wrong-selectors" => {
            world
                .start(|manager| {
                    let watch = Watch::new().labels("app=web").fields("metadata.name=b");
                    let maps = Controller::<ConfigMap>::new(manager).only(watch);
                    maps.reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
                })
                .await;
            touch(world, 1_000).await
        }
        "crd-missing" => {
            world.start(websites).await;
            world.pass(29_000).await;
            ("Website", "default/a")
        }
        "crd-missing-with-election" => {
            let client = world.client();
            world.start_with(|manager| manager.leader_election(candidate("me", &client)), websites).await;
            world.pass(29_000).await;
            ("Website", "default/a")
        }
        "blocked-by-other" => {
            world
                .start(|manager| {
                    idle(manager);
                    websites(manager);
                })
                .await;
            touch(world, 29_000).await
        }
        "rbac-missing" => {
            world.permit(json!([may(&["get", "list", "watch"], "secrets")])).await;
            world.map("a").await;
            world.start(idle).await;
            world.pass(29_000).await;
            A
        }
        "watch-down" => {
            well(world).await;
            down(world, Way::Refused, 30_000).await
        }
        "two-caches" => {
            world.start(owning).await;
            touch(world, 10_000).await;
            world.net.set(Way::Refused, "/configmaps");
            world.net.also(Way::Broken, "/secrets");
            world.server.end_watches();
            world.pass(30_000).await;
            A
        }
        "watch-failing" => {
            well(world).await;
            down(world, Way::Broken, 30_000).await
        }
        "polled" => {
            world.permit(json!([may(&["get", "list"], "configmaps")])).await;
            world.start(idle).await;
            touch(world, 30_000).await
        }
        "not-synced" => {
            world.net.set(Way::Hanging, "/configmaps");
            world.low_level_unsynced(|_, explained| explained);
            world.pass(5_000).await;
            A
        }
        "watch-silent" => {
            well(world).await;
            world.net.set(Way::Silent, "/configmaps");
            grow(world).await;
            world.pass(20_000).await;
            A
        }
        "write-forbidden" => {
            let reads = ["get", "list", "watch"];
            world.permit(json!([may(&reads, "configmaps"), may(&reads, "secrets")])).await;
            world.start(owning).await;
            touch(world, 10_000).await
        }
        "own-status-write" => {
            let crd = world.user.api::<Crd>().create(&Website::crd()).await;
            crd.unwrap();
            world.pass(1_000).await;
            world.start(with_status).await;
            let site = json!({
                "metadata": {"name": "a", "namespace": "default"}, "spec": {"image": "x", "replicas": 2},
            });
            world.user.api::<Website>().create(&serde_json::from_value(site).unwrap()).await.unwrap();
            world.pass(10_000).await;
            ("Website", "default/a")
        }
        "paused" => {
            let after = Duration::from_secs(60);
            world.start_with(|manager| manager.on_stale(after, OnStale::Pause), idle).await;
            touch(world, 1_000).await;
            down(world, Way::Broken, 120_000).await
        }
        "fails-and-watch-down" => {
            world.work(|| Err(Error::message("disk full"))).await;
            touch(world, 10_000).await;
            down(world, Way::Refused, 30_000).await
        }
        "not-leader" => not_leader(world).await,
        "not-leader-and-watch-down" => {
            not_leader(world).await;
            down(world, Way::Refused, 30_000).await
        }
        "no-leader" => {
            world.net.set(Way::Forbidden, "/leases");
            let client = world.client();
            world.start_with(|manager| manager.leader_election(candidate("me", &client)), idle).await;
            touch(world, 5_000).await
        }
        "shut-down" => {
            hangs(world, 1_000).await;
            world.map("b").await;
            world.stop();
            world.pass(1_000).await;
            ("ConfigMap", "default/b")
        }
        "never-started" => {
            drop(world.build(|manager| manager, idle));
            A
        }
        "starting" => {
            world.net.set(Way::Hanging, "/configmaps");
            world.start(idle).await;
            touch(world, 5_000).await
        }
        "owner-missing" => {
            world.start(owning).await;
            world.secret(json!({"name": "s", "namespace": "default"})).await;
            world.pass(1_000).await;
            SECRET
        }
        "mapping-nothing" => {
            world
                .start(|manager| {
                    let maps = Controller::<ConfigMap>::new(manager);
                    let maps = maps.watches(Watch::<Secret>::new(), |_, _| Vec::new());
                    maps.reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
                })
                .await;
            world.secret(json!({"name": "s", "namespace": "default"})).await;
            world.pass(1_000).await;
            SECRET
        }
        "mapping-panics" => {
            world
                .start(|manager| {
                    let maps = Controller::<ConfigMap>::new(manager);
                    let maps = maps.watches(Watch::<Secret>::new(), |_, _| {
                        std::panic::resume_unwind(Box::new("no annotations"))
                    });
                    maps.reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
                })
                .await;
            world.secret(json!({"name": "s", "namespace": "default"})).await;
            world.pass(1_000).await;
            SECRET
        }
        "related-not-found" => {
            world.start(owning).await;
            SECRET
        }
        "related" => {
            world.start(owning).await;
            touch(world, 1_000).await;
            ("Secret", "default/a")
        }
        _ => return None,
    };
    Some(asked)
}

/// A rule of a role.
fn may(verbs: &[&str], resource: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
}

fn idle(manager: &mut Manager) {
    Controller::<ConfigMap>::new(manager).reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
}

/// Each ConfigMap has a Secret of its name.
fn owning(manager: &mut Manager) {
    let maps = Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new());
    maps.reconcile(|map, cx| async move {
        let mut secret = Secret::default();
        secret.metadata.name = map.metadata.name.clone();
        cx.apply(&secret).await?;
        Ok(Action::requeue_after(Duration::from_secs(1)))
    })
    .unwrap();
}

fn websites(manager: &mut Manager) {
    Controller::<Website>::new(manager).reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
}

/// Each run writes the status, in a version that a predicate does not pass.
fn with_status(manager: &mut Manager) {
    let sites = Controller::<Website>::new(manager).when(generation_changed());
    sites
        .reconcile(|site, cx| async move {
            cx.status(|status| status.ready_replicas = site.spec.replicas).await?;
            Ok(Action::done())
        })
        .unwrap();
}

async fn touch(world: &World, millis: u64) -> (&'static str, &'static str) {
    world.map("a").await;
    world.pass(millis).await;
    A
}

async fn well(world: &mut World) -> (&'static str, &'static str) {
    world.work(|| Ok(Action::done())).await;
    touch(world, 10_000).await
}

async fn hangs(world: &mut World, millis: u64) -> (&'static str, &'static str) {
    world
        .start(|manager| {
            Controller::<ConfigMap>::new(manager).reconcile(|_, _| pending()).unwrap();
        })
        .await;
    touch(world, millis).await
}

/// Two runs fail, and the third does not end.
async fn fails_twice(world: &mut World) -> (&'static str, &'static str) {
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager);
            maps.reconcile(|_, cx| async move {
                if cx.attempt() < 2 {
                    return Err(Error::message("disk full"));
                }
                pending().await
            })
            .unwrap();
        })
        .await;
    touch(world, 3_000).await
}

/// Ahead of ConfigMap a are those of these names, each of which takes five seconds.
async fn queue(world: &mut World, names: &[&str], millis: u64) -> (&'static str, &'static str) {
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager);
            maps.reconcile(|_, cx| async move {
                cx.env().clock.sleep(Duration::from_secs(5)).await;
                Ok(Action::done())
            })
            .unwrap();
        })
        .await;
    for name in names {
        world.map(name).await;
    }
    touch(world, millis).await
}

async fn delete(world: &World) -> (&'static str, &'static str) {
    world.pass(1_000).await;
    world.user.api::<ConfigMap>().delete(&ObjectName::namespaced("default", "a")).await.unwrap();
    world.pass(10_000).await;
    A
}

async fn down(world: &World, way: Way, millis: u64) -> (&'static str, &'static str) {
    world.close(way, "/configmaps");
    world.pass(millis).await;
    A
}

async fn cleanup(world: &mut World) -> (&'static str, &'static str) {
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager);
            let maps = maps.finalizer("example.dev/bucket", |_, _| async {
                Err(Error::message("no access to the bucket"))
            });
            maps.reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
        })
        .await;
    touch(world, 1_000).await;
    delete(world).await
}

async fn undecodable(world: &mut World) -> (&'static str, &'static str) {
    let mut definition = serde_json::to_value(Website::crd()).unwrap();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = serde_json::from_value(definition).unwrap();
    world.user.api::<Crd>().create(&definition).await.unwrap();
    world.pass(1_000).await;
    world.start(websites).await;
    let site = json!({
        "apiVersion": "example.dev/v1", "kind": "Website",
        "metadata": {"name": "a", "namespace": "default"}, "spec": {"image": "x", "replicas": "many"},
    });
    let kind = kube_core::ApiResource::erase::<Website>(&());
    let api = kube_client::Api::<kube_core::DynamicObject>::namespaced_with(
        world.server.client(),
        "default",
        &kind,
    );
    api.create(&Default::default(), &serde_json::from_value(site).unwrap()).await.unwrap();
    world.pass(10_000).await;
    ("Website", "default/a")
}

/// Its data changes, of which a predicate takes no notice.
async fn filtered(
    world: &mut World,
    work: impl Fn() -> Result<Action, Error> + Send + Sync + 'static,
) -> (&'static str, &'static str) {
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager).when(labels_changed());
            let outcome = move |_, _| {
                let outcome = work();
                async { outcome }
            };
            maps.reconcile(outcome).unwrap();
        })
        .await;
    touch(world, 5_000).await;
    grow(world).await;
    world.pass(5_000).await;
    A
}

/// Changes the data of ConfigMap a.
pub(crate) async fn grow(world: &World) {
    let api = kube_client::Api::<ConfigMap>::namespaced(world.server.client(), "default");
    let data = BTreeMap::from([("size", "1")]);
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await.unwrap();
}

async fn held(world: &mut World, action: Action) -> (&'static str, &'static str) {
    world.work(move || Ok(action)).await;
    let finalizers = ["other.dev/hold"];
    world.create_map(json!({"name": "a", "namespace": "default", "finalizers": finalizers})).await;
    delete(world).await
}

/// The first run fails, with a backoff of ten minutes; the change of the object mends it.
async fn retry_left(world: &mut World) -> (&'static str, &'static str) {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager);
            let maps = maps.limiter(ItemExponential::new(minutes(10), minutes(100)));
            maps.reconcile(|map, _| async move {
                if map.data.is_none() {
                    Err(Error::message("data.size is missing"))
                } else {
                    Ok(Action::done())
                }
            })
            .unwrap();
        })
        .await;
    touch(world, 5_000).await;
    grow(world).await;
    world.pass(10_000).await;
    A
}

/// Runs of the keys with these names never end. So many others take five seconds each, and are before ConfigMap a.
async fn behind_hung_runs(
    world: &mut World,
    workers: usize,
    hanging: &'static [&'static str],
    others: usize,
) -> (&'static str, &'static str) {
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager).workers(workers);
            maps.reconcile(move |map, cx| async move {
                if hanging.contains(&map.metadata.name.as_deref().unwrap()) {
                    pending::<()>().await;
                }
                cx.env().clock.sleep(Duration::from_secs(5)).await;
                Ok(Action::done())
            })
            .unwrap();
        })
        .await;
    for name in hanging {
        world.map(name).await;
    }
    world.pass(1_000).await;
    for number in 0..others {
        world.map(&format!("n-{number:02}")).await;
    }
    touch(world, if others > 0 { 66_000 } else { 180_000 }).await
}

async fn rate_limited(world: &mut World) -> (&'static str, &'static str) {
    let backoff = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1_000));
    let limiter = MaxOf::new(backoff, TokenBucket::new(1.0, 1));
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager).limiter(limiter);
            maps.reconcile(|_, _| async { Err(Error::message("disk full")) }).unwrap();
        })
        .await;
    for number in 0..19 {
        world.map(&format!("n-{number}")).await;
    }
    touch(world, 10_000).await
}

async fn write_not_seen(world: &mut World) -> (&'static str, &'static str) {
    world.start(owning).await;
    world.secret(json!({"name": "other", "namespace": "default"})).await;
    world.pass(1_000).await;
    world.net.set(Way::Silent, "/secrets");
    touch(world, 3_000).await
}

fn candidate(identity: &str, client: &Client) -> LeaderElection {
    LeaderElection::builder(client, "default", "tester").identity(identity).build().unwrap()
}

async fn not_leader(world: &mut World) -> (&'static str, &'static str) {
    let user = world.user.clone();
    let other = Manager::builder("tester", &user).leader_election(candidate("other", &user)).build();
    let leads = other.handle();
    tokio::spawn(other.run(tokio_util::sync::CancellationToken::new()));
    leads.wait_until_running().await;
    let client = world.client();
    world.map("a").await;
    world.start_with(|manager| manager.leader_election(candidate("me", &client)), idle).await;
    world.pass(5_000).await;
    A
}
