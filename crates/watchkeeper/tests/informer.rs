//! The shared informer through its public API, on both queues, in process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Log, QUEUES, ScriptedInformer, event, gone, list, list_page, parse, soon};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, HandlerOptions, InformerMetrics, on_change};
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::{Backoff, ListReason, Phase};
use watchkeeper::source::{
    Asked, ByteStream, ListOptions, ListerWatcher, Reply, ScriptedSource, WatchOptions,
};
use watchkeeper::store::Index;
use watchkeeper::wire::{ApiError, Class, WatchEventType};
use watchkeeper::{Env, Object, ObjectName, SharedInformer};

#[tokio::test(start_paused = true)]
async fn a_list_then_a_watch_fill_the_store_and_tell_the_handler() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        assert_eq!(scripted.log.take_sorted(), ["+ a@1 initial", "+ b@2 initial"]);
        feed.send(event("ADDED", "c@11") + &event("MODIFIED", "a@12"));
        feed.send(event("DELETED", "b@13"));
        scripted.settle().await;
        assert_eq!(scripted.log.take(), ["+ c@11", "a 1->12", "- b@13"]);
        assert_eq!(scripted.cached(), ["a@12", "c@11"]);
        assert_eq!(scripted.informer.indexer().version(), 13.into());
        assert_eq!(scripted.informer.last_sync_version(), 13.into());
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_put_together_and_bookmarks_advance_the_store() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let (reply, feed) = Reply::live();
        scripted.source.on_list(list_page(10, "t", &["a@1"])).on_list(list(10, &["b@2"])).on_watch(reply);
        scripted.start();
        scripted.until_synced().await;
        assert_eq!(scripted.cached(), ["a@1", "b@2"]);
        let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": {"resourceVersion": "77"}}});
        feed.send(bookmark.to_string());
        soon(&scripted.env, scripted.informer.indexer().wait_until_fresh(&77.into())).await;
        drop(feed);
        scripted.until_asked(4).await;
        let Asked::Watch(options) = &scripted.source.asked()[3] else {
            panic!("{:?}", scripted.source.asked())
        };
        assert_eq!(options.version, 77.into());
        let Asked::List(second) = &scripted.source.asked()[1] else { panic!() };
        assert_eq!((second.continue_token.as_str(), second.limit), ("t", 500));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_resumed_without_a_list() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        feed.send(event("MODIFIED", "a@11"));
        scripted.settle().await;
        // Cut inside an event: the next watch brings it whole.
        feed.send(event("MODIFIED", "a@12")[..20].to_owned());
        feed.fail(ApiError::new(Class::ConnectionLost, "cut"));
        let (reply, feed) = Reply::live();
        scripted.source.on_watch(reply);
        feed.send(event("MODIFIED", "a@12"));
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["a@12"]);
        assert_eq!(scripted.log.take(), ["+ a@1 initial", "a 1->11", "a 11->12"]);
        assert_eq!(scripted.informer.health().lists, 1);
    }
}

// client-go: TestResetWatch, TestReplaceEvents
#[tokio::test(start_paused = true)]
async fn a_410_leads_to_a_relist_with_tombstones_and_updates() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2", "c@3"]).await;
        scripted.log.take();
        scripted.source.on_list(list(20, &["a@1", "b@15", "d@16"])).on_watch(Reply::body("").then_hang());
        feed.send(gone());
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!(scripted.log.take_sorted(), ["+ d@16", "- c@3 tombstone", "= a@1", "b 2->15"]);
        assert_eq!(scripted.cached(), ["a@1", "b@15", "d@16"]);
        assert_eq!(scripted.informer.indexer().version(), 20.into());
    }
}

#[tokio::test(start_paused = true)]
async fn another_uid_under_the_same_name_is_a_delete_and_an_add() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a/one@1"]).await;
        scripted.log.take();
        scripted.source.on_list(list(20, &["a/two@15"])).on_watch(Reply::body("").then_hang());
        feed.send(gone());
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!(scripted.log.take(), ["- a@1 tombstone", "+ a@15"]);
    }
}

