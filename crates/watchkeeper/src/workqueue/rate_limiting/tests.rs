use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::*;
use crate::workqueue::Running;
use crate::workqueue::limiter::{self, ItemExponential};

mod crowd;
mod glimpses;
mod parking;
mod triggers;
mod upstream;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Returns a queue on the paused clock, with a backoff of 1 ms doubling up to 1 s.
fn queue() -> (RateLimitingQueue<&'static str>, Env) {
    let env = Env::simulated(1);
    (RateLimitingQueue::new("test", ItemExponential::new(MS, SECOND), &env), env)
}

/// Returns the key that is ready now, if any.
fn ready<T: Key>(queue: &RateLimitingQueue<T>) -> Option<WorkItem<T>> {
    match poll_once(queue.get()) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// Polls a future once and drops it, as a cancelled task does.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

async fn within<F: Future>(env: &Env, future: F) -> F::Output {
    env.clock.timeout(60 * SECOND, future).await.expect("nothing happened for a minute")
}

#[tokio::test(start_paused = true)]
async fn a_waiting_get_sleeps_until_the_next_key_is_due() {
    let (queue, env) = queue();
    let start = env.clock.now();
    queue.add_after("foo", 5 * SECOND);
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!((*item.key(), env.clock.now() - start), ("foo", 5 * SECOND));
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_get_is_woken_for_an_earlier_due_time() {
    let (queue, env) = queue();
    let start = env.clock.now();
    queue.add_after("late", 50 * SECOND);
    let add_early = async {
        env.clock.sleep(SECOND).await;
        queue.add_after("early", 2 * SECOND);
    };
    let (item, ()) = tokio::join!(within(&env, queue.get()), add_early);
    let item = item.unwrap();
    assert_eq!((*item.key(), env.clock.now() - start), ("early", 3 * SECOND));
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn when_the_get_that_keeps_the_time_is_cancelled_another_keeps_it() {
    let (queue, env) = queue();
    queue.add_after("foo", 5 * SECOND);
    // The first to wait has set the timer; the second has not.
    let mut first = Box::pin(queue.get());
    assert!(poll_once(first.as_mut()).is_pending());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| *item.key()) }
    });
    tokio::task::yield_now().await;
    drop(first);
    let start = env.clock.now();
    assert_eq!(within(&env, second).await.unwrap(), Some("foo"));
    assert_eq!(env.clock.now() - start, 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn when_the_get_that_keeps_the_time_takes_another_key_another_keeps_it() {
    let (queue, env) = queue();
    queue.add_after("foo", 5 * SECOND);
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let item = queue.get().await.unwrap();
                let key = *item.key();
                item.forget();
                key
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let start = env.clock.now();
    queue.add("now");
    let mut keys = Vec::new();
    for worker in workers {
        keys.push(within(&env, worker).await.unwrap());
    }
    keys.sort_unstable();
    assert_eq!((keys, env.clock.now() - start), (vec!["foo", "now"], 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_reached_a_cancelled_get_goes_to_another() {
    let (queue, env) = queue();
    let mut first = Box::pin(queue.get());
    assert!(poll_once(first.as_mut()).is_pending());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| *item.key()) }
    });
    tokio::task::yield_now().await;
    queue.add("foo");
    drop(first);
    assert_eq!(within(&env, second).await.unwrap(), Some("foo"));
}

