//! The work queue of a controller: urgent keys first, none starved, and the state and history of each key.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::Handler;
use watchkeeper::process::run_workers;
use watchkeeper::queue::Deleted;
use watchkeeper::workqueue::limiter::{self, ItemExponential};
use watchkeeper::workqueue::{
    Cause, Key, KeyRecord, KeyState, LastError, Priority, QueueFigures, RateLimitingQueue, Relation,
    RunResult, WorkItem, enqueue, enqueue_mapped,
};
use watchkeeper::{Env, Object, ObjectName};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A queue on the paused clock, with a backoff of 1 s doubling up to 8 s.
fn queue() -> (RateLimitingQueue<&'static str>, Env) {
    let env = Env::simulated(1);
    (RateLimitingQueue::new("test", ItemExponential::new(SECOND, 8 * SECOND), &env), env)
}

/// The key that is ready now, if any.
fn ready<T: Key>(queue: &RateLimitingQueue<T>) -> Option<WorkItem<T>> {
    match pin!(queue.get()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// All keys that are ready now, each done with at once.
fn all_ready<T: Key>(queue: &RateLimitingQueue<T>) -> Vec<T> {
    let mut keys = Vec::new();
    while let Some(item) = ready(queue) {
        keys.push(item.key().clone());
        item.forget();
    }
    keys
}

fn figures<T: Key>(queue: &RateLimitingQueue<T>) -> QueueFigures {
    queue.metrics().upgrade().unwrap().figures()
}

#[tokio::test(start_paused = true)]
async fn a_key_can_be_explained_at_every_step_of_its_way() {
    let (queue, env) = queue();
    let start = env.clock.now();
    let at = |seconds| Some(start + seconds * SECOND);
    assert_eq!(queue.explain(&"foo"), None);

    queue.add_with("foo", Priority::High);
    let mut record = queue.explain(&"foo").unwrap();
    assert_eq!((record.state, record.waiting_since, record.behind), (KeyState::Waiting, at(0), Some(0)));
    assert_eq!((record.priority, record.retries, record.is_backing_off), (Priority::High, 0, false));
    assert_eq!((record.delayed_until, record.parked_until, record.parked_since), (None, None, None));
    assert_eq!((record.worked_on_since, record.last_run, record.last_success), (None, None, None));
    assert_eq!((&record.last_error, record.triggers.len()), (&None, 0));

    env.clock.sleep(SECOND).await;
    let item = ready(&queue).unwrap();
    record.state = KeyState::Running;
    (record.waiting_since, record.behind, record.worked_on_since) = (None, None, at(1));
    assert_eq!(queue.explain(&"foo"), Some(record.clone()));

    env.clock.sleep(SECOND).await;
    queue.add("foo");
    (record.waiting_since, record.priority) = (at(2), Priority::Normal);
    assert_eq!(queue.explain(&"foo"), Some(record.clone()));

    env.clock.sleep(SECOND).await;
    item.retry("no luck");
    let error =
        |seconds, message: &str| Some(LastError { at: start + seconds * SECOND, message: message.into() });
    let seen = queue.explain(&"foo").unwrap();
    let run = seen.last_run.unwrap();
    assert_eq!((Some(run.ended), run.took, run.result, run.saw), (at(3), 2 * SECOND, RunResult::Error, None));
    (record.state, record.worked_on_since, record.behind) = (KeyState::Waiting, None, Some(0));
    (record.delayed_until, record.is_backing_off, record.own_backoff) = (at(4), true, Some(SECOND));
    record.is_due_by_retry = true;
    (record.retries, record.last_error, record.last_run) = (1, error(3, "no luck"), Some(run));
    let runs = |record: &KeyRecord<&str>| -> Vec<_> {
        record.runs.iter().map(|past| (past.run.result, past.error.clone().map(String::from))).collect()
    };
    let failed = (RunResult::Error, Some("no luck".to_owned()));
    assert_eq!(runs(&seen), std::slice::from_ref(&failed));
    record.runs.clone_from(&seen.runs);
    assert_eq!(seen, record);

    ready(&queue).unwrap().forget();
    let seen = queue.explain(&"foo").unwrap();
    let run = seen.last_run.unwrap();
    assert_eq!((Some(run.ended), run.took, run.result), (at(3), Duration::ZERO, RunResult::Success));
    // The retry stays due after a run that came before it, but the key does not fail any more.
    (record.state, record.waiting_since, record.behind) = (KeyState::Delayed, None, None);
    (record.is_backing_off, record.own_backoff) = (false, None);
    (record.retries, record.last_success, record.last_run) = (0, at(3), Some(run));
    let succeeded = (RunResult::Success, None);
    assert_eq!(runs(&seen), [succeeded.clone(), failed.clone()]);
    record.runs.clone_from(&seen.runs);
    assert_eq!(seen, record);

    env.clock.sleep(2 * SECOND).await;
    ready(&queue).unwrap().give_up("hopeless");
    let seen = queue.explain(&"foo").unwrap();
    assert_eq!(seen.last_run.unwrap().result, RunResult::Terminal);
    (record.state, record.delayed_until, record.priority) = (KeyState::Failed, None, Priority::High);
    record.is_due_by_retry = false;
    record.last_error = error(5, "hopeless");
    record.last_run = seen.last_run;
    assert_eq!(runs(&seen), [(RunResult::Terminal, Some("hopeless".to_owned())), succeeded, failed]);
    record.runs.clone_from(&seen.runs);
    assert_eq!(seen, record);
}

#[tokio::test(start_paused = true)]
async fn all_keys_can_be_gone_through() {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::remembering(5, "test", limiter::default_item_based(), &env);
    (0..1000).for_each(|key| queue.add(key));
    for _ in 0..100 {
        ready(&queue).unwrap().forget();
    }
    let keys: Vec<u32> = queue.records().map(|record| record.key).collect();
    assert_eq!(keys.len(), 905, "900 wait, and of 100 idle ones 5 are remembered");
    let known: BTreeMap<_, _> = queue.records().map(|record| (record.key, record)).collect();
    assert_eq!(known.len(), 905);
    assert!((95..1000).all(|key| known[&key].waiting_since.is_some() == (key >= 100)));
}

#[tokio::test(start_paused = true)]
async fn of_a_long_error_the_beginning_is_kept() {
    let (queue, _env) = queue();
    queue.add("foo");
    ready(&queue).unwrap().retry(format!("x{}", "ü".repeat(400)));
    let message = queue.explain(&"foo").unwrap().last_error.unwrap().message;
    assert_eq!((message.len(), message.chars().count()), (512, 256));
    assert!(message.ends_with('…'));
}

// kubernetes/kubernetes#132805
#[tokio::test(start_paused = true)]
async fn a_failure_before_the_backoff_is_over_does_not_prolong_it() {
    let (queue, env) = queue();
    let start = env.clock.now();
    let due = || queue.explain(&"foo").unwrap().delayed_until.map(|due| due - start);
    queue.add("foo");
    ready(&queue).unwrap().retry("first");
    assert_eq!((due(), queue.retries(&"foo")), (Some(SECOND), 1));
    for _ in 0..5 {
        env.clock.sleep(100 * MS).await;
        // Someone saw a change: it is tried at once, and fails again.
        queue.add("foo");
        ready(&queue).unwrap().retry("too early");
    }
    assert_eq!((due(), queue.retries(&"foo"), figures(&queue).retries), (Some(SECOND), 1, 6));
    env.clock.sleep(SECOND).await;
    ready(&queue).unwrap().retry("in time");
    assert_eq!((due(), queue.retries(&"foo")), (Some(1500 * MS + 2 * SECOND), 2));
    // A delay that is no backoff is none that could be waited for.
    queue.forget(&"foo");
    env.clock.sleep(2 * SECOND).await;
    ready(&queue).unwrap().retry_after(100 * SECOND);
    queue.add("foo");
    ready(&queue).unwrap().retry("again");
    assert_eq!((due(), queue.retries(&"foo")), (Some(3500 * MS + SECOND), 1));
}

#[tokio::test(start_paused = true)]
async fn urgent_keys_overtake_the_first_list() {
    let (queue, _env) = queue();
    ["a", "b", "c"].into_iter().for_each(|key| queue.add_with(key, Priority::Low));
    queue.add("d");
    queue.add_with("e", Priority::High);
    queue.add("b");
    queue.add_with("d", Priority::Low);
    assert_eq!(figures(&queue).depth, [2, 2, 1]);
    assert_eq!(all_ready(&queue), ["e", "d", "b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_low_key_is_not_starved_by_normal_ones_that_never_end() {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::new("test", limiter::default_controller(), &env);
    (0..20).for_each(|key| queue.add_with(key, Priority::Low));
    // As many normal keys come as are worked on.
    queue.add(1000);
    let mut low = Vec::new();
    for round in 1..=220 {
        let item = ready(&queue).unwrap();
        queue.add(1000 + round);
        if *item.key() < 1000 {
            low.push((round, *item.key()));
        }
        item.forget();
    }
    assert_eq!(low, (0..20).map(|key| (11 * (key + 1), key)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_the_priority_of_the_run() {
    let (queue, env) = queue();
    for key in ["fails", "waits", "panics"] {
        queue.add_with(key, Priority::Low);
    }
    ready(&queue).unwrap().retry("no luck");
    ready(&queue).unwrap().retry_after(SECOND);
    drop(ready(&queue));
    env.clock.sleep(SECOND).await;
    assert_eq!(figures(&queue).depth, [3, 0, 0]);
    queue.add("normal");
    let item = ready(&queue).unwrap();
    assert_eq!((*item.key(), item.priority()), ("normal", Priority::Normal));
    item.forget();
    assert_eq!(ready(&queue).unwrap().priority(), Priority::Low);
}

#[tokio::test(start_paused = true)]
async fn a_worker_chooses_the_priority_of_the_next_run() {
    let (queue, env) = queue();
    for (key, priority) in [("a", Priority::Low), ("b", Priority::High)] {
        queue.add(key);
        let mut item = ready(&queue).unwrap();
        item.set_priority(priority);
        item.retry_after(SECOND);
    }
    env.clock.sleep(SECOND).await;
    assert_eq!(figures(&queue).depth, [1, 0, 1]);
}

fn config_map(version: u32) -> Object<ConfigMap> {
    let json = format!(r#"{{"metadata":{{"namespace":"ns","name":"a","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

#[test]
fn a_handler_says_why_it_adds_a_key() {
    let queue = RateLimitingQueue::new("test", limiter::default_controller(), &Env::simulated(1));
    let why = || {
        let item = ready(&queue).unwrap();
        let triggers = item.triggers().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        item.forget();
        triggers
    };
    let (old, new) = (config_map(1), config_map(2));
    let mut itself = enqueue(queue.clone());
    itself.add(&old, true);
    assert_eq!(why(), "the object was in the initial list (version 1)");
    itself.update(&old, &new);
    assert_eq!(why(), "the object changed (version 2)");
    itself.update(&new, &new);
    assert_eq!(why(), "the object was resynced (version 2)");
    itself.delete(&Deleted::Final(new.clone()));
    assert_eq!(why(), "the object was deleted (version 2)");

    let owner = |_: &Object<ConfigMap>| Some(ObjectName::cluster("owner"));
    let mut mapped = enqueue_mapped(queue.clone(), owner);
    mapped.update(&old, &new);
    assert_eq!(why(), "ConfigMap ns/a changed (version 2)", "both states have one key");
    let mut named = enqueue_mapped(queue.clone(), owner).kind("Settings").relation(Relation::Owner);
    named.delete(&Deleted::Final(new.clone()));
    assert_eq!(why(), "Settings ns/a was deleted (version 2)");
    let figures = figures(&queue);
    let counts: Vec<_> =
        Cause::ALL.into_iter().zip(figures.triggers).filter(|(_, count)| *count > 0).collect();
    let expected = [
        (Cause::Itself, 2),
        (Cause::Owner, 1),
        (Cause::Mapping, 1),
        (Cause::InitialList, 1),
        (Cause::Resync, 1),
    ];
    assert_eq!(counts, expected);
}

#[test]
fn what_a_first_list_or_a_resync_tells_is_not_urgent() {
    let queue = RateLimitingQueue::new("test", limiter::default_controller(), &Env::simulated(1));
    let mut handler = enqueue(queue.clone());
    let priority = |tell: &mut dyn FnMut()| {
        tell();
        let item = ready(&queue).unwrap();
        assert_eq!(*item.key(), ObjectName::namespaced("ns", "a"));
        let priority = item.priority();
        item.forget();
        priority
    };
    let (old, new) = (config_map(1), config_map(2));
    assert_eq!(priority(&mut || handler.add(&old, true)), Priority::Low);
    assert_eq!(priority(&mut || handler.add(&old, false)), Priority::Normal);
    assert_eq!(priority(&mut || handler.update(&old, &new)), Priority::Normal);
    assert_eq!(priority(&mut || handler.update(&new, &new)), Priority::Low);
    assert_eq!(priority(&mut || handler.delete(&Deleted::Final(new.clone()))), Priority::Normal);
    assert_eq!(Priority::ALL.map(Priority::as_str), ["low", "normal", "high"]);
}

/// A key of its own for each way in which a reconcile can go wrong, among many that go well.
async fn reconcile(key: &'static str, stop: CancellationToken) -> Result<(), std::io::Error> {
    match key {
        // Past the panic hook, which would print.
        "panics" => std::panic::resume_unwind(Box::new("boom")),
        "hangs" => {
            stop.cancelled().await;
            Ok(())
        }
        "fails" => Err(std::io::Error::other("no luck")),
        _ => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_that_panics_one_that_hangs_and_one_that_fails_harm_no_other() {
    const GOOD: [&str; 5] = ["a", "b", "c", "d", "e"];
    let (queue, env) = queue();
    let (stop, runs, start) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)), env.clock.now());
    let (end, count) = (stop.clone(), runs.clone());
    let workers = run_workers(3, &queue, stop.clone(), &env, move |item| {
        let (stop, runs) = (end.clone(), count.clone());
        async move {
            match reconcile(item.key(), stop).await {
                Ok(()) => {
                    runs.fetch_add(usize::from(GOOD.contains(item.key())), SeqCst);
                    item.forget();
                }
                Err(error) => item.retry(error),
            }
        }
    });
    let observer = async {
        ["panics", "hangs", "fails"].into_iter().for_each(|key| queue.add(key));
        for _ in 0..20 {
            GOOD.into_iter().for_each(|key| queue.add(key));
            env.clock.sleep(SECOND).await;
        }
        env.clock.sleep(SECOND / 2).await;
        assert_eq!(runs.load(SeqCst), 100, "every round of the good keys was worked on");
        assert_eq!(queue.explain(&"a").unwrap().last_success, Some(start + 19 * SECOND));

        let panics = queue.explain(&"panics").unwrap();
        // Tried after 0, 1, 3, 7 and 15 seconds.
        assert_eq!((panics.retries, panics.last_success), (5, None));
        assert_eq!(panics.last_error.unwrap().message.as_ref(), "the worker panicked");
        assert_eq!(panics.delayed_until, Some(start + 23 * SECOND));
        assert_eq!((env.reporter.panics(), env.reporter.errors()), (5, 5));

        let fails = queue.explain(&"fails").unwrap();
        assert_eq!((fails.retries, fails.last_error.unwrap().message.as_ref()), (5, "no luck"));

        let hangs = queue.explain(&"hangs").unwrap();
        assert_eq!((hangs.worked_on_since, hangs.retries), (Some(start), 0));
        let running = figures(&queue).running;
        let age = 20 * SECOND + SECOND / 2;
        assert_eq!((running.count, running.unfinished, running.longest), (1, age, age));

        let figures = figures(&queue);
        assert_eq!((figures.depth, figures.delayed, figures.retries), ([0; 3], 2, 10));
        // 100 good runs, one that hangs, 5 each that panic and fail.
        assert_eq!((figures.adds, figures.work_duration.count()), (111, 110));
        stop.cancel();
    };
    tokio::join!(workers, observer);
    assert_eq!(queue.explain(&"hangs").unwrap().last_success, Some(env.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_worker_leaves_a_word_of_it() {
    let (queue, env) = queue();
    queue.add("foo");
    let work = async {
        let _item = queue.get().await;
        std::future::pending::<()>().await;
    };
    assert!(env.clock.timeout(SECOND, work).await.is_err());
    let record = queue.explain(&"foo").unwrap();
    assert_eq!(record.last_error.unwrap().message.as_ref(), "dropped before anything was decided");
    assert_eq!(record.delayed_until, Some(env.clock.now() + SECOND));
}
