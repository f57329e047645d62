//! Do the low-level controller and the unshared informer keep their promises, on both queues? In process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper::informer::{
    Change, Controller, Informer, ProcessError, QueueKind, on_change, process_deltas,
};
use watchkeeper::queue::{Deleted, Delta, DeltaFifo, OrderedFifo, Popped, Queue};
use watchkeeper::reflector::Phase;
use watchkeeper::source::{
    ByteStream, Feed, ListOptions, ListerWatcher, Reply, ScriptedSource, WatchOptions,
};
use watchkeeper::store::{Indexer, NAMESPACE_INDEX, namespace_index};
use watchkeeper::wire::ApiError;
use watchkeeper::{Env, Object, ObjectName};

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

fn queue(kind: QueueKind) -> Box<dyn Queue<ConfigMap>> {
    match kind {
        QueueKind::Ordered => Box::new(OrderedFifo::new()),
        QueueKind::Delta => Box::new(DeltaFifo::new(Generator::seeded(1).hasher())),
    }
}

/// `name@version` as JSON.
fn parse(item: &str) -> serde_json::Value {
    let (name, version) = item.split_once('@').unwrap();
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"), "resourceVersion": version}})
}

fn object<K>(item: &str) -> Object<K> {
    Object::from_json(parse(item).to_string().as_bytes()).unwrap()
}

fn list(version: u64, items: &[&str]) -> Reply {
    let items: Vec<_> = items.iter().map(|item| parse(item)).collect();
    Reply::body(json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}).to_string())
}

fn event(kind: &str, item: &str) -> String {
    format!("{}\n", json!({"type": kind, "object": parse(item)}))
}

