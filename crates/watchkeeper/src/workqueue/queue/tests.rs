use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);

fn queue<T: Hash + Eq + Clone>() -> (Queue<T>, Instant) {
    (Queue::new(FixedState::default()), Clock::system().now())
}

// client-go: TestLen
#[test]
fn a_key_waits_once_however_often_it_is_added() {
    let (mut queue, now) = queue();
    assert_eq!(queue.add("foo", now), Added::Queued);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.add("bar", now), Added::Queued);
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.add("foo", now), Added::Collapsed);
    assert_eq!(queue.len(), 2);
}

// client-go: TestCollapse
#[test]
fn two_adds_before_a_run_lead_to_one_run() {
    let (mut queue, now) = queue();
    queue.add("bar", now);
    queue.add("bar", now);
    let taken = queue.get(now).unwrap();
    assert_eq!((taken.key, queue.len()), ("bar", 0));
    assert_eq!(queue.done(taken.ticket, now), Finished { worked: Duration::ZERO, queued_again: false });
    assert_eq!((queue.len(), queue.processing()), (0, 0));
}

// client-go: TestReinsert
#[test]
fn a_key_added_while_worked_on_is_handed_out_again_after_done() {
    let (mut queue, now) = queue();
    queue.add("foo", now);
    let first = queue.get(now).unwrap();
    assert_eq!(queue.add("foo", now), Added::Deferred);
    assert_eq!(queue.add("foo", now), Added::Collapsed);
    assert!(queue.get(now).is_none(), "nobody else gets it before done");
    assert!(queue.done(first.ticket, now).queued_again);
    let second = queue.get(now).unwrap();
    assert_eq!(second.key, "foo");
    assert!(!queue.done(second.ticket, now).queued_again);
    assert!(queue.get(now).is_none());
}

#[test]
fn a_key_added_while_worked_on_takes_its_place_at_done() {
    let (mut queue, now) = queue();
    queue.add("foo", now);
    let foo = queue.get(now).unwrap();
    queue.add("foo", now);
    queue.add("bar", now);
    let _ = queue.done(foo.ticket, now);
    queue.add("baz", now);
    let order: Vec<_> = std::iter::from_fn(|| queue.get(now)).map(|taken| taken.key).collect();
    assert_eq!(order, ["bar", "foo", "baz"]);
}

#[test]
fn a_shutdown_refuses_adds_and_hands_out_the_rest() {
    let (mut queue, now) = queue();
    queue.add("foo", now);
    queue.add("bar", now);
    let foo = queue.get(now).unwrap();
    queue.add("foo", now);
    queue.shut_down();
    assert_eq!(queue.add("baz", now), Added::Refused);
    assert_eq!(queue.add("foo", now), Added::Refused);
    assert!(queue.done(foo.ticket, now).queued_again);
    let order: Vec<_> = std::iter::from_fn(|| queue.get(now)).map(|taken| taken.key).collect();
    assert_eq!(order, ["bar", "foo"]);
}

// client-go: TestGarbageCollection
#[test]
fn a_finished_key_is_not_kept_alive() {
    let (mut queue, now) = queue();
    let key = Arc::new("foo");
    queue.add(key.clone(), now);
    let taken = queue.get(now).unwrap();
    drop(taken.key);
    let _ = queue.done(taken.ticket, now);
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn slots_are_used_again() {
    let (mut queue, now) = queue();
    for key in 0..1000 {
        queue.add(key, now);
        let taken = queue.get(now).unwrap();
        let _ = queue.done(taken.ticket, now);
    }
    assert_eq!((queue.slots.len(), queue.index.len()), (1, 0));
}

// client-go: TestMetrics (the durations)
#[test]
fn waits_and_runs_are_timed_from_the_add_that_led_to_them() {
    let (mut queue, start) = queue();
    queue.add("foo", start);
    let first = queue.get(start + 50 * MS).unwrap();
    assert_eq!(first.waited, 50 * MS);
    // Only the first of these adds starts the clock, and the wait includes that for the run in progress.
    queue.add("foo", start + 60 * MS);
    queue.add("foo", start + 70 * MS);
    assert_eq!(queue.done(first.ticket, start + 75 * MS).worked, 25 * MS);
    let second = queue.get(start + 90 * MS).unwrap();
    assert_eq!(second.waited, 30 * MS);
    queue.add("bar", start);
    queue.add("baz", start);
    let _bar = queue.get(start + 91 * MS).unwrap();
    let running = queue.running(start + 100 * MS);
    assert_eq!(running, Running { count: 2, unfinished: 19 * MS, longest: 10 * MS });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u8),
    Get,
    Done(usize),
    ShutDown,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0_u8..6).prop_map(Step::Add),
        6 => Just(Step::Get),
        6 => any::<usize>().prop_map(Step::Done),
        1 => Just(Step::ShutDown),
    ];
    prop::collection::vec(step, 0..80)
}

/// The rules in their plainest form: a list and two sets.
#[derive(Default)]
struct Model {
    waiting: Vec<u8>,
    dirty: BTreeSet<u8>,
    processing: BTreeSet<u8>,
    shut: bool,
}

impl Model {
    fn add(&mut self, key: u8) -> Added {
        if self.shut {
            Added::Refused
        } else if !self.dirty.insert(key) {
            Added::Collapsed
        } else if self.processing.contains(&key) {
            Added::Deferred
        } else {
            self.waiting.push(key);
            Added::Queued
        }
    }

    fn get(&mut self) -> Option<u8> {
        if self.waiting.is_empty() {
            return None;
        }
        let key = self.waiting.remove(0);
        self.dirty.remove(&key);
        assert!(self.processing.insert(key));
        Some(key)
    }

    fn done(&mut self, key: u8) -> bool {
        assert!(self.processing.remove(&key));
        let again = self.dirty.contains(&key);
        if again {
            self.waiting.push(key);
        }
        again
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_queue_agrees_with_a_list_and_two_sets(steps in steps()) {
        let (mut queue, now) = queue();
        let mut model = Model::default();
        let mut out: Vec<(u8, Ticket)> = Vec::new();
        for step in steps {
            match step {
                Step::Add(key) => prop_assert_eq!(queue.add(key, now), model.add(key)),
                Step::Get => {
                    let taken = queue.get(now);
                    prop_assert_eq!(taken.as_ref().map(|taken| taken.key), model.get());
                    out.extend(taken.map(|taken| (taken.key, taken.ticket)));
                }
                Step::Done(at) if !out.is_empty() => {
                    let (key, ticket) = out.swap_remove(at % out.len());
                    prop_assert_eq!(queue.done(ticket, now).queued_again, model.done(key));
                }
                Step::Done(_) => {}
                Step::ShutDown => {
                    queue.shut_down();
                    model.shut = true;
                }
            }
            prop_assert_eq!(queue.len(), model.waiting.len());
            prop_assert_eq!(queue.processing(), model.processing.len());
            prop_assert_eq!(queue.is_shutting_down(), model.shut);
            // Nothing is kept but what waits or is worked on.
            let kept: BTreeSet<_> = model.waiting.iter().chain(&model.processing).collect();
            prop_assert_eq!(queue.index.len(), kept.len());
        }
    }
}
