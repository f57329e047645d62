use std::sync::Arc;

use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);
const MS_NANOS: u64 = 1_000_000;

fn queue<T: Hash + Eq + Clone>() -> (Queue<T>, Tick) {
    let epoch = Clock::system().now();
    (Queue::new(0, FixedState::default()), Tick::at(epoch, epoch))
}

impl<T: Hash + Eq + Clone> Queue<T> {
    fn add_key(&mut self, key: T, now: Tick) -> Option<Added> {
        let number = self.claim(key)?;
        Some(self.add(number, Priority::Normal, now))
    }

    fn take(&mut self, now: Tick) -> Option<Taken<T>> {
        self.get(0, now).map(|(taken, _)| taken)
    }

    /// Marks the run of a ticket as a success, so that there is something to remember.
    fn succeed(&mut self, ticket: Ticket, now: Tick) {
        self.slots[ticket.number()].last_success = Some(now);
        self.done(ticket);
    }
}

// client-go: TestLen
#[test]
fn a_key_waits_once_however_often_it_is_added() {
    let (mut queue, now) = queue();
    assert_eq!(queue.add_key("foo", now), Some(Added::Queued));
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.add_key("bar", now), Some(Added::Queued));
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.add_key("foo", now), Some(Added::Collapsed));
    assert_eq!(queue.len(), 2);
}

// client-go: TestCollapse
#[test]
fn two_adds_before_a_run_lead_to_one_run() {
    let (mut queue, now) = queue();
    queue.add_key("bar", now);
    queue.add_key("bar", now);
    let taken = queue.take(now).unwrap();
    assert_eq!((taken.key, queue.len(), queue.working()), ("bar", 0, 1));
    queue.done(taken.ticket);
    assert_eq!((queue.len(), queue.working()), (0, 0));
}

// client-go: TestReinsert
#[test]
fn a_key_added_while_worked_on_is_handed_out_again_after_done() {
    let (mut queue, now) = queue();
    queue.add_key("foo", now);
    let first = queue.take(now).unwrap();
    assert_eq!(queue.add_key("foo", now), Some(Added::Deferred));
    assert_eq!(queue.add_key("foo", now), Some(Added::Collapsed));
    assert!(queue.take(now).is_none(), "nobody else gets it before done");
    queue.done(first.ticket);
    let second = queue.take(now).unwrap();
    assert_eq!(second.key, "foo");
    queue.done(second.ticket);
    assert!(queue.take(now).is_none());
}

#[test]
fn a_key_added_while_worked_on_takes_its_place_at_done() {
    let (mut queue, now) = queue();
    queue.add_key("foo", now);
    let foo = queue.take(now).unwrap();
    queue.add_key("foo", now);
    queue.add_key("bar", now);
    queue.done(foo.ticket);
    queue.add_key("baz", now);
    let order: Vec<_> = std::iter::from_fn(|| queue.take(now)).map(|taken| taken.key).collect();
    assert_eq!(order, ["bar", "foo", "baz"]);
}

#[test]
fn a_key_added_while_worked_on_keeps_the_highest_priority_of_those_adds() {
    let (mut queue, now) = queue();
    queue.add_key("foo", now);
    let foo = queue.take(now).unwrap();
    for priority in [Priority::Low, Priority::High, Priority::Normal] {
        let number = queue.claim("foo").unwrap();
        queue.add(number, priority, now);
    }
    assert_eq!((foo.priority, queue.depth()), (Priority::Normal, [0, 0, 1]));
    queue.add_key("bar", now);
    queue.done(foo.ticket);
    assert_eq!(queue.depth(), [0, 1, 1]);
    let again = queue.take(now).unwrap();
    assert_eq!((again.key, again.priority), ("foo", Priority::High));
    queue.done(again.ticket);
    // The raised priority ends with the run that needed it.
    queue.add_key("foo", now);
    assert_eq!(queue.depth(), [0, 2, 0]);
}