// client-go: TestSharedInformerInitializationRace, TestAddWhileActive
#[tokio::test(start_paused = true)]
async fn a_handler_that_joins_late_is_told_of_everything_first_and_misses_nothing() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        let late = Log::default();
        let registration = scripted.informer.add_handler(on_change(late.handler())).unwrap();
        feed.send(event("MODIFIED", "a@11"));
        assert!(!registration.has_synced());
        soon(&scripted.env, registration.wait_until_synced()).await;
        scripted.settle().await;
        let told = late.take();
        assert_eq!(told[2..], ["a 1->11"]);
        let mut first = told[..2].to_vec();
        first.sort();
        assert_eq!(first, ["+ a@1 initial", "+ b@2 initial"]);
        // client-go: TestRemoveWhileActive
        scripted.informer.remove_handler(&registration);
        scripted.informer.remove_handler(&registration);
        // client-go: TestShutDownEventHandler_Lifecycles, of one that was added after the start
        soon(&scripted.env, registration.ended()).await;
        feed.send(event("MODIFIED", "a@12"));
        scripted.settle().await;
        assert_eq!((late.take().len(), scripted.log.take().last().unwrap().as_str()), (0, "a 11->12"));
    }
}

// client-go: TestListenerResyncPeriods
#[tokio::test(start_paused = true)]
async fn resyncs_reach_only_handlers_that_are_due_and_never_the_server() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::from_secs(10));
        let (never, slow) = (Log::default(), Log::default());
        let options = |seconds| HandlerOptions::default().resync(Duration::from_secs(seconds));
        scripted.informer.add_handler_with(on_change(never.handler()), options(0)).unwrap();
        scripted.informer.add_handler_with(on_change(slow.handler()), options(25)).unwrap();
        scripted.source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
        scripted.start();
        scripted.until_synced().await;
        scripted.settle().await;
        for log in [&scripted.log, &never, &slow] {
            assert_eq!(log.take(), ["+ a@1 initial"]);
        }
        scripted.env.clock.sleep(Duration::from_secs(31)).await;
        assert_eq!(scripted.log.take(), ["= a@1", "= a@1", "= a@1"]);
        assert_eq!((never.take().len(), slow.take()), (0, vec!["= a@1".to_owned()]));
        assert_eq!(scripted.source.asked().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_tried_again_with_growing_delays() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        for _ in 0..5 {
            scripted.source.on_list(Reply::refuse(ApiError::new(Class::ConnectionRefused, "refused")));
        }
        scripted.source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
        let begin = scripted.env.clock.now();
        scripted.start();
        scripted.until_asked(3).await;
        assert!(!scripted.informer.has_synced());
        assert!(scripted.informer.health().degraded.is_some());
        scripted.until_synced().await;
        let waited = (scripted.env.clock.now() - begin).as_secs_f64();
        // 0.8 + 1.6 + 3.2 + 6.4 + 12.8, and up to twice that by jitter.
        assert!((24.8..49.6).contains(&waited), "{waited}");
        scripted.settle().await;
        let health = scripted.informer.health();
        assert_eq!((health.phase, health.degraded), (Phase::Watching, None));
        assert_eq!(scripted.env.reporter.errors(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_is_reported_and_does_not_stop_the_others() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let items = json!([parse("a@1"), {"metadata": {"labels": {}}}, {"spec": 1}, parse("b@2")]);
        let body = json!({"items": items, "metadata": {"resourceVersion": "10"}}).to_string();
        let (reply, feed) = Reply::live();
        scripted.source.on_list(Reply::body(body)).on_watch(reply);
        scripted.start();
        scripted.until_synced().await;
        feed.send(r#"{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}}"#);
        feed.send(r#"{"type":"DANCED","object":{"metadata":{"name":"s"}}}{"type":"ADDED"}"#);
        feed.send(r#"{"type":"ADDED","object":{"metadata":{"name":"odd","namespace":"ns","resourceVersion":"11"},"data":7}}"#);
        scripted.settle().await;
        assert_eq!(scripted.env.reporter.errors(), 5);
        assert_eq!(scripted.cached(), ["a@1", "b@2", "odd@11"]);
        let lister = scripted.informer.lister();
        assert!(lister.get(&ObjectName::namespaced("ns", "a")).is_ok());
        assert!(!lister.get(&ObjectName::namespaced("ns", "odd")).unwrap_err().is_not_found());
        let missing = lister.namespace("ns").get("zzz").unwrap_err();
        assert_eq!(
            (missing.is_not_found(), missing.to_string().as_str()),
            (true, "configmaps \"ns/zzz\" not found")
        );
    }
}

// client-go: TestEventPanics
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_reported_and_goes_on_with_the_next() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let shaky = Log::default();
        let mut tell = shaky.handler();
        let registration = scripted
            .informer
            .add_handler(on_change(move |change: Change<'_, ConfigMap>| {
                assert!(change.last_known().unwrap().name() != "b", "no b please");
                tell(change);
            }))
            .unwrap();
        scripted.source.on_list(list(10, &["a@1", "b@2", "c@3"])).on_watch(Reply::body("").then_hang());
        scripted.start();
        soon(&scripted.env, registration.wait_until_synced()).await;
        assert_eq!(shaky.take_sorted(), ["+ a@1 initial", "+ c@3 initial"]);
        assert_eq!(scripted.log.take().len(), 3);
        assert_eq!(scripted.env.reporter.panics(), 1);
    }
}

// client-go: TestShutdown, TestStateSharedInformer, TestAddOnStoppedSharedInformer, TestRemoveOnStoppedSharedInformer
#[tokio::test(start_paused = true)]
async fn a_stopped_informer_has_ended_its_tasks_and_takes_no_handlers() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let state = || {
            (scripted.informer.health().phase, scripted.informer.has_synced(), scripted.informer.is_stopped())
        };
        assert_eq!(state(), (Phase::Idle, false, false));
        let (reply, feed) = Reply::live();
        scripted.source.on_list(list(10, &["a@1"])).on_watch(reply);
        let registration = scripted.informer.add_handler(on_change(|_: Change<'_, ConfigMap>| ())).unwrap();
        scripted.start();
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(state(), (Phase::Watching, true, false));
        // Another run ends at once, and does not disturb the first.
        soon(&scripted.env, scripted.informer.run(CancellationToken::new())).await;
        assert_eq!(state(), (Phase::Watching, true, false));
        scripted.stop.cancel();
        scripted.settle().await;
        assert_eq!(state(), (Phase::Stopped, true, true));
        assert!(!feed.send(event("MODIFIED", "a@11")));
        scripted.informer.remove_handler(&registration);
        soon(&scripted.env, registration.ended()).await;
        let error = scripted.informer.add_handler(on_change(|_: Change<'_, ConfigMap>| ())).unwrap_err();
        assert!(error.to_string().contains("configmaps has stopped already"));
        assert_eq!(scripted.cached(), ["a@1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_running_informer_ends_its_handlers() {
    let (scripted, feed) = ScriptedInformer::watching(QueueKind::Ordered, &["a@1"]).await;
    drop(feed);
    let task = scripted.start();
    soon(&scripted.env, task).await.unwrap();
    let other = ScriptedInformer::new(QueueKind::Ordered, Duration::ZERO);
    other.source.on_list(list(1, &["a@1"])).on_watch(Reply::body("").then_hang());
    let alive = Arc::new(());
    let held = alive.clone();
    other.informer.add_handler(on_change(move |_: Change<'_, ConfigMap>| drop(held.clone()))).unwrap();
    let running = other.start();
    other.until_synced().await;
    running.abort();
    other.settle().await;
    assert_eq!((Arc::strong_count(&alive), other.informer.is_stopped()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn metrics_hear_of_lists_events_and_what_was_applied() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);
    impl InformerMetrics for Heard {
        fn listed(&self, reason: ListReason, items: usize) {
            self.0.lock().push(format!("{} list of {items}", reason.as_str()));
        }
        fn event(&self, event: &WatchEventType) {
            self.0.lock().push(format!("{event:?}"));
        }
        fn processed(&self, deltas: usize, _took: Duration) {
            self.0.lock().push(format!("{deltas} applied"));
        }
    }
    let (env, source, heard) = (Env::simulated(1), ScriptedSource::new(), Arc::new(Heard::default()));
    let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).metrics(heard.clone()).build();
    let (reply, feed) = Reply::live();
    source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply).on_list(list(20, &["a@1"]));
    feed.send(event("MODIFIED", "a@11") + &event("MODIFIED", "a@12"));
    feed.send(gone());
    let stop = CancellationToken::new();
    let until = async {
        soon(&env, source.until_asked(4)).await;
        stop.cancel();
    };
    tokio::join!(informer.run(stop.clone()), until);
    // What is there to read is read before what was read is applied.
    let expected = [
        "first list of 2",
        "Modified",
        "Modified",
        "1 applied",
        "2 applied",
        "expired list of 1",
        "1 applied",
    ];
    assert_eq!(heard.0.lock()[..], expected);
    assert_eq!(informer.health().lists_by_reason.get(&ListReason::Expired), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_leaves_the_cache_as_it_is() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        scripted.log.take();
        for body in ["{}", r#"{"kind":"Status","status":"Failure"}"#, r#"{"error":"proxy"}"#] {
            scripted.source.on_list(Reply::body(body));
        }
        scripted.source.on_list(list(20, &["a@1"])).on_watch(Reply::body("").then_hang());
        feed.send(gone());
        scripted.until_asked(5).await;
        assert_eq!((scripted.cached().len(), scripted.log.take().len()), (2, 0));
        scripted.until_asked(7).await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["a@1"]);
        assert_eq!(scripted.env.reporter.errors(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_behind_events_does_not_take_the_store_back() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        let (reply, _open) = Reply::live();
        scripted.source.on_watch(reply);
        feed.send(event("MODIFIED", "a@11") + &event("MODIFIED", "a@12") + "garbage");
        scripted.until_asked(3).await;
        let Asked::Watch(options) = &scripted.source.asked()[2] else {
            panic!("{:?}", scripted.source.asked())
        };
        assert_eq!(options.version, 12.into());
        assert_eq!(scripted.informer.indexer().version(), 12.into());
    }
}

// client-go: TestSharedInformerRemoveForeignHandler
#[tokio::test(start_paused = true)]
async fn a_registration_of_another_informer_removes_nobody() {
    let (one, _feed) = ScriptedInformer::watching(QueueKind::Ordered, &["a@1"]).await;
    let (other, feed) = ScriptedInformer::watching(QueueKind::Ordered, &["a@1"]).await;
    let foreign = one.informer.add_handler(on_change(|_: Change<'_, ConfigMap>| ())).unwrap();
    let second = Log::default();
    other.informer.add_handler(on_change(second.handler())).unwrap();
    other.informer.remove_handler(&foreign);
    feed.send(event("MODIFIED", "a@11"));
    other.settle().await;
    assert_eq!(second.take(), ["+ a@1 initial", "a 1->11"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_slow_handler_does_not_hold_another_up() {
    for queue in QUEUES {
        let env = Env::simulated(1);
        let source = ScriptedSource::new();
        let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue).build();
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let blocked = Mutex::new(blocked);
        informer
            .add_handler(on_change(move |_: Change<'_, ConfigMap>| {
                let _released = blocked.lock().recv();
            }))
            .unwrap();
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        informer
            .add_handler(on_change(move |change: Change<'_, ConfigMap>| {
                sender.send(change.last_known().unwrap().version().clone()).unwrap();
            }))
            .unwrap();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        assert_eq!(told.recv().await, Some(1.into()));
        for version in 11..200 {
            feed.send(event("MODIFIED", &format!("a@{version}")));
            assert_eq!(told.recv().await, Some(version.into()));
        }
        drop(release);
        stop.cancel();
        task.await.unwrap();
    }
}

// client-go: TestIndexer
#[tokio::test(start_paused = true)]
async fn an_index_added_before_or_after_the_start_finds_what_is_there_and_what_comes() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        let parity = Index::new("parity", |object: &Object<ConfigMap>| {
            let version: u64 = object.version().to_string().parse().unwrap();
            vec![["even", "odd"][version as usize % 2].to_owned()]
        });
        scripted.informer.indexer().add_indexes([parity]).unwrap();
        let names = |index: &str, value: &str| -> Vec<String> {
            let snapshot = scripted.informer.indexer().snapshot();
            let mut names: Vec<_> =
                snapshot.by_index(index, value).unwrap().map(|object| object.name().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!((names("parity", "odd"), names("parity", "even")), (vec!["a".into()], vec!["b".into()]));
        assert_eq!(names("namespace", "ns"), ["a", "b"]);
        feed.send(event("MODIFIED", "a@12") + &event("ADDED", "c@13") + &event("DELETED", "b@14"));
        scripted.settle().await;
        assert_eq!((names("parity", "odd"), names("parity", "even")), (vec!["c".into()], vec!["a".into()]));
        assert_eq!(names("namespace", "ns"), ["a", "c"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_on_reports_may_use_the_informer_whose_index_panicked() {
    for queue in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let bad = Index::new("bad", |_: &Object<ConfigMap>| -> Vec<String> { panic!("index") });
        let informer =
            SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue).indexes([bad]).build();
        let (used, (told, hook_told)) = (informer.clone(), std::sync::mpsc::channel());
        let told = Mutex::new(told);
        env.reporter.add_hook(move |report| {
            let stats = used.stats();
            used.add_handler(on_change(|_: Change<'_, ConfigMap>| {})).unwrap();
            used.indexer().write(|batch| batch.set_version(11.into()));
            told.lock().send((report.subject.to_owned(), stats.objects)).unwrap();
        });
        source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
        // A deadlock would hold a thread for ever: it is not one of the runtime's.
        let (running, stop, runtime) =
            (informer.clone(), CancellationToken::new(), tokio::runtime::Handle::current());
        let token = stop.clone();
        let thread = std::thread::spawn(move || runtime.block_on(running.run(token)));
        let report = hook_told.recv_timeout(Duration::from_secs(120)).unwrap();
        assert_eq!(report, (r#"index "bad" of ns/a"#.to_owned(), 1));
        informer.wait_until_synced().await;
        assert_eq!(env.reporter.panics(), 1);
        stop.cancel();
        thread.join().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_of_durations_is_as_good_as_never() {
    for queue in QUEUES {
        for resync in [Duration::from_secs(30), Duration::MAX] {
            let scripted = ScriptedInformer::on(queue, ScriptedSource::new(), |builder| {
                let builder = builder.resync(resync).min_watch_timeout(Duration::MAX);
                builder.backoff(Backoff::new(Duration::from_secs(1), Duration::MAX))
            });
            let never = Log::default();
            let options = HandlerOptions::default().resync(Duration::MAX);
            scripted.informer.add_handler_with(on_change(never.handler()), options).unwrap();
            scripted.source.on_list(Reply::refuse(ApiError::new(Class::Other, "scripted")));
            scripted.source.on_list(list(10, &["a@1"])).on_watch(Reply::body("").then_hang());
            let task = scripted.start();
            scripted.until_synced().await;
            scripted.env.clock.sleep(Duration::from_secs(100)).await;
            assert_eq!(never.take(), ["+ a@1 initial"]);
            let told = if resync == Duration::MAX { 1 } else { 4 };
            assert_eq!(scripted.log.take().len(), told);
            scripted.stop.cancel();
            soon(&scripted.env, task).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backoff_may_begin_with_the_longest_of_durations() {
    let never = Backoff::new(Duration::MAX, Duration::MAX);
    let scripted =
        ScriptedInformer::on(QueueKind::Ordered, ScriptedSource::new(), |builder| builder.backoff(never));
    scripted.source.on_list(Reply::refuse(ApiError::new(Class::Other, "scripted")));
    let task = scripted.start();
    scripted.env.clock.sleep(Duration::from_secs(86_400)).await;
    assert_eq!((scripted.source.asked().len(), scripted.informer.health().phase), (1, Phase::Waiting));
    scripted.stop.cancel();
    soon(&scripted.env, task).await.unwrap();
}

/// Metrics without any luck.
struct Broken;

impl InformerMetrics for Broken {
    fn made(&self, _: std::sync::Weak<dyn watchkeeper::informer::Observed>) {
        panic!("made");
    }

    fn listed(&self, _: ListReason, _: usize) {
        panic!("listed");
    }

    fn event(&self, _: &WatchEventType) {
        panic!("event");
    }

    fn queued(&self, _: usize) {
        panic!("queued");
    }

    fn processed(&self, _: usize, _: Duration) {
        panic!("processed");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_that_panic_are_reported_and_the_informer_goes_on() {
    for queue in QUEUES {
        let (env, source, told) = (Env::simulated(1), ScriptedSource::new(), Log::default());
        let reports = told.clone();
        env.reporter.add_hook(move |report| {
            reports.add(format!("{} {} {}", report.part, report.subject, report.incident));
        });
        let builder = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue);
        let informer = builder.metrics(Arc::new(Broken)).build();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let (running, stop) = (informer.clone(), CancellationToken::new());
        let token = stop.clone();
        let task = tokio::spawn(async move { running.run(token).await });
        feed.send(event("MODIFIED", "a@12"));
        let (store, second) = (informer.indexer(), Duration::from_secs(1));
        store.wait_until_fresh_within(&12.into(), second).await.unwrap();
        common::settle(&env).await;
        let mut told = told.take_sorted();
        told.dedup();
        let hooks = ["event", "listed", "made", "processed", "queued"];
        assert_eq!(told, hooks.map(|hook| format!("metrics configmaps panicked: {hook}")));
        stop.cancel();
        task.await.unwrap();
    }
}

/// A source that has one list to give, and panics when it is watched.
struct Fragile(ScriptedSource);

impl ListerWatcher for Fragile {
    async fn list(&self, options: &ListOptions) -> Result<ByteStream, ApiError> {
        self.0.list(options).await
    }

    async fn watch(&self, _: &WatchOptions) -> Result<ByteStream, ApiError> {
        panic!("no watches here")
    }

    fn streams_lists(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_a_panic_has_ended_is_not_well() {
    let (env, source) = (Env::simulated(1), ScriptedSource::new());
    source.on_list(list(10, &["a@1"]));
    let informer = SharedInformer::<ConfigMap>::builder(Fragile(source), &env).build();
    let running = informer.clone();
    let run = tokio::spawn(async move { running.run(CancellationToken::new()).await });
    assert!(run.await.unwrap_err().is_panic() && informer.is_stopped());
    let health = informer.health();
    let why = health.degraded.map(|(_, why)| why);
    assert_eq!((health.phase, why.as_deref()), (Phase::Stopped, Some("configmaps stopped by a panic")));
}