fn gone() -> String {
    let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

async fn settle(env: &Env) {
    env.clock.sleep(Duration::from_millis(1)).await;
}

fn show(change: &Change<'_, ConfigMap>) -> String {
    match change {
        Change::Added { object, in_initial_list } => {
            let initial = if *in_initial_list { " initial" } else { "" };
            format!("+ {}@{}{initial}", object.name(), object.version())
        }
        Change::Updated { old, new } => format!("{} {}->{}", new.name(), old.version(), new.version()),
        Change::Deleted(gone) => {
            format!("- {}{}", gone.key().name(), if gone.is_tombstone() { " tombstone" } else { "" })
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    fn take_sorted(&self) -> Vec<String> {
        let mut lines = self.take();
        lines.sort();
        lines
    }

    /// Writes down what is reported.
    fn reports(env: &Env) -> Self {
        let log = Self::default();
        let into = log.clone();
        env.reporter.add_hook(move |report| into.add(format!("{} {}", report.part, report.what)));
        log
    }
}

fn cached(store: &Indexer<ConfigMap>) -> Vec<String> {
    let mut all: Vec<_> =
        store.snapshot().iter().map(|object| format!("{}@{}", object.name(), object.version())).collect();
    all.sort();
    all
}

/// A controller whose process function fails as often as `failures` says, and then writes down what it got.
fn failing(
    env: &Env,
    kind: QueueKind,
    source: &ScriptedSource,
    retry: bool,
    mut fail: impl FnMut(&Popped<ConfigMap>) -> Result<(), ProcessError> + Send + 'static,
) -> (Controller<ConfigMap>, Indexer<ConfigMap>, Log) {
    let (store, log) = (Indexer::new(env, []), Log::default());
    let mut builder =
        Controller::builder(env).queue(queue(kind)).known_objects(store.clone()).describe("maps");
    if retry {
        builder = builder.retry_on_error();
    }
    let (into, told) = (store.clone(), log.clone());
    let mut handler = on_change(move |change: Change<'_, ConfigMap>| told.add(show(&change)));
    let controller = builder.build(source.clone(), move |popped: &Popped<ConfigMap>| {
        fail(popped)?;
        process_deltas(&into, popped, &mut handler);
        Ok::<(), ProcessError>(())
    });
    (controller, store, log)
}

fn run(controller: &Controller<ConfigMap>) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let (controller, stop) = (controller.clone(), CancellationToken::new());
    let token = stop.clone();
    (stop, tokio::spawn(async move { controller.run(token).await }))
}

// client-go: Example
#[tokio::test(start_paused = true)]
async fn a_hand_made_controller_sees_three_objects_come_and_go() {
    for kind in QUEUES {
        let (env, source, log) = (Env::simulated(1), ScriptedSource::new(), Log::default());
        let (reply, feed) = Reply::live();
        source.on_list(list(1, &[])).on_watch(reply);
        for item in ["a-hello@2", "b-controller@3", "c-framework@4"] {
            feed.send(event("ADDED", item));
        }
        let (store, told) = (Indexer::new(&env, []), log.clone());
        let into = store.clone();
        // Whatever is added is deleted at the server.
        let mut handler = on_change(move |change: Change<'_, ConfigMap>| match change {
            Change::Added { object, .. } => {
                feed.send(event("DELETED", &format!("{}@{}", object.name(), 100)));
            }
            Change::Deleted(gone) => told.add(gone.key().to_string()),
            Change::Updated { .. } => {}
        });
        let controller = Controller::builder(&env).queue(queue(kind)).known_objects(store.clone()).build(
            source,
            move |popped: &Popped<ConfigMap>| {
                process_deltas(&into, popped, &mut handler);
                Ok::<(), Infallible>(())
            },
        );
        let (stop, task) = run(&controller);
        settle(&env).await;
        assert_eq!(log.take_sorted(), ["ns/a-hello", "ns/b-controller", "ns/c-framework"]);
        assert!(cached(&store).is_empty());
        stop.cancel();
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_once_and_says_how_it_is_doing() {
    for kind in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let reports = Log::reports(&env);
        let (controller, store, log) = failing(&env, kind, &source, false, |_| Ok(()));
        assert!(!controller.has_synced());
        assert!(controller.last_sync_version().is_unset());
        let (stop, task) = run(&controller);
        settle(&env).await;
        assert!(!controller.has_synced());
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
        controller.wait_until_synced().await;
        assert_eq!(log.take_sorted(), ["+ a@1 initial", "+ b@2 initial"]);
        feed.send(event("MODIFIED", "a@11") + &event("DELETED", "b@12"));
        settle(&env).await;
        assert_eq!(log.take(), ["a 1->11", "- b"]);
        // client-go: TestStoreResourceVersion
        assert_eq!((controller.last_sync_version(), store.version()), (12.into(), 12.into()));
        assert_eq!(controller.health().phase, Phase::Watching);
        controller.run(CancellationToken::new()).await;
        assert_eq!(reports.take(), ["controller the controller has been run already: make another one"]);
        stop.cancel();
        task.await.unwrap();
        assert_eq!(controller.health().phase, Phase::Stopped);
        assert!(controller.queue().is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_closed_from_outside_is_drained_and_ends_the_run() {
    for kind in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let (controller, _, log) = failing(&env, kind, &source, false, |_| Ok(()));
        controller.queue().push(Delta::Added(object("by-hand@1")));
        controller.queue().close();
        let (_stop, task) = run(&controller);
        task.await.unwrap();
        assert_eq!(log.take(), ["+ by-hand@1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_ends_it() {
    let (env, source) = (Env::simulated(1), ScriptedSource::new());
    let (controller, ..) = failing(&env, QueueKind::Ordered, &source, false, |_| Ok(()));
    let run = controller.run(CancellationToken::new());
    assert!(env.clock.timeout(Duration::from_secs(1), run).await.is_err());
    assert_eq!(controller.health().phase, Phase::Stopped);
    assert!(controller.queue().is_closed());
}

#[tokio::test(start_paused = true)]
async fn resyncs_come_with_the_period_and_only_when_they_should() {
    for kind in QUEUES {
        let (env, source, log) = (Env::simulated(1), ScriptedSource::new(), Log::default());
        source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
        let (store, told, should) = (Indexer::new(&env, []), log.clone(), Arc::new(AtomicBool::new(true)));
        let (into, asked) = (store.clone(), should.clone());
        let mut handler = on_change(move |change: Change<'_, ConfigMap>| told.add(show(&change)));
        let controller = Controller::builder(&env)
            .queue(queue(kind))
            .known_objects(store)
            .full_resync(Duration::from_secs(10))
            .should_resync(move || asked.load(Ordering::Relaxed))
            .build(source, move |popped: &Popped<ConfigMap>| {
                process_deltas(&into, popped, &mut handler);
                Ok::<(), Infallible>(())
            });
        let (stop, task) = run(&controller);
        env.clock.sleep(Duration::from_secs(25)).await;
        assert_eq!(log.take(), ["+ a@1 initial", "a 1->1", "a 1->1"]);
        should.store(false, Ordering::Relaxed);
        env.clock.sleep(Duration::from_secs(20)).await;
        assert!(log.take().is_empty());
        stop.cancel();
        task.await.unwrap();
    }
}

/// Fails the first `times` pops that bring `name` in a list or a change.
fn fail_on(
    name: &'static str,
    times: usize,
    error: fn() -> ProcessError,
) -> impl FnMut(&Popped<ConfigMap>) -> Result<(), ProcessError> {
    let mut left = times;
    move |popped| {
        let has = |delta: &Delta<ConfigMap>| match delta {
            Delta::ReplacedAll { items, .. } => items.iter().any(|object| object.name() == name),
            other => other.object().is_some_and(|object| object.name() == name),
        };
        if left > 0 && popped.deltas.iter().any(has) {
            left -= 1;
            return Err(error());
        }
        Ok(())
    }
}

// client-go: processLoop with RetryOnError and AddIfNotPresent, of the releases that had them
#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_until_it_is_processed_and_every_failure_is_reported() {
    for kind in QUEUES {
        for (retry, error) in [
            (true, (|| std::fmt::Error.into()) as fn() -> ProcessError),
            (false, || ProcessError::requeue("not now")),
            (true, || panic!("boom")),
        ] {
            let (env, source) = (Env::simulated(1), ScriptedSource::new());
            let reports = Log::reports(&env);
            let (reply, feed) = Reply::live();
            source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
            let (controller, store, log) = failing(&env, kind, &source, retry, fail_on("a", 3, error));
            let (stop, task) = run(&controller);
            settle(&env).await;
            assert!(!controller.has_synced(), "{kind:?}");
            feed.send(event("ADDED", "c@11"));
            controller.wait_until_synced().await;
            settle(&env).await;
            assert_eq!(log.take_sorted(), ["+ a@1 initial", "+ b@2 initial", "+ c@11"], "{kind:?}");
            assert_eq!((cached(&store).len(), store.version()), (3, 11.into()));
            assert_eq!(reports.take().len(), 3);
            assert_eq!(env.reporter.errors() + env.reporter.panics(), 3);
            stop.cancel();
            task.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_without_a_retry_is_reported_and_given_up() {
    for (kind, deltas, kept) in
        [(QueueKind::Ordered, "1 deltas", 0), (QueueKind::Delta, "1 deltas from ns/a on", 1)]
    {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let reports = Log::reports(&env);
        source.on_list(list(10, &["a@1", "b@2"])).on_watch(Reply::body("").then_hang());
        let fail = fail_on("a", 1, || std::fmt::Error.into());
        let (controller, store, _) = failing(&env, kind, &source, false, fail);
        let (stop, task) = run(&controller);
        controller.wait_until_synced().await;
        settle(&env).await;
        assert_eq!(cached(&store).len(), kept);
        let cause = "an error occurred when formatting an argument";
        assert_eq!(
            reports.take(),
            [format!("controller cannot process {deltas}, which are given up: {cause}")]
        );
        stop.cancel();
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn while_processing_goes_on_failing_the_pauses_grow_and_a_stop_is_heard() {
    for kind in QUEUES {
        let (env, source, tries) = (Env::simulated(1), ScriptedSource::new(), Arc::new(AtomicUsize::new(0)));
        source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
        let count = tries.clone();
        let (controller, ..) = failing(&env, kind, &source, true, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Err(std::fmt::Error.into())
        });
        let (stop, task) = run(&controller);
        env.clock.sleep(Duration::from_secs(60)).await;
        let tries = tries.load(Ordering::Relaxed);
        assert!((60..75).contains(&tries), "{kind:?}: {tries}");
        assert!(!controller.has_synced());
        stop.cancel();
        task.await.unwrap();
    }
}

// client-go: the trace "DeltaFIFO Pop Process"
#[tokio::test]
async fn a_slow_pop_with_many_waiting_behind_it_is_reported() {
    let (env, source) = (Env::new(Clock::system(), Generator::seeded(1)), ScriptedSource::new());
    let reports = Log::reports(&env);
    let names: Vec<_> = (10..30).map(|n| format!("o{n}@1")).collect();
    let items: Vec<_> = names.iter().map(String::as_str).collect();
    source.on_list(list(10, &items)).on_watch(Reply::body("").then_hang());
    let (clock, mut is_first) = (env.clock.clone(), true);
    let (controller, ..) = failing(&env, QueueKind::Delta, &source, false, move |_| {
        let until = clock.now() + Duration::from_millis(if is_first { 110 } else { 0 });
        is_first = false;
        while clock.now() < until {
            std::hint::spin_loop();
        }
        Ok(())
    });
    let (stop, task) = run(&controller);
    controller.wait_until_synced().await;
    let reports = reports.take();
    let report = reports.first().unwrap();
    assert!(
        report.starts_with("queue slow handlers hold the queue up: 1 deltas from ns/o10 on took"),
        "{report}"
    );
    assert!(report.ends_with("while 19 entries wait"), "{report}");
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_read_no_faster_than_its_events_are_processed() {
    for kind in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let (reply, feed) = Reply::live();
        source.on_list(list(1, &[])).on_watch(reply);
        let (store, is_open) = (Indexer::new(&env, []), Arc::new(AtomicBool::new(false)));
        let (into, open) = (store.clone(), is_open.clone());
        let mut handler = on_change(|_: Change<'_, ConfigMap>| {});
        let controller = Controller::builder(&env)
            .queue(queue(kind))
            .known_objects(store.clone())
            .queue_bound(10_000)
            .retry_on_error()
            .build(source, move |popped: &Popped<ConfigMap>| {
                if !popped.deltas.is_empty()
                    && !open.load(Ordering::Relaxed)
                    && popped.version != Some(1.into())
                {
                    return Err(ProcessError::from(std::fmt::Error));
                }
                process_deltas(&into, popped, &mut handler);
                Ok(())
            });
        let (stop, task) = run(&controller);
        controller.wait_until_synced().await;
        for n in 2..1002 {
            feed.send(event("ADDED", &format!("o{n}@{n}")));
        }
        for _ in 0..100 {
            env.clock.sleep(Duration::from_secs(1)).await;
            assert!(controller.queue().bytes() < 12_000, "{kind:?}: {:?}", controller.queue());
        }
        is_open.store(true, Ordering::Relaxed);
        store.wait_until_fresh(&1001.into()).await;
        settle(&env).await;
        assert_eq!(store.snapshot().len(), 1000);
        stop.cancel();
        task.await.unwrap();
    }
}

struct World {
    env: Env,
    source: ScriptedSource,
    store: Indexer<ConfigMap>,
    informer: Informer<ConfigMap>,
    log: Log,
    stop: CancellationToken,
}

impl World {
    fn new(kind: QueueKind, resync: Duration) -> Self {
        let (env, source, log) = (Env::simulated(1), ScriptedSource::new(), Log::default());
        let told = log.clone();
        let (store, informer) = Informer::builder(source.clone(), &env)
            .handler(on_change(move |change: Change<'_, ConfigMap>| {
                assert!(!matches!(&change, Change::Added { object, .. } if object.name() == "bad"), "bad");
                told.add(show(&change));
            }))
            .resync(resync)
            .indexers([namespace_index()])
            .queue(kind)
            .build();
        Self { env, source, store, informer, log, stop: CancellationToken::new() }
    }

    fn start(&self) -> tokio::task::JoinHandle<()> {
        let (informer, stop) = (self.informer.clone(), self.stop.clone());
        tokio::spawn(async move { informer.run(stop).await })
    }

    async fn watching(kind: QueueKind, items: &[&str]) -> (Self, Feed) {
        let world = Self::new(kind, Duration::ZERO);
        let (reply, feed) = Reply::live();
        world.source.on_list(list(10, items)).on_watch(reply);
        world.start();
        world.informer.wait_until_synced().await;
        settle(&world.env).await;
        (world, feed)
    }
}

// client-go: ExampleNewInformer, TestResetWatch, TestReplaceEvents
#[tokio::test(start_paused = true)]
async fn an_unshared_informer_hears_of_everything_unchanged_objects_of_a_relist_included() {
    for kind in QUEUES {
        let (world, feed) = World::watching(kind, &["a@1", "b@2", "c@3"]).await;
        assert_eq!(world.log.take_sorted(), ["+ a@1 initial", "+ b@2 initial", "+ c@3 initial"]);
        feed.send(event("MODIFIED", "a@11"));
        settle(&world.env).await;
        assert_eq!(world.log.take(), ["a 1->11"]);
        world.source.on_list(list(20, &["a@11", "b@15", "d@16"])).on_watch(Reply::body("").then_hang());
        feed.send(gone());
        world.source.until_asked(4).await;
        settle(&world.env).await;
        assert_eq!(world.log.take_sorted(), ["+ d@16", "- c tombstone", "a 11->11", "b 2->15"]);
        assert_eq!(cached(&world.store), ["a@11", "b@15", "d@16"]);
        assert_eq!(world.store.snapshot().by_index(NAMESPACE_INDEX, "ns").unwrap().count(), 3);
        assert_eq!((world.store.version(), world.informer.last_sync_version()), (20.into(), 20.into()));
        world.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_put_in_by_hand_is_reported_gone_by_the_first_list() {
    for kind in QUEUES {
        let world = World::new(kind, Duration::ZERO);
        world.store.add(object("mypod@0"));
        let listed = json!({"metadata": {"name": "listed", "namespace": "ns"}});
        world.store.add(Object::from_json(listed.to_string().as_bytes()).unwrap());
        world.source.on_list(list(10, &["a@1", "listed@2"])).on_watch(Reply::body("").then_hang());
        world.start();
        world.informer.wait_until_synced().await;
        assert_eq!(world.log.take_sorted(), ["+ a@1 initial", "- mypod tombstone", "listed ->2"]);
        assert_eq!(cached(&world.store), ["a@1", "listed@2"]);
        world.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_shows_what_the_handler_is_told() {
    for kind in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let seen = Arc::new(Mutex::new(None::<Indexer<ConfigMap>>));
        let (look, log) = (seen.clone(), Log::default());
        let told = log.clone();
        let (store, informer) = Informer::builder(source, &env)
            .queue(kind)
            .handler(on_change(move |change: Change<'_, ConfigMap>| {
                let store = look.lock().clone().unwrap();
                told.add(format!("{}: {}", show(&change), cached(&store).join(" ")));
            }))
            .build();
        *seen.lock() = Some(store);
        let (stop, running) = (CancellationToken::new(), informer.clone());
        let token = stop.clone();
        let task = tokio::spawn(async move { running.run(token).await });
        informer.wait_until_synced().await;
        for change in [event("MODIFIED", "a@11"), event("ADDED", "b@12"), event("DELETED", "a@13")] {
            feed.send(change);
            settle(&env).await;
        }
        assert_eq!(log.take(), ["+ a@1 initial: a@1", "a 1->11: a@11", "+ b@12: a@11 b@12", "- a: b@12"]);
        stop.cancel();
        task.await.unwrap();
    }
}

// client-go: TestPanicPropagated; here the panic is reported, and the next change is told
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_reported_and_told_the_next_change() {
    for kind in QUEUES {
        let (world, feed) = World::watching(kind, &["a@1"]).await;
        feed.send(event("ADDED", "bad@11") + &event("ADDED", "good@12"));
        settle(&world.env).await;
        assert_eq!(world.log.take(), ["+ a@1 initial", "+ good@12"]);
        assert_eq!(cached(&world.store), ["a@1", "bad@11", "good@12"]);
        assert_eq!(world.env.reporter.panics(), 1);
        world.stop.cancel();
    }
}

// client-go: TestHammerController, TestUpdate
#[tokio::test(start_paused = true)]
async fn under_many_changes_and_resyncs_the_store_ends_as_the_server_says() {
    for kind in QUEUES {
        let world = World::new(kind, Duration::from_millis(100));
        let (reply, feed) = Reply::live();
        world.source.on_list(list(1, &[])).on_watch(reply);
        assert!(!world.informer.has_synced());
        let task = world.start();
        world.informer.wait_until_synced().await;
        let (chance, mut server) = (Generator::seeded(7), BTreeMap::new());
        for version in 2..3000_u64 {
            let name = format!("o{}", chance.below(20));
            let item = format!("{name}@{version}");
            if chance.below(3) == 0 {
                if server.remove(&name).is_some() {
                    feed.send(event("DELETED", &item));
                }
            } else if server.insert(name, version).is_some() {
                feed.send(event("MODIFIED", &item));
            } else {
                feed.send(event("ADDED", &item));
            }
            if chance.below(10) == 0 {
                world.env.clock.sleep(Duration::from_millis(chance.below(30))).await;
            }
        }
        settle(&world.env).await;
        let mut expected: Vec<_> = server.iter().map(|(name, version)| format!("{name}@{version}")).collect();
        expected.sort();
        assert_eq!(cached(&world.store), expected);
        // Every update begins where the last one ended.
        let mut states = BTreeMap::<String, String>::new();
        for line in world.log.take() {
            if let Some(added) = line.strip_prefix("+ ") {
                let (name, version) = added.split_once('@').unwrap();
                assert_eq!(states.insert(name.to_owned(), version.to_owned()), None);
            } else if let Some(name) = line.strip_prefix("- ") {
                assert!(states.remove(name).is_some());
            } else {
                let (name, change) = line.split_once(' ').unwrap();
                let (old, new) = change.split_once("->").unwrap();
                assert_eq!(states.insert(name.to_owned(), new.to_owned()).as_deref(), Some(old));
            }
        }
        world.stop.cancel();
        task.await.unwrap();
    }
}

// client-go: TestDeletionHandlingObjectToName, TestDeletedObjectGetObjectName, TestDeletedObjectGetKey
#[test]
fn an_object_and_its_tombstone_have_one_key() {
    let key = ObjectName::namespaced("ns", "a");
    let last_known = Some(object::<ConfigMap>("a@1"));
    for deleted in [
        Deleted::Final(object("a@1")),
        Deleted::Unknown { key: key.clone(), last_known },
        Deleted::Unknown { key: key.clone(), last_known: None },
    ] {
        assert_eq!(deleted.key(), key);
    }
}

// client-go: ExampleNewInformer
#[tokio::test(start_paused = true)]
async fn an_informer_whose_handler_deletes_what_is_added_ends_empty() {
    for kind in QUEUES {
        let (env, source, log) = (Env::simulated(1), ScriptedSource::new(), Log::default());
        let (reply, feed) = Reply::live();
        source.on_list(list(1, &["a-hello@1"])).on_watch(reply);
        feed.send(event("ADDED", "b-controller@2") + &event("ADDED", "c-framework@3"));
        let told = log.clone();
        let (store, informer) = Informer::<ConfigMap>::builder(source, &env)
            .queue(kind)
            .handler(on_change(move |change: Change<'_, ConfigMap>| match change {
                Change::Added { object, .. } => {
                    feed.send(event("DELETED", &format!("{}@{}", object.name(), 100)));
                }
                Change::Deleted(gone) => told.add(gone.key().to_string()),
                Change::Updated { .. } => {}
            }))
            .build();
        let (stop, running) = (CancellationToken::new(), informer.clone());
        let token = stop.clone();
        let task = tokio::spawn(async move { running.run(token).await });
        settle(&env).await;
        assert_eq!(log.take_sorted(), ["ns/a-hello", "ns/b-controller", "ns/c-framework"]);
        assert!(cached(&store).is_empty());
        stop.cancel();
        task.await.unwrap();
    }
}

/// An API server of one kind: lists, watches that replay what came after their version, and ways to disturb them.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    version: u64,
    objects: BTreeMap<String, u64>,
    /// By version, the event of that version as a line of a watch.
    history: Vec<(u64, String)>,
    /// By name, the versions that it had, 0 for a delete.
    states: BTreeMap<String, Vec<u64>>,
    watchers: Vec<tokio::sync::mpsc::UnboundedSender<String>>,
}

impl Server {
    /// Creates or changes `name`, or deletes it.
    fn change(&self, name: &str, is_delete: bool) {
        let mut server = self.0.lock();
        let before = server.objects.get(name).copied();
        let verb = match (before, is_delete) {
            (None, true) => return,
            (Some(_), true) => "DELETED",
            (None, false) => "ADDED",
            (Some(_), false) => "MODIFIED",
        };
        // A list of nothing has a version as well.
        server.version = server.version.max(1) + 1;
        let version = server.version;
        if is_delete {
            server.objects.remove(name);
        } else {
            server.objects.insert(name.to_owned(), version);
        }
        server.states.entry(name.to_owned()).or_default().push(if is_delete { 0 } else { version });
        let line = event(verb, &format!("{name}@{version}"));
        server.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
        server.history.push((version, line));
    }

    /// Ends all watches, with a 410 or by closing them.
    fn disturb(&self, is_gone: bool) {
        for watcher in std::mem::take(&mut self.0.lock().watchers) {
            if is_gone {
                let _nobody_reads = watcher.send(gone());
            }
        }
    }

    fn items(&self) -> Vec<String> {
        sorted(&self.0.lock().objects)
    }

    /// Waits, for at most so many seconds, until `store` shows what is here.
    async fn until_shown_by(&self, env: &Env, store: &Indexer<ConfigMap>, seconds: u32) {
        for _ in 0..seconds * 100 {
            if cached(store) == self.items() {
                return;
            }
            env.clock.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(cached(store), self.items());
    }

    /// Every state told in `lines` follows the one told before it, and is one that the server had; nobody is told of twice.
    fn check(&self, lines: Vec<String>) {
        let (server, mut told) = (self.0.lock(), BTreeMap::<String, String>::new());
        for line in lines {
            if let Some(added) = line.strip_prefix("+ ") {
                let (name, version) = added.split_once('@').unwrap();
                let version = version.trim_end_matches(" initial");
                assert!(server.states[name].contains(&version.parse().unwrap()));
                assert_eq!(told.insert(name.to_owned(), version.to_owned()), None, "{line}");
            } else if let Some(name) = line.strip_prefix("- ") {
                assert!(told.remove(name.trim_end_matches(" tombstone")).is_some(), "{line}");
            } else {
                let (name, change) = line.split_once(' ').unwrap();
                let (old, new) = change.split_once("->").unwrap();
                assert!(server.states[name].contains(&new.parse().unwrap()));
                assert!(old.parse::<u64>().unwrap() <= new.parse().unwrap(), "{line} goes back");
                assert_eq!(told.insert(name.to_owned(), new.to_owned()).as_deref(), Some(old));
            }
        }
        assert_eq!(sorted(&told), sorted(&server.objects));
    }
}

/// `name@version`, as [`cached`] shows a store.
fn sorted<V: std::fmt::Display>(objects: &BTreeMap<String, V>) -> Vec<String> {
    let mut all: Vec<_> = objects.iter().map(|(name, version)| format!("{name}@{version}")).collect();
    all.sort();
    all
}

impl ListerWatcher for Server {
    async fn list(&self, _options: &ListOptions) -> Result<ByteStream, ApiError> {
        let items: Vec<_> = self.items().iter().map(|item| parse(item)).collect();
        let version = self.0.lock().version.max(1).to_string();
        let body = json!({"metadata": {"resourceVersion": version}, "items": items}).to_string();
        Ok(Box::pin(futures::stream::iter([Ok(body.into())])))
    }

    async fn watch(&self, options: &WatchOptions) -> Result<ByteStream, ApiError> {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let (mut server, from) = (self.0.lock(), options.version.as_number().unwrap());
        for (_, line) in server.history.iter().filter(|(version, _)| *version > from) {
            sender.send(line.clone()).unwrap();
        }
        server.watchers.push(sender);
        Ok(Box::pin(futures::stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|line| (Ok(line.into()), receiver))
        })))
    }

    fn streams_lists(&self) -> bool {
        false
    }
}

type Running = (Indexer<ConfigMap>, Informer<ConfigMap>, Log, CancellationToken, tokio::task::JoinHandle<()>);

fn watch_server(server: &Server, env: &Env, kind: QueueKind, resync: Duration) -> Running {
    let (log, stop) = (Log::default(), CancellationToken::new());
    let told = log.clone();
    let (store, informer) = Informer::builder(server.clone(), env)
        .handler(on_change(move |change: Change<'_, ConfigMap>| told.add(show(&change))))
        .resync(resync)
        .queue(kind)
        .build();
    assert!(!informer.has_synced());
    let (running, token) = (informer.clone(), stop.clone());
    (store, informer, log, stop, tokio::spawn(async move { running.run(token).await }))
}

// client-go: TestUpdate
#[tokio::test(start_paused = true)]
async fn only_transitions_that_happened_are_told_and_everything_is_deleted_in_the_end() {
    // What happens to an object: put and delete.
    const PLAYS: [&str; 5] = ["pd", "ppd", "pppd", "pdpd", "pdppd"];
    for kind in QUEUES {
        let (env, server) = (Env::simulated(3), Server::default());
        server.change("there-before", false);
        let (store, informer, log, stop, task) = watch_server(&server, &env, kind, Duration::from_millis(7));
        informer.wait_until_synced().await;
        let mut plays = Vec::new();
        for (n, play) in PLAYS.iter().cycle().take(50).enumerate() {
            let (server, env) = (server.clone(), env.fork(&n.to_string()));
            plays.push(tokio::spawn(async move {
                for step in play.chars() {
                    env.clock.sleep(Duration::from_millis(env.generator.below(10))).await;
                    server.change(&format!("o{n}"), step == 'd');
                }
            }));
        }
        for play in plays {
            play.await.unwrap();
        }
        server.change("there-before", true);
        server.until_shown_by(&env, &store, 10).await;
        assert!(store.snapshot().is_empty());
        let lines = log.take();
        // Told again by a resync or changed by one step: nothing is skipped while the watch goes on.
        let states = server.0.lock().states.clone();
        for line in lines.iter().filter_map(|line| line.split_once("->")) {
            let (name, old) = line.0.split_once(' ').unwrap();
            let step = [old.parse::<u64>().unwrap(), line.1.parse().unwrap()];
            assert!(step[0] == step[1] || states[name].windows(2).any(|window| window == step), "{line:?}");
        }
        let deletes = states.values().flatten().filter(|version| **version == 0).count();
        assert_eq!(lines.iter().filter(|line| line.starts_with("- ")).count(), deletes);
        server.check(lines);
        stop.cancel();
        task.await.unwrap();
    }
}

// client-go: TestHammerController
#[tokio::test(start_paused = true)]
async fn changes_from_many_sides_amid_resyncs_and_relists_neither_hang_nor_get_lost() {
    for kind in QUEUES {
        for seed in 1..=5 {
            let (env, server) = (Env::simulated(seed), Server::default());
            let (store, informer, log, stop, task) =
                watch_server(&server, &env, kind, Duration::from_millis(100));
            informer.wait_until_synced().await;
            let mut sides = Vec::new();
            for side in 0..10 {
                let (server, env) = (server.clone(), env.fork(&format!("side {side}")));
                sides.push(tokio::spawn(async move {
                    for _ in 0..200 {
                        let name = format!("o{}", env.generator.below(30));
                        match env.generator.below(100) {
                            0 => server.disturb(true),
                            1 => server.disturb(false),
                            chance => server.change(&name, chance < 30),
                        }
                        env.clock.sleep(Duration::from_millis(env.generator.below(50))).await;
                    }
                }));
            }
            for side in sides {
                side.await.unwrap();
            }
            server.until_shown_by(&env, &store, 300).await;
            server.check(log.take());
            assert!(informer.health().lists > 1);
            stop.cancel();
            task.await.unwrap();
            assert!(server.0.lock().watchers.iter().all(tokio::sync::mpsc::UnboundedSender::is_closed));
        }
    }
}

// client-go: TestHammerController
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hammered_informer_on_several_threads_ends_as_the_server_says() {
    for kind in QUEUES {
        let (env, server) = (Env::new(Clock::system(), Generator::seeded(1)), Server::default());
        let (store, informer, log, stop, task) = watch_server(&server, &env, kind, Duration::from_millis(5));
        informer.wait_until_synced().await;
        let mut sides = Vec::new();
        for side in 0..8 {
            let (server, env) = (server.clone(), env.fork(&format!("side {side}")));
            sides.push(tokio::spawn(async move {
                for _ in 0..300 {
                    server.change(&format!("o{}", env.generator.below(30)), env.generator.below(3) == 0);
                    tokio::task::yield_now().await;
                }
            }));
        }
        for side in sides {
            side.await.unwrap();
        }
        server.until_shown_by(&env, &store, 30).await;
        stop.cancel();
        task.await.unwrap();
        server.check(log.take());
    }
}