#[test]
fn a_shutdown_refuses_adds_and_hands_out_the_rest() {
    let (mut queue, now) = queue();
    queue.add_key("foo", now);
    queue.add_key("bar", now);
    let foo = queue.take(now).unwrap();
    queue.add_key("foo", now);
    queue.shut_down();
    assert_eq!((queue.add_key("baz", now), queue.add_key("foo", now)), (None, None));
    queue.done(foo.ticket);
    let order: Vec<_> = std::iter::from_fn(|| queue.take(now)).map(|taken| taken.key).collect();
    assert_eq!(order, ["bar", "foo"]);
}

// client-go: TestGarbageCollection
#[test]
fn a_finished_key_is_not_kept_alive_by_a_queue_that_remembers_none() {
    let (mut queue, now) = queue();
    let key = Arc::new("foo");
    queue.add_key(key.clone(), now);
    let taken = queue.take(now).unwrap();
    drop(taken.key);
    queue.succeed(taken.ticket, now);
    assert_eq!((Arc::strong_count(&key), queue.slots.len()), (1, 0));
}

#[test]
fn of_idle_keys_the_last_ones_are_remembered() {
    let epoch = Clock::system().now();
    let (mut queue, now) = (Queue::new(2, FixedState::default()), Tick::at(epoch, epoch));
    let run = |queue: &mut Queue<&'static str>, key| {
        queue.add_key(key, now);
        let taken = queue.take(now).unwrap();
        queue.succeed(taken.ticket, now);
    };
    ["a", "b", "a", "c"].into_iter().for_each(|key| run(&mut queue, key));
    assert_eq!(["a", "b", "c"].map(|key| queue.slots.find(&key).is_some()), [true, false, true]);
    // Waiting keys are not evicted.
    queue.add_key("a", now);
    ["d", "e"].into_iter().for_each(|key| {
        queue.add_key(key, now);
    });
    let taken: Vec<_> = std::iter::from_fn(|| queue.take(now)).collect();
    assert_eq!(taken.iter().map(|taken| taken.key).collect::<Vec<_>>(), ["a", "d", "e"]);
    taken.into_iter().rev().for_each(|taken| queue.succeed(taken.ticket, now));
    assert_eq!(["a", "c", "d", "e"].map(|key| queue.slots.find(&key).is_some()), [true, false, true, false]);
}

#[test]
fn a_key_of_which_nothing_is_known_is_not_remembered() {
    let epoch = Clock::system().now();
    let (mut queue, now) = (Queue::new(2, FixedState::default()), Tick::at(epoch, epoch));
    queue.add_key("a", now);
    let taken = queue.take(now).unwrap();
    queue.done(taken.ticket);
    assert_eq!(queue.slots.len(), 0);
}

// client-go: TestMetrics (the durations)
#[test]
fn waits_and_runs_are_timed_from_the_add_that_led_to_them() {
    let (mut queue, start) = queue();
    queue.add_key("foo", start);
    let (first, waited) = queue.get(0, start.after(50 * MS)).unwrap();
    assert_eq!(waited, 50 * MS_NANOS);
    // Only the first of these adds starts the clock, and the wait includes that for the current run.
    queue.add_key("foo", start.after(60 * MS));
    queue.add_key("foo", start.after(70 * MS));
    assert_eq!(queue.slots[first.ticket.number()].worked(start.after(75 * MS)), 25 * MS_NANOS);
    queue.done(first.ticket);
    let (_second, waited) = queue.get(0, start.after(90 * MS)).unwrap();
    assert_eq!(waited, 30 * MS_NANOS);
    queue.add_key("bar", start);
    queue.add_key("baz", start);
    let _bar = queue.get(0, start.after(91 * MS)).unwrap();
    let running = queue.running(start.after(100 * MS));
    assert_eq!(running, Running { count: 2, unfinished: 19 * MS, longest: 10 * MS });
}
