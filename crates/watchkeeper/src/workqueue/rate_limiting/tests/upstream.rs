//! client-go's tests of the queue, through the public API.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::*;

/// The two ways to shut down.
#[derive(Clone, Copy)]
enum Ending {
    Plain,
    Drain,
}

async fn shut_down<T: Key>(queue: &RateLimitingQueue<T>, ending: Ending) {
    match ending {
        Ending::Plain => queue.shut_down(),
        Ending::Drain => queue.shut_down_with_drain().await,
    }
}

// client-go: TestBasic
#[tokio::test(start_paused = true)]
async fn many_producers_and_workers_share_a_queue() {
    for ending in [Ending::Plain, Ending::Drain] {
        let env = Env::simulated(1);
        let queue = RateLimitingQueue::<u32>::new("test", limiter::default_controller(), &env);
        let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
        // The adds of each key, and the adds that its last run has seen.
        let counts = Arc::new(Mutex::new([(0, 0); 50]));
        for producer in 0..50 {
            let (queue, clock, counts) = (queue.clone(), env.clock.clone(), counts.clone());
            producers.spawn(async move {
                for _ in 0..50 {
                    counts.lock()[producer as usize].0 += 1;
                    queue.add(producer);
                    clock.sleep(MS).await;
                }
            });
        }
        for _ in 0..10 {
            let (queue, clock, counts) = (queue.clone(), env.clock.clone(), counts.clone());
            workers.spawn(async move {
                while let Some(item) = queue.get().await {
                    assert_ne!(*item.key(), u32::MAX, "added after the shutdown");
                    {
                        let (added, known) = &mut counts.lock()[*item.key() as usize];
                        *known = *added;
                    }
                    clock.sleep(3 * MS).await;
                    item.forget();
                }
            });
        }
        within(&env, producers.join_all()).await;
        within(&env, shut_down(&queue, ending)).await;
        queue.add(u32::MAX);
        within(&env, workers.join_all()).await;
        assert!(queue.is_empty());
        assert_eq!(*counts.lock(), [(50, 50); 50], "every add is followed by a run");
    }
}

// client-go: TestAddWhileProcessing
#[tokio::test(start_paused = true)]
async fn workers_may_add_the_key_they_hold() {
    for ending in [Ending::Plain, Ending::Drain] {
        let env = Env::simulated(1);
        let queue = RateLimitingQueue::<u32>::new("test", limiter::default_controller(), &env);
        (0..50).for_each(|key| queue.add(key));
        let mut workers = JoinSet::new();
        for _ in 0..10 {
            let queue = queue.clone();
            workers.spawn(async move {
                let mut seen = [0; 50];
                while let Some(item) = queue.get().await {
                    let key = *item.key();
                    seen[key as usize] += 1;
                    if seen[key as usize] == 1 {
                        queue.add(key);
                    }
                    item.forget();
                    tokio::task::yield_now().await;
                }
                seen
            });
        }
        env.clock.sleep(SECOND).await;
        within(&env, shut_down(&queue, ending)).await;
        let seen = within(&env, workers.join_all()).await;
        assert!(queue.is_empty());
        for key in 0..50 {
            let runs: usize = seen.iter().map(|seen| seen[key]).sum();
            let again = seen.iter().filter(|seen| seen[key] > 0).count();
            assert!(again > 0 && runs == 1 + again, "key {key}: {runs} runs, {again} added it again");
        }
    }
}

// controller-runtime: drains 20,000 items with 100 workers
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_workers_drain_twenty_thousand_keys_each_once() {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::<u32>::new("test", limiter::default_controller(), &env);
    let mut workers = JoinSet::new();
    for _ in 0..100 {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut done = Vec::new();
            while let Some(item) = queue.get().await {
                done.push(*item.key());
                tokio::task::yield_now().await;
                item.forget();
            }
            done
        });
    }
    (0..20_000).for_each(|key| queue.add(key));
    within(&env, queue.shut_down_with_drain()).await;
    let mut done = within(&env, workers.join_all()).await.concat();
    done.sort_unstable();
    assert!(done.into_iter().eq(0..20_000));
}

// client-go: TestCollapseWhileProcessing
#[tokio::test(start_paused = true)]
async fn a_second_worker_stays_blocked_until_the_first_is_done() {
    let (queue, env) = queue();
    queue.add("bar");
    let first = ready(&queue).unwrap();
    queue.add("bar");
    queue.add("bar");
    let mut second = Box::pin(queue.get());
    assert!(env.clock.timeout(SECOND, second.as_mut()).await.is_err());
    first.forget();
    let second = within(&env, second).await.unwrap();
    assert_eq!((*second.key(), queue.len()), ("bar", 0));
    second.forget();
    assert!(ready(&queue).is_none());
}

// client-go: TestQueueDrainageUsingShutDownWithDrain
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_every_key_handed_out() {
    let (queue, env) = queue();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (ready(&queue).unwrap(), ready(&queue).unwrap());
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(env.clock.timeout(SECOND, drain.as_mut()).await.is_err());
    first.forget();
    assert!(env.clock.timeout(SECOND, drain.as_mut()).await.is_err());
    second.forget();
    within(&env, drain).await;
}

// client-go: TestNoQueueDrainageUsingShutDown
#[tokio::test(start_paused = true)]
async fn a_plain_shutdown_waits_for_nobody() {
    let (queue, env) = queue();
    queue.add("foo");
    let item = ready(&queue).unwrap();
    queue.shut_down();
    assert!(within(&env, queue.get()).await.is_none());
    item.forget();
}

// client-go: TestForceQueueShutdownUsingShutDown
#[tokio::test(start_paused = true)]
async fn a_plain_shutdown_releases_a_drain() {
    let (queue, env) = queue();
    queue.add("foo");
    let item = ready(&queue).unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(env.clock.timeout(SECOND, drain.as_mut()).await.is_err());
    queue.shut_down();
    within(&env, drain).await;
    item.forget();
}

// client-go: TestQueueDrainageUsingShutDownWithDrainWithDirtyItem
#[tokio::test(start_paused = true)]
async fn a_key_added_again_before_a_drain_is_handed_out_once_more() {
    let (queue, env) = queue();
    queue.add("foo");
    let first = ready(&queue).unwrap();
    queue.add("foo");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(poll_once(drain.as_mut()).is_pending());
    first.forget();
    let again = within(&env, queue.get()).await.unwrap();
    assert_eq!(*again.key(), "foo");
    again.forget();
    assert!(within(&env, queue.get()).await.is_none());
    within(&env, drain).await;
}

// client-go: TestRateLimitingQueue
#[tokio::test(start_paused = true)]
async fn rate_limited_adds_back_off_per_key_until_forgotten() {
    let (queue, env) = queue();
    let due = |key| queue.explain(&key)?.delayed_until.map(|due| due - env.clock.now());
    queue.add_rate_limited("one");
    assert_eq!(due("one"), Some(MS));
    env.clock.sleep(MS).await;
    queue.add_rate_limited("one");
    assert_eq!((due("one"), queue.retries(&"one")), (Some(2 * MS), 2));
    queue.add_rate_limited("two");
    assert_eq!((due("two"), queue.retries(&"two")), (Some(MS), 1));
    env.clock.sleep(2 * MS).await;
    assert_eq!(queue.len(), 2);
    queue.forget(&"one");
    queue.forget(&"unknown");
    assert_eq!((queue.retries(&"one"), queue.retries(&"two")), (0, 1));
    queue.add_rate_limited("one");
    assert_eq!(due("one"), Some(MS));
}
