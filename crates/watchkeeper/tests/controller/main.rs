//! The low-level controller and the unshared informer, on both queues, in process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../common/mod.rs"]
mod common;
mod hammered;
mod low_level;
mod retries;
mod unshared;

use std::time::Duration;

use common::{Log, event, parse, within_a_minute};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, DeltaController, Handler, Informer, on_change, process_deltas};
use watchkeeper::queue::{Popped, ProcessError, QueueKind};
use watchkeeper::source::{Feed, ListerWatcher, ScriptedSource};
use watchkeeper::store::{Indexer, namespace_index};
use watchkeeper::{Env, Object};

fn object(item: &str) -> Object<ConfigMap> {
    Object::from_json(parse(item).to_string().as_bytes()).unwrap()
}

/// Records the reports.
fn reports(env: &Env) -> Log {
    let log = Log::default();
    let into = log.clone();
    env.reporter.add_hook(move |report| into.add(format!("{} {}", report.part, report.incident)));
    log
}

/// Returns a handler that deletes every added object at the server, and records the deletes.
fn deleting(feed: Feed, log: &Log) -> impl Handler<ConfigMap> + use<> {
    let log = log.clone();
    on_change(move |change: Change<'_, ConfigMap>| match change {
        Change::Added { object, .. } => {
            feed.send(event("DELETED", &format!("{}@{}", object.name(), 100)));
        }
        Change::Deleted(gone) => log.add(gone.key().to_string()),
        Change::Updated { .. } => {}
    })
}

/// Returns a controller that processes the deltas that `fail` accepts, and records them.
fn failing(
    env: &Env,
    kind: QueueKind,
    source: &ScriptedSource,
    retry: bool,
    mut fail: impl FnMut(&Popped<ConfigMap>) -> Result<(), ProcessError> + Send + 'static,
) -> (DeltaController<ConfigMap>, Indexer<ConfigMap>, Log) {
    let (store, log) = (Indexer::new(env, []), Log::default());
    let (into, mut handler) = (store.clone(), on_change(log.handler()));
    let process = move |popped: &Popped<ConfigMap>| {
        fail(popped)?;
        process_deltas(&into, popped, &mut handler);
        Ok::<(), ProcessError>(())
    };
    let builder = DeltaController::builder(source.clone(), process, env);
    let mut builder = builder.queue(kind).known_objects(store.clone()).name("maps");
    if retry {
        builder = builder.retry_on_error();
    }
    (builder.build(), store, log)
}

async fn until_synced(env: &Env, controller: &DeltaController<ConfigMap>) {
    within_a_minute(env, controller.wait_until_synced()).await;
}

fn run(controller: &DeltaController<ConfigMap>) -> (CancellationToken, JoinHandle<()>) {
    let (controller, stop) = (controller.clone(), CancellationToken::new());
    let token = stop.clone();
    (stop, tokio::spawn(async move { controller.run(token).await }))
}

/// An unshared informer, and the notifications of its handler, which panics when `bad` is added.
struct UnsharedInformer<S> {
    env: Env,
    source: S,
    store: Indexer<ConfigMap>,
    informer: Informer<ConfigMap>,
    log: Log,
    stop: CancellationToken,
}

impl<S: ListerWatcher + Clone> UnsharedInformer<S> {
    fn new(env: Env, source: S, kind: QueueKind, resync: Duration) -> Self {
        let log = Log::default();
        let mut tell = log.handler();
        let (store, informer) = Informer::builder(source.clone(), &env)
            .handler(on_change(move |change: Change<'_, ConfigMap>| {
                assert!(!matches!(&change, Change::Added { object, .. } if object.name() == "bad"), "bad");
                tell(change);
            }))
            .resync(resync)
            .indexes([namespace_index()])
            .queue(kind)
            .build();
        assert!(!informer.has_synced());
        Self { env, source, store, informer, log, stop: CancellationToken::new() }
    }

    fn start(&self) -> JoinHandle<()> {
        let (informer, stop) = (self.informer.clone(), self.stop.clone());
        tokio::spawn(async move { informer.run(stop).await })
    }

    async fn until_synced(&self) {
        within_a_minute(&self.env, self.informer.wait_until_synced()).await;
    }

    /// Stops the informer and waits until it has ended.
    async fn end(&self, task: JoinHandle<()>) {
        self.stop.cancel();
        within_a_minute(&self.env, task).await.unwrap();
    }
}
