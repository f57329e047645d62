//! Operators and waits on kube-rs' runtime, on our server: finalizers, owned and watched kinds, events, conditions, a restart.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube_core::dynamic::{ApiResource, DynamicObject};
use kube_core::gvk::GroupVersionKind;
use kube_core::params::Patch;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::{Client, ObjectName};
use watchkeeper_apiserver::{ApiServer, Credentials, ListenOptions};
use watchkeeper_controllers::garbage_collector;

use crate::PeerPrograms;
use crate::observer::Observer;
use crate::program::Program;

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn boats() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example.com", "v1", "Boat"))
}

/// What a user does to Boats.
struct User {
    client: Client,
}

impl User {
    async fn create(&self, name: &str) -> DynamicObject {
        let mut boat = DynamicObject::new(name, &boats());
        boat.metadata.namespace = Some("default".into());
        boat.data = json!({"spec": {"port": "hamburg"}});
        self.client.api_of(boats()).create(&boat).await.unwrap()
    }

    async fn patch(&self, name: &str, patch: Value) {
        let requests = self.client.api_of::<DynamicObject>(boats());
        requests.patch(&key(name), &Patch::Merge(patch)).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.client.api_of::<DynamicObject>(boats()).delete(&key(name)).await.unwrap();
    }

    async fn port(&self, depth: &str) {
        let labels = json!({"role": "port"});
        let metadata = json!({"name": "hamburg", "namespace": "default", "labels": labels});
        let port = json!({"metadata": metadata, "data": {"depth": depth}});
        let maps = self.client.api::<ConfigMap>();
        maps.create(&serde_json::from_value(port).unwrap()).await.unwrap();
    }

    async fn set_depth(&self, of: &str, depth: &str) {
        let maps = self.client.api::<ConfigMap>();
        maps.patch(&key(of), &Patch::Merge(json!({"data": {"depth": depth}}))).await.unwrap();
    }
}

fn depth(observer: &Observer, log: &str) -> Option<String> {
    observer.seen::<ConfigMap>(log)?.data.as_ref()?.get("depth").cloned()
}

/// How often an event is said to have happened.
fn count(observer: &Observer, boat: &str, reason: &str) -> i32 {
    let events = observer.factory.informer::<Event>().indexer().snapshot();
    let events = events.iter().map(|event| event.get().unwrap()).filter(|event| {
        let regarding = event.regarding.as_ref().unwrap();
        regarding.name.as_deref() == Some(boat) && event.reason.as_deref() == Some(reason)
    });
    events.map(|event| event.series.as_ref().map_or(1, |series| series.count)).sum()
}

pub(crate) async fn an_operator_of_kube_rs_serves_boats_through_a_restart(programs: &PeerPrograms) {
    let server = ApiServer::new(&programs.env);
    let credentials = Some(Credentials::generate().unwrap());
    let mut options = ListenOptions { credentials, ..ListenOptions::default() };
    let listening = server.listen(options.clone()).await.unwrap();
    options.address = listening.address();
    std::fs::write(programs.kubeconfig(), listening.kubeconfig()).unwrap();
    // In process, so that it works while nobody listens.
    let user = User { client: Client::from_kube(server.client(), &programs.env) };
    let collector = (user.client.clone(), CancellationToken::new());
    let _stopped_at_the_end = collector.1.clone().drop_guard();
    tokio::spawn(async move { garbage_collector::run(&collector.0, collector.1).await });
    let observer = Observer::of(user.client.clone());
    observer.observe::<ConfigMap>().await;
    observer.observe::<Secret>().await;
    observer.observe::<Event>().await;

    let mut operator = programs.kube_runtime("operator");
    operator.until(&["kind established"]).await;
    children_and_events(&user, &observer, &mut operator).await;
    generations(&user, &mut operator).await;
    cleanup(&user, &observer, &mut operator).await;

    // Nobody listens while one log is removed, one Boat is marked for deletion and the port gets deeper; and all of it is forgotten.
    user.create("c").await;
    observer.until("c has its log", |seen| depth(seen, "log-of-c").is_some()).await;
    drop(listening);
    user.client.api::<ConfigMap>().delete(&key("log-of-a")).await.unwrap();
    user.delete("c").await;
    user.set_depth("hamburg", "14").await;
    server.compact_now();
    let listening = server.listen(options).await.unwrap();
    observer.until("the log is back", |seen| depth(seen, "log-of-a").as_deref() == Some("14")).await;
    operator.until(&["cleaned up c"]).await;
    observer.until("c is gone", |seen| seen.seen::<Secret>("berth-of-c").is_none()).await;

    // Everything is looked at again when it says so, and the end is an orderly one.
    operator.tell("all");
    operator.until(&["applied a at depth Some(\"14\")"]).await;
    operator.signal("TERM");
    let (status, lines) = operator.exit().await;
    assert!(status.success() && lines.iter().any(|line| line == "stopped"), "{lines:#?}");
    listening.stop().await;
}

