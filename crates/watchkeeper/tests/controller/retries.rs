//! Deltas that a controller cannot process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use watchkeeper::Env;
use watchkeeper::informer::{Change, DeltaController, on_change, process_deltas};
use watchkeeper::queue::{Delta, Popped, ProcessError, QueueKind};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::store::Indexer;

use crate::common::{QUEUES, cached, event, gone, list, raw, settle, silence, within_a_minute};
use crate::{failing, reports, run, until_synced};

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
            let reports = reports(&env);
            let (reply, feed) = Reply::live();
            source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
            let (controller, store, log) = failing(&env, kind, &source, retry, fail_on("a", 3, error));
            let (stop, task) = run(&controller);
            settle(&env).await;
            assert!(!controller.has_synced(), "{kind:?}");
            feed.send(event("ADDED", "c@11"));
            until_synced(&env, &controller).await;
            settle(&env).await;
            assert_eq!(log.take_sorted(), ["+ a@1 initial", "+ b@2 initial", "+ c@11"], "{kind:?}");
            assert_eq!((cached(&store).len(), store.version()), (3, 11.into()));
            assert_eq!(reports.take().len(), 3);
            assert_eq!(env.reporter.errors() + env.reporter.panics(), 3);
            stop.cancel();
            within_a_minute(&env, task).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_without_a_retry_is_reported_and_given_up() {
    for (kind, deltas, kept) in
        [(QueueKind::Ordered, "1 deltas", 0), (QueueKind::Delta, "1 deltas from ns/a on", 1)]
    {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let reports = reports(&env);
        source.on_list(list(10, &["a@1", "b@2"])).on_watch(silence());
        let fail = fail_on("a", 1, || std::fmt::Error.into());
        let (controller, store, _) = failing(&env, kind, &source, false, fail);
        let (stop, task) = run(&controller);
        until_synced(&env, &controller).await;
        settle(&env).await;
        assert_eq!(cached(&store).len(), kept);
        let cause = "an error occurred when formatting an argument";
        assert_eq!(
            reports.take(),
            [format!("controller cannot process {deltas}, which are given up: {cause}")]
        );
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn while_processing_goes_on_failing_the_pauses_grow_and_a_stop_is_heard() {
    for kind in QUEUES {
        let (env, source, tries) = (Env::simulated(1), ScriptedSource::new(), Arc::new(AtomicUsize::new(0)));
        source.on_list(list(10, &["a@1"])).on_watch(silence());
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
        within_a_minute(&env, task).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn whole_states_do_not_pile_up_before_a_consumer_that_is_stuck() {
    let bookmark = raw(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}}}),
    );
    for kind in QUEUES {
        for streams in [false, true] {
            let (env, mut source) = (Env::simulated(1), ScriptedSource::new());
            if streams {
                source = source.streaming();
            }
            // Every watch ends with the news that its version is gone, and every list has other objects.
            for round in 1..20 {
                let name = format!("a{round}@{round}");
                source.on_list(list(10, &[&name]));
                let watch = if streams { event("ADDED", &name) + &bookmark } else { String::new() };
                source.on_watch(Reply::body(watch + &gone()));
            }
            let (is_stuck, store) = (Arc::new(AtomicBool::new(true)), Indexer::new(&env, []));
            let (stuck, into) = (is_stuck.clone(), store.clone());
            let controller = DeltaController::<ConfigMap>::builder(
                source.clone(),
                move |popped: &Popped<ConfigMap>| {
                    if stuck.load(Ordering::Relaxed) {
                        return Err(ProcessError::from(std::fmt::Error));
                    }
                    process_deltas(&into, popped, &mut on_change(|_: Change<'_, ConfigMap>| {}));
                    Ok(())
                },
                &env,
            )
            .queue(kind)
            .known_objects(store.clone())
            .queue_bound(1)
            .retry_on_error()
            .build();
            let (stop, task) = run(&controller);
            env.clock.sleep(Duration::from_secs(3600)).await;
            let asked = source.asked().len();
            assert_eq!(asked, if streams { 1 } else { 2 }, "{kind:?}: {:?}", source.asked());
            assert_eq!(controller.queue().len(), 1);
            is_stuck.store(false, Ordering::Relaxed);
            within_a_minute(&env, source.until_asked(asked + 3)).await;
            stop.cancel();
            within_a_minute(&env, task).await.unwrap();
        }
    }
}