#[tokio::test(start_paused = true)]
async fn keys_that_become_due_together_reach_every_waiting_worker() {
    let (queue, env) = queue();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.unwrap() })
        })
        .collect();
    tokio::task::yield_now().await;
    // One timer fires for all three; each woken `get` must wake the next.
    for key in ["a", "b", "c"] {
        queue.add_after(key, SECOND);
    }
    let mut items = Vec::new();
    for worker in workers {
        items.push(within(&env, worker).await.unwrap());
    }
    let mut keys: Vec<_> = items.iter().map(|item| *item.key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_became_due_unnoticed_keep_their_place_in_the_order() {
    let (queue, env) = queue();
    queue.add_after("second", 5 * SECOND);
    queue.add("first");
    env.clock.sleep(7 * SECOND).await;
    queue.add("third");
    assert_eq!(queue.len(), 3);
    let order: Vec<_> = std::iter::from_fn(|| ready(&queue)).collect();
    assert_eq!(order.iter().map(|item| *item.key()).collect::<Vec<_>>(), ["first", "second", "third"]);
}

#[tokio::test(start_paused = true)]
async fn len_counts_what_became_due() {
    let (queue, env) = queue();
    queue.add_after("foo", 5 * SECOND);
    assert!(queue.is_empty());
    env.clock.sleep(5 * SECOND).await;
    assert_eq!((queue.len(), queue.is_empty()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn an_item_dropped_undecided_is_retried_rate_limited() {
    let (queue, env) = queue();
    queue.add("foo");
    for attempt in 0..4 {
        let start = env.clock.now();
        let item = within(&env, queue.get()).await.unwrap();
        assert_eq!(item.attempts(), attempt);
        let expected = if attempt == 0 { Duration::ZERO } else { MS * 2_u32.pow(attempt - 1) };
        assert_eq!(env.clock.now() - start, expected);
        drop(item);
    }
    let last = queue.explain(&"foo").unwrap().last_error.unwrap();
    assert_eq!(&*last.message, "dropped before anything was decided");
    assert_eq!((queue.retries(&"foo"), env.reporter.errors()), (4, 1), "the fourth is reported");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_retry_is_explained_from_the_first_on_and_reported_when_it_does_not_help() {
    let (queue, env) = queue();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let into = reports.clone();
    env.reporter.add_hook(move |r| into.lock().push(format!("{}: {}: {}", r.part, r.subject, r.incident)));
    queue.add("foo");
    for retry in 1..=20_u32 {
        let item = within(&env, queue.get()).await.unwrap();
        item.retry_quietly(std::io::Error::other(format!("conflict {retry}")));
        let record = queue.explain(&"foo").unwrap();
        assert_eq!(
            (record.retries, &*record.last_error.unwrap().message),
            (retry, &*format!("conflict {retry}"))
        );
        // A failure of a run that did not wait for the backoff is not another retry.
        queue.add("foo");
        ready(&queue).unwrap().retry_quietly("conflict again");
    }
    let expected =
        [4, 8, 16].map(|n| format!("workqueue: test \"foo\": still failing at retry {n}: conflict {n}"));
    assert_eq!(*reports.lock(), expected);
    let item = within(&env, queue.get()).await.unwrap();
    item.forget();
    queue.add("foo");
    ready(&queue).unwrap().retry_quietly("conflict");
    assert_eq!((reports.lock().len(), queue.retries(&"foo")), (3, 1), "a success begins anew");
}

#[tokio::test(start_paused = true)]
async fn an_item_held_by_a_panicking_worker_is_retried() {
    let (queue, env) = queue();
    queue.add("foo");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _item = queue.get().await;
            panic!("worker");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!((*item.key(), item.attempts()), ("foo", 1));
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_and_retried_and_a_success_forgotten() {
    let (queue, env) = queue();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let into = reports.clone();
    env.reporter.add_hook(move |r| into.lock().push(format!("{}: {}: {}", r.part, r.subject, r.incident)));
    queue.add("foo");
    ready(&queue).unwrap().retry("no luck");
    assert_eq!(queue.retries(&"foo"), 1);
    assert!(ready(&queue).is_none());
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!(item.attempts(), 1);
    item.forget();
    assert_eq!(queue.retries(&"foo"), 0);
    env.clock.sleep(SECOND).await;
    assert!(ready(&queue).is_none());
    assert_eq!(*reports.lock(), ["workqueue: test \"foo\": no luck"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_given_up_is_reported_forgotten_and_not_tried_again() {
    let (queue, env) = queue();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let into = reports.clone();
    env.reporter.add_hook(move |r| into.lock().push(r.incident.to_string()));
    queue.add_rate_limited("foo");
    let item = within(&env, queue.get()).await.unwrap();
    item.give_up(std::io::Error::other("hopeless"));
    assert_eq!(*reports.lock(), ["dropped out of the queue after 1 retries: hopeless"]);
    env.clock.sleep(SECOND).await;
    assert!(ready(&queue).is_none());
    assert_eq!(queue.retries(&"foo"), 0);
    queue.add("foo");
    assert!(ready(&queue).is_some());
}

#[tokio::test(start_paused = true)]
async fn retry_after_forgets_failures_and_waits_as_told() {
    let (queue, env) = queue();
    queue.add_rate_limited("foo");
    let item = within(&env, queue.get()).await.unwrap();
    let start = env.clock.now();
    item.retry_after(9 * SECOND);
    assert_eq!((queue.retries(&"foo"), env.reporter.errors()), (0, 0));
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!(env.clock.now() - start, 9 * SECOND);
    item.retry_after(Duration::ZERO);
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_its_forerunners_were_forgotten_does_not_wait_for_their_backoff() {
    type Forget = fn(&RateLimitingQueue<&'static str>, WorkItem<&'static str>);
    let ways: [Forget; 4] = [
        |_, item| item.forget(),
        |_, item| item.give_up("hopeless"),
        |_, item| item.retry_after(60 * SECOND),
        |queue, item| {
            queue.forget(item.key());
            // Without a failure, as if the queue was forgotten between two runs.
            item.retry_after(60 * SECOND);
        },
    ];
    for forget in ways {
        let (queue, env) = queue();
        queue.add("foo");
        for _ in 0..12 {
            within(&env, queue.get()).await.unwrap().retry("broken");
        }
        // The next run is a second away; meanwhile the problem is fixed.
        queue.add("foo");
        forget(&queue, ready(&queue).unwrap());
        queue.add("foo");
        let item = ready(&queue).unwrap();
        assert_eq!(item.attempts(), 0);
        item.retry("broken again");
        let start = env.clock.now();
        let item = within(&env, queue.get()).await.unwrap();
        assert_eq!((env.clock.now() - start, item.attempts()), (MS, 1));
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_all_timers_is_no_trouble() {
    let (queue, env) = queue();
    queue.add_after("never", Duration::MAX);
    queue.add_after("soon", SECOND);
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!(*item.key(), "soon");
    item.forget();
    assert!(env.clock.timeout(1_000_000 * SECOND, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_every_waiting_get_and_drops_what_is_not_due() {
    let (queue, env) = queue();
    queue.add_after("foo", 5 * SECOND);
    let gets: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    let start = env.clock.now();
    assert!(!queue.is_shutting_down());
    queue.shut_down();
    for get in gets {
        assert!(within(&env, get).await.unwrap());
    }
    queue.add("bar");
    queue.add_after("bar", SECOND);
    queue.add_rate_limited("bar");
    assert_eq!(env.clock.now(), start);
    env.clock.sleep(10 * SECOND).await;
    assert!(queue.is_empty() && queue.is_shutting_down() && within(&env, queue.get()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_retry_during_a_drain_ends_it_all_the_same() {
    let (queue, env) = queue();
    queue.add("foo");
    let item = ready(&queue).unwrap();
    queue.add_after("delayed", SECOND);
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(poll_once(drain.as_mut()).is_pending());
    item.retry("late");
    within(&env, drain).await;
    env.clock.sleep(10 * SECOND).await;
    assert!(within(&env, queue.get()).await.is_none(), "neither the retry nor the delayed key surfaces");
}

#[tokio::test(start_paused = true)]
async fn everyone_who_waits_for_a_drain_is_released() {
    let (queue, env) = queue();
    queue.add("foo");
    let item = ready(&queue).unwrap();
    let drains: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.shut_down_with_drain().await })
        })
        .collect();
    env.clock.sleep(SECOND).await;
    assert!(drains.iter().all(|drain| !drain.is_finished()));
    item.forget();
    for drain in drains {
        within(&env, drain).await.unwrap();
    }
}

// client-go: TestMetrics
#[tokio::test(start_paused = true)]
async fn metrics_follow_a_key_through_its_runs() {
    let (queue, env) = queue();
    let metrics = queue.metrics().upgrade().unwrap();
    let adds_and_depth = || (metrics.figures().adds, metrics.figures().depth);
    queue.add("foo");
    assert_eq!(adds_and_depth(), (1, [0, 1, 0]));
    env.clock.sleep(50 * MS).await;
    let first = ready(&queue).unwrap();
    assert_eq!((adds_and_depth(), metrics.figures().queue_duration.sum()), ((1, [0, 0, 0]), 50 * MS));
    for _ in 0..5 {
        queue.add("foo");
    }
    // Depth counts all needed runs, not only waiting keys.
    assert_eq!((adds_and_depth(), queue.len()), ((2, [0, 1, 0]), 0));
    env.clock.sleep(25 * MS).await;
    first.forget();
    assert_eq!(
        (metrics.figures().work_duration.count(), metrics.figures().work_duration.sum()),
        (1, 25 * MS)
    );
    let second = ready(&queue).unwrap();
    assert_eq!((adds_and_depth(), metrics.figures().queue_duration.sum()), ((2, [0, 0, 0]), 75 * MS));
    env.clock.sleep(MS).await;
    assert_eq!(metrics.figures().running, Running { count: 1, unfinished: MS, longest: MS });
    second.forget();
    assert_eq!(
        (metrics.figures().running, metrics.figures().queue_duration.count()),
        (Running::default(), 2)
    );
    assert_eq!(metrics.name(), "test");
}

#[tokio::test(start_paused = true)]
async fn retries_are_counted_even_without_a_delay_but_not_after_a_shutdown() {
    let (queue, env) = queue();
    let metrics = queue.metrics().upgrade().unwrap();
    let figures = || {
        let figures = metrics.figures();
        (figures.retries, figures.adds, figures.delayed)
    };
    queue.add_after("foo", Duration::ZERO);
    assert_eq!(figures(), (1, 1, 0));
    queue.add_rate_limited("bar");
    assert_eq!(figures(), (2, 1, 1));
    env.clock.sleep(MS).await;
    assert_eq!((queue.len(), figures()), (2, (2, 2, 0)));
    let (failed, again) = (ready(&queue).unwrap(), ready(&queue).unwrap());
    failed.retry("no luck");
    again.retry_after(SECOND);
    assert_eq!(figures(), (4, 2, 2));
    queue.add("baz");
    let last = ready(&queue).unwrap();
    queue.shut_down();
    queue.add_after("baz", Duration::ZERO);
    queue.add_rate_limited("baz");
    last.retry("too late");
    assert_eq!(figures(), (4, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn an_exporter_does_not_keep_a_queue_alive() {
    let (queue, _env) = queue();
    let metrics = queue.metrics();
    drop(queue);
    assert!(metrics.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_queue_and_an_item_print_their_names() {
    let (queue, _env) = queue();
    queue.add("foo");
    assert_eq!(format!("{queue:?}"), "RateLimitingQueue { name: \"test\", .. }");
    assert_eq!(format!("{:?}", ready(&queue).unwrap()), "WorkItem { queue: \"test\", key: \"foo\" }");
}

#[tokio::test(start_paused = true)]
async fn runs_are_counted_by_how_they_ended() {
    let (queue, env) = queue();
    let run = async |end: fn(WorkItem<&'static str>)| {
        queue.add("foo");
        end(within(&env, queue.get()).await.unwrap());
    };
    fn error() -> std::io::Error {
        std::io::Error::other("no luck")
    }
    run(WorkItem::forget).await;
    run(WorkItem::forget).await;
    run(|item| item.retry_after(SECOND)).await;
    run(|item| item.retry(error())).await;
    run(|item| item.retry_quietly(error())).await;
    run(|item| item.retry_error_after(SECOND, error())).await;
    run(|item| item.give_up(error())).await;
    run(drop).await;
    queue.add("foo");
    within(&env, queue.get()).await.unwrap().park(env.clock.now() + SECOND);
    let panicking = queue.clone();
    queue.add("foo");
    let work: tokio::task::JoinHandle<()> = tokio::spawn(async move {
        let _item = panicking.get().await;
        std::panic::resume_unwind(Box::new("boom"))
    });
    assert!(work.await.is_err_and(|error| error.is_panic()));
    let figures = queue.figures();
    assert_eq!(figures.results, [2, 1, 4, 1, 1, 0]);
    assert_eq!(
        figures.results.iter().sum::<u64>(),
        figures.work_duration.count(),
        "a parked key did not run"
    );
}
