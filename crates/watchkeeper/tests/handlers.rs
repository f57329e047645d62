//! Notifications of handlers that filter, fall behind or are removed, on both queues, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use common::{Log, QUEUES, ScriptedInformer, event, gone, list, silence, soon, within_a_minute};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Generator;
use watchkeeper::informer::{Change, Handler, HandlerOptions, Registration, filtered, on_change};
use watchkeeper::queue::{Deleted, QueueKind};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::{Env, Object, ObjectName, ResourceVersion, SharedInformer};

// client-go: TestFilteringResourceEventHandler
#[tokio::test(start_paused = true)]
async fn a_filtering_handler_turns_updates_across_its_border_into_adds_and_deletes() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        let even = Log::default();
        let is_even =
            |object: &Object<ConfigMap>| object.version().to_string().parse::<u64>().unwrap() % 2 == 0;
        let registration =
            scripted.informer.add_handler(filtered(is_even, on_change(even.handler()))).unwrap();
        soon(&scripted.env, registration.wait_until_synced()).await;
        assert_eq!(even.take(), ["+ b@2 initial"]);
        for (kind, item) in [
            ("MODIFIED", "a@12"),
            ("MODIFIED", "a@14"),
            ("MODIFIED", "a@15"),
            ("MODIFIED", "a@17"),
            ("DELETED", "a@19"),
            ("DELETED", "b@20"),
        ] {
            feed.send(event(kind, item));
        }
        scripted.settle().await;
        assert_eq!(even.take(), ["+ a@12", "a 12->14", "- a@14", "- b@20"]);
    }
}

/// A handler that waits in its first callback until it is released.
struct Stuck {
    log: Log,
    release: mpsc::Sender<()>,
    entered: tokio::sync::mpsc::UnboundedReceiver<()>,
}

impl Stuck {
    fn new() -> (Self, impl FnMut(Change<'_, ConfigMap>) + Send + 'static) {
        let (release, blocked) = mpsc::channel::<()>();
        let (enter, entered) = tokio::sync::mpsc::unbounded_channel();
        let (log, blocked) = (Log::default(), Mutex::new(blocked));
        let mut write = log.handler();
        let handler = move |change: Change<'_, ConfigMap>| {
            enter.send(()).unwrap();
            let _released = blocked.lock().recv();
            write(change);
        };
        (Self { log, release, entered }, handler)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_is_too_far_behind_is_told_the_newest_states_and_the_others_everything() {
    for queue in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue).build();
        let (mut stuck, handler) = Stuck::new();
        let options = HandlerOptions::default().bound(4);
        let slow = informer.add_handler_with(on_change(handler), options).unwrap();
        let (sender, mut versions) = tokio::sync::mpsc::unbounded_channel();
        let quick = on_change(move |change: Change<'_, ConfigMap>| {
            sender.send(change.last_known().unwrap().version().to_string()).unwrap();
        });
        informer.add_handler(quick).unwrap();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        within_a_minute(&env, stuck.entered.recv()).await.unwrap();
        assert_eq!(within_a_minute(&env, versions.recv()).await.unwrap(), "1");
        for version in 11..31 {
            let (kind, name) = match version {
                11 => ("ADDED", "b"),
                30 => ("DELETED", "b"),
                _ => ("MODIFIED", "a"),
            };
            feed.send(event(kind, &format!("{name}@{version}")));
            let told = within_a_minute(&env, versions.recv()).await.unwrap();
            assert_eq!(told, version.to_string(), "everything, in order");
        }
        assert!(slow.is_coalescing() && !slow.has_synced());
        let stats = &informer.stats().handlers[0];
        assert_eq!((stats.pending, stats.coalesced), (1, 19));
        drop(stuck.release);
        within_a_minute(&env, slow.wait_until_synced()).await;
        within_a_minute(&env, stuck.entered.recv()).await.unwrap();
        let caught_up = async {
            while slow.stats().pending > 0 || slow.is_coalescing() {
                tokio::task::yield_now().await;
            }
        };
        within_a_minute(&env, caught_up).await;
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
        assert_eq!(stuck.log.take(), ["+ a@1 initial", "a 1->29"]);
    }
}

