//! What a queue tells of its keys, and how long it holds its lock for that.

use super::*;
use crate::workqueue::slots::steps;
use crate::workqueue::{KeyState, Reason, Trigger};

fn change(queue: &RateLimitingQueue<&'static str>, key: &'static str) {
    queue.add_because(key, Priority::Normal, Trigger::itself(Reason::Changed, &"7".into()));
}

#[tokio::test(start_paused = true)]
async fn a_success_leaves_the_retry_of_an_earlier_failure_but_the_key_is_not_retrying() {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::new("test", ItemExponential::new(60 * SECOND, 600 * SECOND), &env);
    change(&queue, "foo");
    ready(&queue).unwrap().retry("no luck");
    let record = queue.explain(&"foo").unwrap();
    assert_eq!(
        (record.state, record.is_backing_off, record.is_due_by_retry),
        (KeyState::Retrying, true, true)
    );
    // A user mends the object.
    change(&queue, "foo");
    let mut item = ready(&queue).unwrap();
    item.saw(&"8".into());
    item.forget();
    let record = queue.explain(&"foo").unwrap();
    assert_eq!(
        (record.state, record.is_backing_off, record.is_due_by_retry),
        (KeyState::Delayed, false, true)
    );
    assert_eq!((record.retries, record.delayed_until), (0, Some(env.clock.now() + 60 * SECOND)));
    let states = queue.figures().states;
    assert_eq!((states[KeyState::Retrying as usize], states[KeyState::Delayed as usize]), (0, 1));
    // The next failure begins a row of its own.
    change(&queue, "foo");
    ready(&queue).unwrap().retry("no luck");
    let record = queue.explain(&"foo").unwrap();
    assert_eq!((record.state, record.retries), (KeyState::Retrying, 1));
    assert_eq!(record.last_success_saw.map(std::num::NonZero::get), Some(8));
}

#[tokio::test(start_paused = true)]
async fn only_the_full_record_of_a_waiting_key_counts_those_before_it() {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::<u32>::new("test", limiter::default_controller(), &env);
    (0..1_000).for_each(|key| queue.add(key));
    steps::taken();
    assert_eq!(queue.explain(&999).unwrap().behind, Some(999));
    assert_eq!(steps::taken(), 1_000, "the whole list");
    for key in 0..1_000 {
        assert_eq!((queue.retries(&key), queue.state(&key)), (0, Some(KeyState::Waiting)));
        assert_eq!(queue.brief(&key).unwrap().behind, None);
    }
    assert_eq!(queue.glances().len(), 1_000);
    assert_eq!(queue.records().count(), 1_000);
    assert_eq!(steps::taken(), 0, "nothing is looked for in a list");
}

#[tokio::test(start_paused = true)]
async fn the_keys_with_workers_are_told_the_longest_running_first() {
    let (queue, env) = queue();
    let start = env.clock.now();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let first = ready(&queue).unwrap();
    env.clock.sleep(SECOND).await;
    let second = ready(&queue).unwrap();
    assert_eq!(queue.running(8), [("a", start), ("b", start + SECOND)]);
    assert_eq!(queue.running(1), [("a", start)]);
    first.forget();
    assert_eq!(queue.running(8), [("b", start + SECOND)]);
    second.forget();
}

#[tokio::test(start_paused = true)]
async fn a_queue_knows_whether_it_has_forgotten_a_key() {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::remembering(1, "test", limiter::default_controller(), &env);
    for (key, has_forgotten) in [("a", false), ("a", false), ("b", true)] {
        queue.add(key);
        ready(&queue).unwrap().forget();
        assert_eq!(queue.has_forgotten(), has_forgotten, "{key}");
    }
    let mut keys = vec!["a", "b", "c"];
    queue.retain_unknown(&mut keys);
    assert_eq!(keys, ["a", "c"]);
}
