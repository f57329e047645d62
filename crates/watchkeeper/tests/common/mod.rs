//! A scripted API server of ConfigMaps, an informer on it, and a handler that records its notifications.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Instant;
use watchkeeper::informer::{Change, SharedInformerBuilder, on_change};
use watchkeeper::queue::QueueKind;
use watchkeeper::source::{Asked, Feed, ListOptions, Reply, ScriptedSource};
use watchkeeper::store::{Indexer, namespace_index};
use watchkeeper::{Env, SharedInformer};

/// Every test of an informer runs on both.
pub(crate) const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

/// `name@version` as an item of a list; the uid is the name unless given as `name/uid@version`.
pub(crate) fn parse(item: &str) -> Value {
    let (name, version) = item.split_once('@').unwrap();
    let (name, uid) = name.split_once('/').unwrap_or((name, name));
    json!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version}})
}

/// Returns the same as an object of a watch, which has a kind.
pub(crate) fn watched(item: &str) -> Value {
    let mut object = parse(item);
    object["kind"] = "ConfigMap".into();
    object["apiVersion"] = "v1".into();
    object
}

pub(crate) fn list(version: u64, items: &[&str]) -> Reply {
    list_page(version, "", items)
}

pub(crate) fn list_page(version: u64, token: &str, items: &[&str]) -> Reply {
    let items: Vec<_> = items.iter().map(|item| parse(item)).collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
    Reply::body(json!({"kind": "ConfigMapList", "metadata": metadata, "items": items}).to_string())
}

pub(crate) fn raw(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

pub(crate) fn event(kind: &str, item: &str) -> String {
    raw(kind, &watched(item))
}

pub(crate) fn status(code: u16, reason: &str) -> String {
    raw("ERROR", &json!({"kind": "Status", "code": code, "reason": reason, "message": "scripted"}))
}

pub(crate) fn gone() -> String {
    status(410, "Expired")
}

/// Returns a watch that stays open and silent.
pub(crate) fn silence() -> Reply {
    Reply::body("").then_hang()
}

/// Returns a change in short form.
pub(crate) fn show<K>(change: &Change<'_, K>) -> String {
    match change {
        Change::Added { object, in_initial_list } => {
            let initial = if *in_initial_list { " initial" } else { "" };
            format!("+ {}@{}{initial}", object.name(), object.version())
        }
        Change::Updated { new, .. } if change.is_resync() => format!("= {}@{}", new.name(), new.version()),
        Change::Updated { old, new } => format!("{} {}->{}", new.name(), old.version(), new.version()),
        Change::Deleted(deleted) => {
            let version = deleted.last_known().map(|object| object.version().to_string()).unwrap_or_default();
            let tombstone = if deleted.is_tombstone() { " tombstone" } else { "" };
            format!("- {}@{version}{tombstone}", deleted.key().name())
        }
    }
}

/// The notifications of a handler.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn handler<K>(&self) -> impl FnMut(Change<'_, K>) + Send + use<K> {
        let log = self.clone();
        move |change| log.add(show(&change))
    }

    pub(crate) fn add(&self, line: String) {
        self.0.lock().push(line);
    }

    /// Returns the notifications since the last call, sorted, as the order of those of a relist is not fixed.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    pub(crate) fn take_sorted(&self) -> Vec<String> {
        let mut lines = self.take();
        lines.sort();
        lines
    }
}

/// Waits for `future`, for an hour at most. On the paused clock that hour is over as soon as nothing else can happen,
/// so a test that waits in vain fails instead of hanging.
pub(crate) async fn soon<F: IntoFuture>(env: &Env, future: F) -> F::Output {
    let hour = Duration::from_secs(3600);
    env.clock.timeout(hour, future.into_future()).await.expect("waited for an hour")
}

/// The same for tests in real time: waits for a minute at most.
pub(crate) async fn within_a_minute<F: IntoFuture>(env: &Env, future: F) -> F::Output {
    let minute = Duration::from_secs(60);
    env.clock.timeout(minute, future.into_future()).await.expect("waited for a minute")
}

/// Lets everything that is ready happen.
pub(crate) async fn settle(env: &Env) {
    env.clock.sleep(Duration::from_millis(1)).await;
}

/// The request for the first page of a list.
pub(crate) fn first_page(limit: u32) -> Asked {
    let mut options = ListOptions::default();
    options.limit = limit;
    Asked::List(options)
}

/// Returns the contents of a store, as `name@version`.
pub(crate) fn cached(store: &Indexer<ConfigMap>) -> Vec<String> {
    let snapshot = store.snapshot();
    let mut all: Vec<_> = snapshot.iter().map(|o| format!("{}@{}", o.name(), o.version())).collect();
    all.sort();
    all
}

/// An informer whose source plays a script, and the notifications of its handler.
pub(crate) struct ScriptedInformer {
    pub(crate) env: Env,
    pub(crate) source: ScriptedSource,
    pub(crate) informer: SharedInformer<ConfigMap>,
    pub(crate) log: Log,
    pub(crate) stop: CancellationToken,
    pub(crate) began: Instant,
}

impl ScriptedInformer {
    pub(crate) fn new(queue: QueueKind, resync: Duration) -> Self {
        Self::on(queue, ScriptedSource::new(), |builder| builder.resync(resync))
    }

    /// Returns an informer on `source`, with the settings of `build`.
    pub(crate) fn on(
        queue: QueueKind,
        source: ScriptedSource,
        build: impl FnOnce(SharedInformerBuilder<ConfigMap>) -> SharedInformerBuilder<ConfigMap>,
    ) -> Self {
        let (env, log) = (Env::simulated(1), Log::default());
        let builder = SharedInformer::builder(source.clone(), &env).queue(queue).indexes([namespace_index()]);
        let informer = build(builder).build();
        informer.add_handler(on_change(log.handler())).unwrap();
        let began = env.clock.now();
        Self { env, source, informer, log, stop: CancellationToken::new(), began }
    }

    pub(crate) fn start(&self) -> tokio::task::JoinHandle<()> {
        let (informer, stop) = (self.informer.clone(), self.stop.clone());
        tokio::spawn(async move { informer.run(stop).await })
    }

    pub(crate) async fn settle(&self) {
        settle(&self.env).await;
    }

    pub(crate) async fn until_synced(&self) {
        soon(&self.env, self.informer.wait_until_synced()).await;
    }

    /// Waits until there have been `count` requests.
    pub(crate) async fn until_asked(&self, count: usize) {
        soon(&self.env, self.source.until_asked(count)).await;
    }

    pub(crate) fn cached(&self) -> Vec<String> {
        cached(self.informer.indexer())
    }

    /// Returns a running informer that has listed `items` at version 10 and watches.
    pub(crate) async fn watching(queue: QueueKind, items: &[&str]) -> (Self, Feed) {
        let scripted = Self::new(queue, Duration::ZERO);
        let (reply, feed) = Reply::live();
        scripted.source.on_list(list(10, items)).on_watch(reply);
        scripted.start();
        scripted.until_synced().await;
        scripted.settle().await;
        (scripted, feed)
    }
}