#[test]
fn a_callback_that_blocks_its_thread_is_reported_by_name_and_counted() {
    for threads in [1, 2] {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(threads).enable_all().build().unwrap();
        runtime.block_on(async {
            let (env, source, reports) = (Env::system(), ScriptedSource::new(), Log::default());
            let log = reports.clone();
            env.reporter.add_hook(move |report| log.add(format!("{} {}", report.subject, report.incident)));
            let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).build();
            let (release, blocked) = mpsc::channel::<()>();
            let (enter, mut entered) = tokio::sync::mpsc::unbounded_channel();
            let (sender, mut released) = tokio::sync::mpsc::unbounded_channel();
            // With one thread, everything that could release the handler waits as well.
            let patience = Duration::from_millis(if threads == 1 { 150 } else { 60_000 });
            let blocked = Mutex::new(blocked);
            let stuck = on_change(move |_: Change<'_, ConfigMap>| {
                enter.send(()).unwrap();
                let waited = blocked.lock().recv_timeout(patience);
                sender.send(waited == Err(mpsc::RecvTimeoutError::Disconnected)).unwrap();
            });
            let options = HandlerOptions::default().name("stuck");
            let slow = informer.add_handler_with(stuck, options).unwrap();
            let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
            informer
                .add_handler(on_change(move |_: Change<'_, ConfigMap>| sender.send(()).unwrap()))
                .unwrap();
            source.on_list(list(10, &["a@1"])).on_watch(silence());
            let (running, stop) = (informer.clone(), CancellationToken::new());
            let token = stop.clone();
            let task = tokio::spawn(async move { running.run(token).await });
            entered.recv().await.unwrap();
            told.recv().await.unwrap();
            if threads > 1 {
                // The other handlers went on, and so does the time.
                env.clock.sleep(Duration::from_millis(150)).await;
                drop(release);
            }
            assert_eq!(released.recv().await, Some(threads > 1));
            within_a_minute(&env, slow.wait_until_synced()).await;
            assert_eq!((slow.stats().slow, slow.stats().panics), (1, 0));
            let blocked = "stuck the callback for ns/a blocked its thread for ";
            let reports = reports.take();
            assert_eq!(reports.iter().filter(|report| report.starts_with(blocked)).count(), 1, "{reports:?}");
            stop.cancel();
            task.await.unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_does_not_hold_up_what_gave_way_to_it() {
    for queue in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue).build();
        let (stuck, handler) = Stuck::new();
        informer.add_handler(on_change(handler)).unwrap();
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let quick = on_change(move |_: Change<'_, ConfigMap>| sender.send(()).unwrap());
        informer.add_handler(quick).unwrap();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &[])).on_watch(reply);
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        within_a_minute(&env, informer.wait_until_synced()).await;
        // More than a task does at once: the quick handler and the informer yield in between.
        for chunk in 0..20 {
            let events: Vec<_> = (0..500)
                .map(|n| event("ADDED", &format!("a-{chunk}-{n}@{}", 11 + chunk * 500 + n)))
                .collect();
            feed.send(events.concat());
        }
        for _ in 0..10_000 {
            within_a_minute(&env, told.recv()).await.unwrap();
        }
        drop(stuck);
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}

/// A running informer that has delivered the first of two objects to a handler which does not return yet.
struct Held {
    env: Env,
    informer: SharedInformer<ConfigMap>,
    registration: Registration<ConfigMap>,
    stuck: Stuck,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Held {
    async fn at_the_first_of_two(queue: QueueKind) -> Self {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue).build();
        let (mut stuck, handler) = Stuck::new();
        let registration = informer.add_handler(on_change(handler)).unwrap();
        source.on_list(list(10, &["a@1", "b@2"])).on_watch(Reply::body("").then_hang());
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        within_a_minute(&env, stuck.entered.recv()).await.unwrap();
        Self { env, informer, registration, stuck, stop, task }
    }

    async fn end(self) {
        self.stop.cancel();
        within_a_minute(&self.env, self.task).await.unwrap();
    }
}

// client-go: TestRemoveEventHandler_AsynchronousPanic, TestRemoveEventHandler_SynchronousShutdown,
// TestShutDownEventHandler_Lifecycles
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_removed_ends_with_the_callback_that_runs() {
    for queue in QUEUES {
        let held = Held::at_the_first_of_two(queue).await;
        // On a thread of its own, as a removal that waits for the callback would block it.
        let (informer, registration) = (held.informer.clone(), held.registration.clone());
        let removed = tokio::task::spawn_blocking(move || informer.remove_handler(&registration));
        let removed = held.env.clock.timeout(Duration::from_secs(60), removed).await;
        let waiting = held.registration.clone();
        let ended = tokio::spawn(async move { waiting.ended().await });
        tokio::task::yield_now().await;
        let has_ended = ended.is_finished();
        held.stuck.release.send(()).unwrap();
        removed.expect("the removal waits for the callback").unwrap();
        assert!(!has_ended, "the callback still runs");
        within_a_minute(&held.env, ended).await.unwrap();
        assert_eq!(held.stuck.log.take().len(), 1, "what waited was dropped");
        held.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_removed_amid_the_first_objects_has_not_synced() {
    for queue in QUEUES {
        let held = Held::at_the_first_of_two(queue).await;
        within_a_minute(&held.env, held.informer.wait_until_synced()).await;
        held.informer.remove_handler(&held.registration);
        held.stuck.release.send(()).unwrap();
        let has_synced = within_a_minute(&held.env, held.registration.synced_or_ended()).await;
        assert!(!has_synced && !held.registration.has_synced());
        held.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_removed_before_the_start_has_ended_at_once() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let log = Log::default();
        let registration = scripted.informer.add_handler(on_change(log.handler())).unwrap();
        scripted.informer.remove_handler(&registration);
        soon(&scripted.env, registration.ended()).await;
        let (reply, _feed) = Reply::live();
        scripted.source.on_list(list(10, &["a@1"])).on_watch(reply);
        scripted.start();
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!((log.take().len(), scripted.log.take().len()), (0, 1));
    }
}

/// Reports its end.
struct Reporting(Env);

impl Drop for Reporting {
    fn drop(&mut self) {
        self.0.reporter.error("handler", "reporting", &std::fmt::Error);
    }
}

#[test]
fn a_handler_that_is_removed_before_the_start_may_look_at_the_informer_at_its_end() {
    let env = Env::simulated(1);
    let informer = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    let (looking, handlers) = (informer.clone(), mpsc::channel());
    let told = Mutex::new(handlers.0);
    env.reporter.add_hook(move |_| told.lock().send(looking.stats().handlers.len()).unwrap());
    let ending = Reporting(env);
    let registration = informer
        .add_handler(on_change(move |_: Change<'_, ConfigMap>| {
            let _kept = &ending;
        }))
        .unwrap();
    // On a thread of its own, as a deadlock would hold it forever.
    let thread = std::thread::spawn(move || informer.remove_handler(&registration));
    assert_eq!(handlers.1.recv_timeout(Duration::from_secs(10)), Ok(0));
    thread.join().unwrap();
}

// client-go: TestSharedInformerMultipleRegistration
#[tokio::test(start_paused = true)]
async fn one_handler_can_be_added_many_times_and_each_place_is_its_own() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        let log = Log::default();
        let first = scripted.informer.add_handler(on_change(log.handler())).unwrap();
        let second = scripted.informer.add_handler(on_change(log.handler())).unwrap();
        soon(&scripted.env, second.wait_until_synced()).await;
        scripted.settle().await;
        assert_eq!(log.take(), ["+ a@1 initial", "+ a@1 initial"]);
        scripted.informer.remove_handler(&first);
        feed.send(event("MODIFIED", "a@11"));
        scripted.settle().await;
        assert_eq!(log.take(), ["a 1->11"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_counts_its_panics_and_syncs_all_the_same() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        let handler = on_change(|_: Change<'_, ConfigMap>| panic!("as always"));
        let options = HandlerOptions::default().name("fragile");
        let registration = scripted.informer.add_handler_with(handler, options).unwrap();
        soon(&scripted.env, registration.wait_until_synced()).await;
        feed.send(event("MODIFIED", "a@11"));
        scripted.settle().await;
        let stats = registration.stats();
        assert_eq!((stats.name.as_str(), stats.panics, stats.pending), ("fragile", 3, 0));
        assert_eq!(scripted.env.reporter.panics(), 3);
    }
}

// client-go: TestSharedInformerWatchDisruption
#[tokio::test(start_paused = true)]
async fn a_relist_tells_unchanged_objects_again_only_to_handlers_that_are_due() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::from_secs(60));
        let never = Log::default();
        let options = HandlerOptions::default().resync(Duration::ZERO);
        scripted.informer.add_handler_with(on_change(never.handler()), options).unwrap();
        let (reply, feed) = Reply::live();
        scripted.source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
        scripted.start();
        scripted.until_synced().await;
        scripted.env.clock.sleep(Duration::from_secs(61)).await;
        assert_eq!(never.take_sorted(), ["+ a@1 initial", "+ b@2 initial"]);
        assert_eq!(scripted.log.take_sorted(), ["+ a@1 initial", "+ b@2 initial", "= a@1", "= b@2"]);
        // After the check at 60 s, one is due and the other is not.
        scripted.source.on_list(list(20, &["a@1", "b@15"])).on_watch(Reply::body("").then_hang());
        feed.send(gone());
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!(never.take(), ["b 2->15"]);
        assert_eq!(scripted.log.take_sorted(), ["= a@1", "b 2->15"]);
    }
}

/// The objects that a handler knows: changes must come without gaps.
#[derive(Clone, Default)]
struct Follower {
    known: Arc<Mutex<BTreeMap<ObjectName, ResourceVersion>>>,
    told: Arc<AtomicUsize>,
    every_state: bool,
}

impl Follower {
    fn told(&self) -> usize {
        self.told.load(Ordering::SeqCst)
    }

    /// Returns whether it knows the contents of the store.
    fn equals(&self, informer: &SharedInformer<ConfigMap>) -> bool {
        let stored = informer.indexer().snapshot();
        *self.known.lock() == stored.iter().map(|object| (object.key(), object.version().clone())).collect()
    }
}

impl Handler<ConfigMap> for Follower {
    fn sees_every_state(&self) -> bool {
        self.every_state
    }

    fn add(&mut self, object: &Object<ConfigMap>, _in_initial_list: bool) {
        assert!(self.known.lock().insert(object.key(), object.version().clone()).is_none());
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    fn update(&mut self, old: &Object<ConfigMap>, new: &Object<ConfigMap>) {
        let before = self.known.lock().insert(new.key(), new.version().clone());
        assert_eq!(before.as_ref(), Some(old.version()));
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    fn delete(&mut self, deleted: &Deleted<ConfigMap>) {
        assert!(self.known.lock().remove(&deleted.key()).is_some());
        self.told.fetch_add(1, Ordering::SeqCst);
    }
}

// client-go: TestSharedInformerHandlerAbuse, TestSharedInformerInitializationRace, TestAsyncLocking
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_come_and_go_amid_changes_and_the_stop_never_miss_or_repeat_anything() {
    for queue in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue).build();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1", "b@2", "c@3"])).on_watch(reply);
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        let generator = Generator::seeded(1);
        let workers: Vec<_> = (0..16)
            .map(|number| {
                let (env, informer, generator) = (env.clone(), informer.clone(), generator.clone());
                tokio::spawn(async move {
                    let mut changes = 0;
                    loop {
                        let follower = Follower { every_state: number % 2 == 0, ..Follower::default() };
                        let Ok(registration) = informer.add_handler(follower.clone()) else { return changes };
                        let has_synced = within_a_minute(&env, registration.synced_or_ended()).await;
                        // `b` and `c` always exist: a handler that has synced knows them.
                        assert!(!has_synced || follower.told() >= 2);
                        // Some leave at once, others receive some changes before.
                        let initial = follower.told();
                        let enough = initial + generator.below(60) as usize;
                        while follower.told() < enough && !informer.is_stopped() {
                            tokio::task::yield_now().await;
                        }
                        informer.remove_handler(&registration);
                        within_a_minute(&env, registration.ended()).await;
                        assert_eq!(registration.stats().panics, 0);
                        changes += follower.told() - initial;
                        // A handler that is called directly does not wait, so it yields to others here.
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        // These stay, from the beginning and from the middle.
        let mut staying = Vec::new();
        let mut stay = || {
            for every_state in [false, true] {
                let follower = Follower { every_state, ..Follower::default() };
                staying.push((informer.add_handler(follower.clone()).unwrap(), follower));
            }
        };
        stay();
        let mut version = 10;
        for round in 0..2_000 {
            version += 1;
            let kind = ["MODIFIED", "DELETED", "ADDED"][round % 3];
            feed.send(event(kind, &format!("a@{version}")));
            if round % 50 == 0 {
                within_a_minute(&env, informer.indexer().wait_until_fresh(&version.into())).await;
            }
            if round == 1_000 {
                stay();
            }
        }
        within_a_minute(&env, informer.indexer().wait_until_fresh(&version.into())).await;
        for (registration, follower) in &staying {
            let caught_up = async {
                while registration.stats().pending > 0 || !follower.equals(&informer) {
                    tokio::task::yield_now().await;
                }
            };
            let in_time = env.clock.timeout(Duration::from_secs(60), caught_up).await;
            assert!(in_time.is_ok(), "a handler does not know what the store holds");
        }
        for (_, follower) in &staying[..2] {
            assert_eq!(follower.told(), 3 + 2_000);
        }
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
        let mut changes = 0;
        for worker in workers {
            changes += within_a_minute(&env, worker).await.unwrap();
        }
        assert!(changes > 0, "those that left have heard of changes before");
        assert_eq!(env.reporter.panics(), 0);
    }
}

// client-go: TestListenerResyncPeriodsDelayed
#[tokio::test(start_paused = true)]
async fn handlers_whose_tasks_start_after_the_first_list_hold_nothing_up_and_are_told_again_at_their_periods()
{
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::from_secs(1));
        let logs = [2, 3].map(|seconds| {
            let log = Log::default();
            let options = HandlerOptions::default().resync(Duration::from_secs(seconds));
            scripted.informer.add_handler_with(on_change(log.handler()), options).unwrap();
            log
        });
        scripted.source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
        let (informer, stop) = (scripted.informer.clone(), CancellationToken::new());
        let token = stop.clone();
        let mut run = Box::pin(async move { informer.run(token).await });
        // Without an await in between, the tasks of the handlers do not get to run.
        let mut context = Context::from_waker(Waker::noop());
        let mut polls = 0;
        while !scripted.informer.has_synced() {
            assert!(run.as_mut().poll(&mut context).is_pending());
            polls += 1;
            assert!(polls < 10_000, "the handlers hold the first list up");
        }
        assert_eq!(scripted.cached(), ["a@1"]);
        let pending =
            scripted.informer.stats().handlers.iter().map(|handler| handler.pending).collect::<Vec<_>>();
        assert_eq!((pending, logs[0].take().len(), logs[1].take().len()), (vec![1; 3], 0, 0));
        let task = tokio::spawn(run);
        scripted.env.clock.sleep(Duration::from_millis(6_500)).await;
        assert_eq!(logs[0].take(), ["+ a@1 initial", "= a@1", "= a@1", "= a@1"], "after 2, 4 and 6 s");
        assert_eq!(logs[1].take(), ["+ a@1 initial", "= a@1", "= a@1"], "after 3 and 6 s");
        stop.cancel();
        soon(&scripted.env, task).await.unwrap();
    }
}

// client-go: TestTypedResourceEventHandlerFuncs
#[tokio::test(start_paused = true)]
async fn methods_that_a_handler_leaves_out_do_nothing() {
    struct OnlyDeletes(Log);
    impl Handler<ConfigMap> for OnlyDeletes {
        fn delete(&mut self, deleted: &Deleted<ConfigMap>) {
            self.0.add(deleted.key().to_string());
        }
    }
    struct Nothing;
    impl Handler<ConfigMap> for Nothing {}
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        let deletes = Log::default();
        let registrations = [
            scripted.informer.add_handler(OnlyDeletes(deletes.clone())).unwrap(),
            scripted.informer.add_handler(Nothing).unwrap(),
        ];
        feed.send(event("ADDED", "c@11") + &event("MODIFIED", "a@12") + &event("DELETED", "b@13"));
        scripted.settle().await;
        assert_eq!(deletes.take(), ["ns/b"]);
        for registration in registrations {
            assert!(registration.has_synced());
            assert_eq!((registration.stats().pending, registration.stats().panics), (0, 0));
        }
    }
}

// client-go: TestNameForHandler
#[test]
fn a_handler_without_a_name_has_that_of_its_type_and_a_second_one_a_number() {
    struct Quiet;
    impl Handler<ConfigMap> for Quiet {}
    let env = Env::simulated(1);
    let informer = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    let name = || informer.add_handler(Quiet).unwrap().stats().name;
    let (first, second) = (name(), name());
    assert!(first.ends_with("::Quiet"), "{first}");
    assert_eq!(second, format!("{first} 2"));
    let named = HandlerOptions::default().name("mine");
    assert_eq!(informer.add_handler_with(Quiet, named).unwrap().stats().name, "mine");
}
