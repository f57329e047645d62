//! Keys that are given back without a run.

use super::*;

/// Adds a key, takes it and parks it for a time.
fn park(queue: &RateLimitingQueue<&'static str>, env: &Env, key: &'static str, time: Duration) {
    queue.add(key);
    let item = ready(queue).unwrap();
    assert_eq!(*item.key(), key);
    item.park(env.clock.now() + time);
}

/// How long it takes until a key is ready.
async fn wait(queue: &RateLimitingQueue<&'static str>, env: &Env) -> (Duration, WorkItem<&'static str>) {
    let start = env.clock.now();
    let item = within(env, queue.get()).await.unwrap();
    (env.clock.now() - start, item)
}

#[tokio::test(start_paused = true)]
async fn a_parked_key_is_ready_when_its_time_is_over() {
    let (queue, env) = queue();
    park(&queue, &env, "foo", 5 * SECOND);
    assert!(queue.is_empty());
    let record = queue.explain(&"foo").unwrap();
    let now = env.clock.now();
    assert_eq!((record.parked_until, record.parked_since), (Some(now + 5 * SECOND), Some(now)));
    assert_eq!((record.waiting_since, record.delayed_until, record.worked_on_since), (None, None, None));

    let (waited, item) = wait(&queue, &env).await;
    assert_eq!((waited, item.parked_since()), (5 * SECOND, Some(now)));
    item.forget();
    assert!(env.clock.timeout(60 * SECOND, queue.get()).await.is_err(), "once");
}

