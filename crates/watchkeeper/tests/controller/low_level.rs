//! The low-level controller: it passes listed and watched objects to its process function, and stops when it should.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper::informer::{Change, DeltaController, on_change, process_deltas};
use watchkeeper::queue::{Delta, Popped, ProcessError, QueueKind};
use watchkeeper::reflector::Phase;
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::store::Indexer;

use crate::common::{Log, QUEUES, cached, event, list, settle, silence, within_a_minute};
use crate::{deleting, failing, object, reports, run, until_synced};

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
        let store = Indexer::new(&env, []);
        let into = store.clone();
        let mut handler = deleting(feed, &log);
        let controller = DeltaController::builder(
            source,
            move |popped: &Popped<ConfigMap>| {
                process_deltas(&into, popped, &mut handler);
                Ok::<(), Infallible>(())
            },
            &env,
        )
        .queue(kind)
        .known_objects(store.clone())
        .build();
        let (stop, task) = run(&controller);
        settle(&env).await;
        assert_eq!(log.take_sorted(), ["ns/a-hello", "ns/b-controller", "ns/c-framework"]);
        assert!(cached(&store).is_empty());
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_once_and_says_how_it_is_doing() {
    for kind in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let reports = reports(&env);
        let (controller, store, log) = failing(&env, kind, &source, false, |_| Ok(()));
        assert!(!controller.has_synced());
        assert!(controller.last_sync_version().is_unset());
        let (stop, task) = run(&controller);
        settle(&env).await;
        assert!(!controller.has_synced());
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
        until_synced(&env, &controller).await;
        assert_eq!(log.take_sorted(), ["+ a@1 initial", "+ b@2 initial"]);
        feed.send(event("MODIFIED", "a@11") + &event("DELETED", "b@12"));
        settle(&env).await;
        assert_eq!(log.take(), ["a 1->11", "- b@12"]);
        // client-go: TestStoreResourceVersion
        assert_eq!((controller.last_sync_version(), store.version()), (12.into(), 12.into()));
        assert_eq!(controller.health().phase, Phase::Watching);
        controller.run(CancellationToken::new()).await;
        assert_eq!(reports.take(), ["controller the controller has been run already: make another one"]);
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
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
        within_a_minute(&env, task).await.unwrap();
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
        source.on_list(list(10, &["a@1"])).on_watch(silence());
        let (store, should) = (Indexer::new(&env, []), Arc::new(AtomicBool::new(true)));
        let (into, asked) = (store.clone(), should.clone());
        let mut handler = on_change(log.handler());
        let controller = DeltaController::builder(
            source,
            move |popped: &Popped<ConfigMap>| {
                process_deltas(&into, popped, &mut handler);
                Ok::<(), Infallible>(())
            },
            &env,
        )
        .queue(kind)
        .known_objects(store)
        .resync(Duration::from_secs(10))
        .should_resync(move || asked.load(Ordering::Relaxed))
        .build();
        let (stop, task) = run(&controller);
        env.clock.sleep(Duration::from_secs(25)).await;
        assert_eq!(log.take(), ["+ a@1 initial", "= a@1", "= a@1"]);
        should.store(false, Ordering::Relaxed);
        env.clock.sleep(Duration::from_secs(20)).await;
        assert!(log.take().is_empty());
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}

// client-go: the trace "DeltaFIFO Pop Process"
#[tokio::test]
async fn a_slow_pop_with_many_waiting_behind_it_is_reported() {
    let (env, source) = (Env::new(Clock::system(), Generator::seeded(1)), ScriptedSource::new());
    let reports = reports(&env);
    let names: Vec<_> = (10..30).map(|n| format!("o{n}@1")).collect();
    let items: Vec<_> = names.iter().map(String::as_str).collect();
    source.on_list(list(10, &items)).on_watch(silence());
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
    until_synced(&env, &controller).await;
    let reports = reports.take();
    let report = reports.first().unwrap();
    assert!(
        report.starts_with("queue slow handlers hold the queue up: 1 deltas from ns/o10 on took"),
        "{report}"
    );
    assert!(report.ends_with("while 19 entries wait"), "{report}");
    stop.cancel();
    within_a_minute(&env, task).await.unwrap();
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
        let controller = DeltaController::builder(
            source,
            move |popped: &Popped<ConfigMap>| {
                if !popped.deltas.is_empty()
                    && !open.load(Ordering::Relaxed)
                    && popped.version != Some(1.into())
                {
                    return Err(ProcessError::from(std::fmt::Error));
                }
                process_deltas(&into, popped, &mut handler);
                Ok(())
            },
            &env,
        )
        .queue(kind)
        .known_objects(store.clone())
        .queue_bound(10_000)
        .retry_on_error()
        .build();
        let (stop, task) = run(&controller);
        until_synced(&env, &controller).await;
        for n in 2..1002 {
            feed.send(event("ADDED", &format!("o{n}@{n}")));
        }
        for _ in 0..100 {
            env.clock.sleep(Duration::from_secs(1)).await;
            assert!(controller.queue().bytes() < 12_000, "{kind:?}: {:?}", controller.queue());
        }
        is_open.store(true, Ordering::Relaxed);
        within_a_minute(&env, store.wait_until_fresh(&1001.into())).await;
        settle(&env).await;
        assert_eq!(store.snapshot().len(), 1000);
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}