async fn children_and_events(user: &User, observer: &Observer, operator: &mut Program) {
    user.port("10").await;
    user.create("a").await;
    operator.until(&["finalizer of a added"]).await;
    operator.until(&["applied a at depth Some(\"10\"), 1 times"]).await;
    operator.until(&["applied a", "2 times"]).await;
    observer
        .until("an owned log, a berth, and one event that counts", |seen| {
            depth(seen, "log-of-a").as_deref() == Some("10")
                && seen.seen::<Secret>("berth-of-a").is_some()
                && count(seen, "a", "Applied") >= 2
        })
        .await;
    user.set_depth("hamburg", "12").await;
    observer.until("the log follows the port", |seen| depth(seen, "log-of-a").as_deref() == Some("12")).await;
    let before = observer.seen::<ConfigMap>("log-of-a").unwrap().metadata.resource_version.clone();
    user.set_depth("log-of-a", "0").await;
    observer
        .until("an edit is set back", |seen| {
            let log = seen.seen::<ConfigMap>("log-of-a").unwrap();
            depth(seen, "log-of-a").as_deref() == Some("12") && log.metadata.resource_version != before
        })
        .await;
    let first = observer.seen::<ConfigMap>("log-of-a").unwrap().metadata.uid.clone();
    user.client.api::<ConfigMap>().delete(&key("log-of-a")).await.unwrap();
    observer
        .until("a deleted log comes back", |seen| {
            seen.seen::<ConfigMap>("log-of-a").is_some_and(|log| log.metadata.uid != first)
        })
        .await;
}

/// Of all that was written to a Boat, spec and labels alone pass the predicates.
async fn generations(user: &User, operator: &mut Program) {
    user.patch("a", json!({"metadata": {"labels": {"colour": "red"}}})).await;
    operator.until(&["generation 1 of a with 1 labels"]).await;
    user.patch("a", json!({"metadata": {"annotations": {"note": "nothing new"}}})).await;
    user.patch("a", json!({"spec": {"port": "nowhere"}})).await;
    operator.until(&["generation 2 of a with 1 labels"]).await;
    operator.until(&["applied a at depth None"]).await;
    user.patch("a", json!({"spec": {"port": "hamburg"}})).await;
    operator.until(&["generation 3 of a with 1 labels"]).await;
    let mut lines: Vec<_> = operator.said().iter().filter(|line| line.starts_with("generation ")).collect();
    lines.dedup();
    let wanted = [(1, 0), (1, 1), (2, 1), (3, 1)]
        .map(|(n, labels)| format!("generation {n} of a with {labels} labels"));
    assert_eq!(lines, wanted.iter().collect::<Vec<_>>());
}

async fn cleanup(user: &User, observer: &Observer, operator: &mut Program) {
    user.create("b").await;
    operator.until(&["applied b"]).await;
    user.patch("b", json!({"metadata": {"annotations": {"stuck": "yes"}, "finalizers": null}})).await;
    operator.until(&["finalizer of b added"]).await;
    user.delete("b").await;
    operator.until(&["failed b: failed to clean up object: b is stuck"]).await;
    assert!(observer.seen::<Secret>("berth-of-b").is_some());
    user.patch("b", json!({"metadata": {"annotations": {"stuck": null}}})).await;
    operator.until(&["cleaned up b"]).await;
    observer
        .until("b is gone, and its log with it", |seen| {
            seen.seen::<Secret>("berth-of-b").is_none()
                && seen.seen::<ConfigMap>("log-of-b").is_none()
                && count(seen, "b", "CleanedUp") == 1
        })
        .await;
}

pub(crate) async fn what_kube_rs_waits_for_comes_and_its_events_are_counted(programs: &PeerPrograms) {
    let server = programs.serve().await;
    let waits = programs.kube_runtime("waits");
    let (status, lines) = waits.exit().await;
    let wanted = [
        "met: pod running",
        "met: job completed",
        "met: deployment completed",
        "met: load balancer provisioned",
        "met: ingress provisioned",
        "met: created",
        "met: deleted at once",
        "met: marked for deletion",
        "met: deleted after its finalizer",
        r#"events: [("Pulled", 3), ("Started", 1)]"#,
    ];
    assert!(status.success() && lines == wanted, "{lines:#?}");
    server.signal("TERM");
    assert!(server.exit().await.0.success());
}