#[tokio::test(start_paused = true)]
async fn an_unparked_key_is_ready_now_and_not_again_when_its_time_is_over() {
    let (queue, env) = queue();
    park(&queue, &env, "foo", 5 * SECOND);
    env.clock.sleep(SECOND).await;
    queue.unpark(&"foo");
    queue.unpark(&"foo");
    assert_eq!(queue.len(), 1);
    ready(&queue).unwrap().forget();
    assert!(env.clock.timeout(60 * SECOND, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_unpark_wakes_a_waiting_worker() {
    let (queue, env) = queue();
    park(&queue, &env, "foo", 5 * SECOND);
    let unpark = async {
        env.clock.sleep(2 * SECOND).await;
        queue.unpark(&"foo");
    };
    let ((waited, item), ()) = tokio::join!(wait(&queue, &env), unpark);
    assert_eq!(waited, 2 * SECOND);
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn an_unpark_of_a_key_that_is_not_parked_is_no_add() {
    let (queue, env) = queue();
    queue.unpark(&"unknown");
    assert_eq!(queue.explain(&"unknown"), None);
    queue.add_after("delayed", SECOND);
    queue.unpark(&"delayed");
    queue.add("worked on");
    let item = ready(&queue).unwrap();
    queue.unpark(&"worked on");
    item.forget();
    queue.unpark(&"worked on");
    assert!(queue.is_empty());
    // Nor is it kept for a parking in a later run.
    park(&queue, &env, "worked on", 5 * SECOND);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unpark_between_the_look_of_a_worker_and_its_park_is_not_lost() {
    let (queue, env) = queue();
    queue.add_with("foo", Priority::High);
    let item = ready(&queue).unwrap();
    let start = env.clock.now();
    queue.unpark(&"foo");
    env.clock.sleep(SECOND).await;
    item.park(env.clock.now() + 5 * SECOND);
    let item = ready(&queue).unwrap();
    assert_eq!((item.priority(), item.parked_since()), (Priority::High, Some(start + SECOND)));
    item.park(env.clock.now() + 5 * SECOND);
    assert!(queue.is_empty(), "it is used up");
}

#[tokio::test(start_paused = true)]
async fn an_add_of_a_parked_key_makes_it_ready_once() {
    let (queue, env) = queue();
    type Add = fn(&RateLimitingQueue<&'static str>);
    let adds: [Add; 2] = [|queue| queue.add("foo"), |queue| queue.add_after("foo", Duration::ZERO)];
    for add in adds {
        park(&queue, &env, "foo", 5 * SECOND);
        add(&queue);
        add(&queue);
        assert_eq!(queue.len(), 1);
        ready(&queue).unwrap().forget();
        assert!(env.clock.timeout(60 * SECOND, queue.get()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_while_worked_on_is_ready_at_once_in_spite_of_a_park() {
    let (queue, env) = queue();
    queue.add_with("foo", Priority::High);
    let item = ready(&queue).unwrap();
    queue.add_with("foo", Priority::Low);
    item.park(env.clock.now() + 5 * SECOND);
    assert_eq!(queue.len(), 1);
    let item = ready(&queue).unwrap();
    assert_eq!((item.priority(), item.parked_since()), (Priority::High, Some(env.clock.now())));
    item.forget();
    assert!(env.clock.timeout(60 * SECOND, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_parked_until_a_time_that_is_over_is_ready() {
    let (queue, env) = queue();
    park(&queue, &env, "foo", Duration::ZERO);
    assert_eq!(queue.len(), 1);
    ready(&queue).unwrap().forget();
    assert_eq!(queue.metrics().upgrade().unwrap().figures().parked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_parked_key_comes_back_with_the_highest_of_its_priorities() {
    let (queue, env) = queue();
    for (first, then, expected) in [
        (Priority::High, Some(Priority::Low), Priority::High),
        (Priority::Low, Some(Priority::Normal), Priority::Normal),
        (Priority::Low, None, Priority::Low),
        (Priority::High, None, Priority::High),
    ] {
        queue.add_with("foo", first);
        ready(&queue).unwrap().park(env.clock.now() + 5 * SECOND);
        match then {
            Some(priority) => queue.add_with("foo", priority),
            None => queue.unpark(&"foo"),
        }
        let item = ready(&queue).unwrap();
        assert_eq!(item.priority(), expected);
        item.park(env.clock.now() + SECOND);
        let (_, item) = wait(&queue, &env).await;
        assert_eq!(item.priority(), expected);
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_that_is_due_later_than_the_parking_stands() {
    let (queue, env) = queue();
    queue.add("foo");
    ready(&queue).unwrap().retry_after(30 * SECOND);
    park(&queue, &env, "foo", 5 * SECOND);
    let (waited, item) = wait(&queue, &env).await;
    assert_eq!(waited, 5 * SECOND);
    item.forget();
    let (waited, item) = wait(&queue, &env).await;
    assert_eq!(waited, 25 * SECOND);
    item.forget();

    queue.add_after("foo", 30 * SECOND);
    park(&queue, &env, "foo", 5 * SECOND);
    queue.unpark(&"foo");
    ready(&queue).unwrap().forget();
    let (waited, item) = wait(&queue, &env).await;
    assert_eq!(waited, 30 * SECOND);
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_that_is_due_before_the_end_of_the_parking_ends_it() {
    let (queue, env) = queue();
    queue.add_after("foo", 2 * SECOND);
    park(&queue, &env, "foo", 5 * SECOND);
    let (waited, item) = wait(&queue, &env).await;
    assert_eq!(waited, 2 * SECOND);
    item.forget();
    // One that is given while it is parked, as well.
    park(&queue, &env, "foo", 5 * SECOND);
    queue.add_after("foo", 3 * SECOND);
    let (waited, item) = wait(&queue, &env).await;
    assert_eq!(waited, 3 * SECOND);
    item.forget();
    assert!(env.clock.timeout(60 * SECOND, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_park_changes_nothing_of_what_is_known_of_the_runs() {
    let (queue, env) = queue();
    queue.add("foo");
    ready(&queue).unwrap().forget();
    queue.add("foo");
    ready(&queue).unwrap().retry("no luck");
    let before = queue.explain(&"foo").unwrap();
    let (_, item) = wait(&queue, &env).await;
    let work = || queue.metrics().upgrade().unwrap().figures();
    let (adds, retries, worked) = (work().adds, work().retries, work().work_duration);
    assert_eq!(item.attempts(), 1);
    env.clock.sleep(SECOND).await;
    item.park(env.clock.now() + 5 * SECOND);
    let record = queue.explain(&"foo").unwrap();
    assert_eq!(
        (record.retries, &record.last_error, record.last_success),
        (1, &before.last_error, before.last_success)
    );
    assert_eq!((work().parked, work().delayed, work().depth), (1, 0, [0; 3]));

    let (_, item) = wait(&queue, &env).await;
    assert_eq!(item.attempts(), 1);
    item.park(env.clock.now() + 5 * SECOND);
    queue.add("foo");
    assert_eq!((work().adds, work().retries, work().parked), (adds, retries, 0));
    assert_eq!(work().work_duration, worked);
    // The backoff goes on where it was.
    ready(&queue).unwrap().retry("no luck");
    let (waited, item) = wait(&queue, &env).await;
    assert_eq!((waited, item.attempts()), (2 * MS, 2));
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn parks_in_a_row_are_timed_from_the_first_until_a_run_ends() {
    type End = fn(WorkItem<&'static str>);
    let ends: [End; 5] = [
        |item| item.forget(),
        |item| item.retry("no luck"),
        |item| item.retry_after(SECOND),
        |item| item.give_up("hopeless"),
        |item| drop(item),
    ];
    for end in ends {
        let (queue, env) = queue();
        let start = env.clock.now();
        park(&queue, &env, "foo", SECOND);
        let (_, item) = wait(&queue, &env).await;
        item.park(env.clock.now() + SECOND);
        queue.unpark(&"foo");
        let item = ready(&queue).unwrap();
        assert_eq!(item.parked_since(), Some(start));
        end(item);
        assert_eq!(queue.explain(&"foo").unwrap().parked_since, None);
        queue.add("foo");
        let item = ready(&queue).unwrap();
        assert_eq!(item.parked_since(), None);
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drops_what_is_parked() {
    let (queue, env) = queue();
    park(&queue, &env, "foo", 5 * SECOND);
    queue.add_after("both", 9 * SECOND);
    park(&queue, &env, "both", 5 * SECOND);
    queue.add("late");
    let late = ready(&queue).unwrap();
    queue.add("added");
    let added = ready(&queue).unwrap();
    queue.add("added");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(poll_once(drain.as_mut()).is_pending());
    assert_eq!((queue.explain(&"foo"), queue.explain(&"both")), (None, None));
    late.park(env.clock.now() + SECOND);
    added.park(env.clock.now() + SECOND);
    within(&env, drain).await;
    assert_eq!(queue.explain(&"late"), None);
    ready(&queue).expect("added before the shutdown").forget();
    assert!(within(&env, queue.get()).await.is_none());
}
