//! Why keys are added, as the queue tells.

use super::*;
use crate::workqueue::{Cause, KeyRecord, Reason, Trigger, TriggerRecord};

/// Adds `foo` because its object changed.
fn change(queue: &RateLimitingQueue<&'static str>, version: u64) {
    queue.add_because("foo", Priority::Normal, Trigger::itself(Reason::Changed, &version.into()));
}

fn texts(records: &[TriggerRecord]) -> Vec<String> {
    records.iter().map(ToString::to_string).collect()
}

fn count(queue: &RateLimitingQueue<&'static str>, cause: Cause) -> u64 {
    queue.metrics().upgrade().unwrap().figures().triggers[cause as usize]
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_what_led_to_its_run() {
    let (queue, env) = queue();
    let start = env.clock.now();
    change(&queue, 1);
    env.clock.sleep(SECOND).await;
    change(&queue, 2);
    queue.add_because("foo", Priority::Low, Trigger::External);
    let item = ready(&queue).unwrap();
    let expected = ["it was added from outside", "the object changed (version 2), 2 times"];
    assert_eq!(texts(&item.triggers()), expected);
    assert_eq!(item.triggers()[1].at, start + SECOND);
    // What comes while it works leads to the next run.
    change(&queue, 3);
    assert_eq!(texts(&item.triggers()), expected);
    item.forget();
    let item = ready(&queue).unwrap();
    assert_eq!(texts(&item.triggers()), ["the object changed (version 3)"]);
    item.forget();
    assert_eq!((count(&queue, Cause::Itself), count(&queue, Cause::External)), (3, 1));
    let record: KeyRecord<_> = queue.explain(&"foo").unwrap();
    assert_eq!(record.triggers.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn retries_and_requeues_say_so_themselves() {
    let (queue, env) = queue();
    change(&queue, 1);
    ready(&queue).unwrap().retry("no luck");
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!(texts(&item.triggers()), ["a retry was due"]);
    item.retry_after(SECOND);
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!(
        (texts(&item.triggers()), item.triggers()[0].at),
        (vec!["a delayed add was due".to_owned()], env.clock.now())
    );
    item.retry_after(Duration::ZERO);
    let item = ready(&queue).unwrap();
    assert_eq!(texts(&item.triggers()), ["a delayed add was due"]);
    item.forget();
    let all = ["a delayed add was due", "a retry was due", "the object changed (version 1)"];
    assert_eq!(texts(&queue.explain(&"foo").unwrap().triggers)[0], all[0]);
    assert_eq!((count(&queue, Cause::Retry), count(&queue, Cause::Requeue)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_no_longer_needed_is_one_all_the_same() {
    let (queue, env) = queue();
    change(&queue, 1);
    ready(&queue).unwrap().retry("no luck");
    change(&queue, 2);
    ready(&queue).unwrap().forget();
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!((texts(&item.triggers()), item.attempts()), (vec!["a retry was due".to_owned()], 0));
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn after_a_parking_the_first_triggers_are_still_there() {
    let (queue, env) = queue();
    let parked = "it waited for its own writes";
    change(&queue, 1);
    let item = ready(&queue).unwrap();
    item.park(env.clock.now() + SECOND);
    queue.unpark(&"foo");
    let item = ready(&queue).unwrap();
    assert_eq!(texts(&item.triggers()), [parked, "the object changed (version 1)"]);
    item.park(env.clock.now() + SECOND);
    let item = within(&env, queue.get()).await.unwrap();
    assert_eq!(
        texts(&item.triggers()),
        [format!("{parked}, 2 times").as_str(), "the object changed (version 1)"]
    );
    // An add that ends the parking says why itself.
    item.park(env.clock.now() + SECOND);
    change(&queue, 2);
    let item = ready(&queue).unwrap();
    assert_eq!(
        texts(&item.triggers()),
        ["the object changed (version 2), 2 times", format!("{parked}, 2 times").as_str()]
    );
    // So does one that came before the park; an unpark before the park is one.
    change(&queue, 3);
    item.park(env.clock.now() + SECOND);
    let item = ready(&queue).unwrap();
    assert_eq!(texts(&item.triggers())[0], "the object changed (version 3)");
    queue.unpark(&"foo");
    item.park(env.clock.now() + SECOND);
    let item = ready(&queue).unwrap();
    assert_eq!(texts(&item.triggers())[0], format!("{parked}, 3 times"));
    item.forget();
    assert_eq!(count(&queue, Cause::OwnWrites), 3);
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_triggers_keeps_none_and_counts_its_own() {
    let (queue, env) = queue();
    queue.add("foo");
    let item = ready(&queue).unwrap();
    assert_eq!(item.triggers(), []);
    item.retry_after(SECOND);
    within(&env, queue.get()).await.unwrap().forget();
    assert!(queue.0.shared.state.lock().keys.queue.slots.range(0, 9).iter().all(|slot| slot.extra.is_none()));
    assert_eq!((queue.explain(&"foo").unwrap().triggers, count(&queue, Cause::Requeue)), (vec![], 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_nothing_is_noted() {
    let (queue, _env) = queue();
    queue.shut_down();
    change(&queue, 1);
    assert_eq!((queue.explain(&"foo"), count(&queue, Cause::Itself)), (None, 0));
}
