use std::time::Duration;

use foldhash::fast::FixedState;

use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);

/// A queue and its delayed keys.
struct Delaying {
    queue: Queue<&'static str>,
    delays: Delays,
}

fn queue() -> (Delaying, Tick) {
    let epoch = Clock::system().now();
    let queue = Queue::new(0, FixedState::default());
    (Delaying { queue, delays: Delays::default() }, Tick::at(epoch, epoch))
}

impl Delaying {
    fn delay(&mut self, key: &'static str, due: Tick) {
        self.delay_with(key, due, Priority::Normal);
    }

    fn delay_with(&mut self, key: &'static str, due: Tick, priority: Priority) {
        if let Some(number) = self.queue.claim(key) {
            self.delays.delay(&mut self.queue, number, due, priority, &Trigger::Requeue);
        }
    }

    fn add(&mut self, key: &'static str, now: Tick) -> Option<Added> {
        let number = self.queue.claim(key)?;
        Some(self.queue.add(number, Priority::Normal, now))
    }

    fn next(&mut self) -> Option<Tick> {
        self.delays.next(&self.queue)
    }

    fn advance(&mut self, now: Tick) -> u64 {
        self.delays.advance(&mut self.queue, now)
    }
}

/// Adds a key, hands it out and parks it.
fn park(queue: &mut Delaying, key: &'static str, until: Tick, now: Tick) {
    queue.add(key, now);
    let (taken, _) = queue.queue.get(0, now).unwrap();
    assert_eq!(taken.key, key);
    queue.delays.park(&mut queue.queue, taken.ticket, taken.priority, until, now);
}

fn released(queue: &mut Delaying, now: Tick) -> Vec<&'static str> {
    queue.advance(now);
    let mut keys = Vec::new();
    while let Some((taken, _)) = queue.queue.get(0, now) {
        keys.push(taken.key);
        queue.queue.done(taken.ticket);
    }
    keys
}

// client-go: TestSimpleQueue
#[test]
fn a_delayed_key_appears_once_and_not_before_its_time() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(50 * MS));
    assert_eq!(released(&mut queue, start.after(49 * MS)), Vec::<&str>::new());
    assert_eq!((queue.next(), queue.delays.len()), (Some(start.after(50 * MS)), 1));
    assert_eq!(released(&mut queue, start.after(50 * MS)), ["foo"]);
    assert_eq!(
        (released(&mut queue, start.after(10_000 * MS)), queue.next(), queue.delays.len()),
        (vec![], None, 0)
    );
    assert_eq!(queue.queue.slots.len(), 0);
}

// client-go: TestDeduping
#[test]
fn of_two_times_for_a_key_the_earlier_wins() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(50 * MS));
    queue.delay("foo", start.after(70 * MS));
    assert_eq!(released(&mut queue, start.after(60 * MS)), ["foo"]);
    assert_eq!(released(&mut queue, start.after(80 * MS)), Vec::<&str>::new());

    queue.delay("foo", start.after(150 * MS));
    queue.delay("foo", start.after(130 * MS));
    assert_eq!((queue.next(), queue.delays.len()), (Some(start.after(130 * MS)), 1));
    assert_eq!(released(&mut queue, start.after(140 * MS)), ["foo"]);
    assert_eq!(released(&mut queue, start.after(200 * MS)), Vec::<&str>::new());
}

// client-go: TestAddTwoFireEarly
#[test]
fn a_shorter_delay_that_comes_later_is_released_first() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(1000 * MS));
    queue.delay("bar", start.after(50 * MS));
    assert_eq!(released(&mut queue, start.after(60 * MS)), ["bar"]);
    queue.delay("baz", start.after(2060 * MS));
    assert_eq!(released(&mut queue, start.after(1000 * MS)), ["foo"]);
    assert_eq!(released(&mut queue, start.after(2060 * MS)), ["baz"]);
}

// client-go: TestCopyShifting
#[test]
fn after_a_jump_in_time_keys_come_out_in_the_order_of_their_times() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(1000 * MS));
    queue.delay("bar", start.after(500 * MS));
    queue.delay("baz", start.after(250 * MS));
    assert_eq!(released(&mut queue, start.after(2000 * MS)), ["baz", "bar", "foo"]);
}

#[test]
fn equal_times_are_released_in_the_order_in_which_they_were_given() {
    let (mut queue, start) = queue();
    queue.delay("c", start.after(9 * MS));
    for key in ["d", "a", "b"] {
        queue.delay(key, start.after(5 * MS));
    }
    // Moved to an earlier time, it comes after those that already had that time.
    queue.delay("c", start.after(5 * MS));
    // Delayed to the same time again, it keeps its place.
    queue.delay("d", start.after(5 * MS));
    assert_eq!(released(&mut queue, start.after(5 * MS)), ["d", "a", "b", "c"]);
}

#[test]
fn times_that_were_replaced_are_cleared_away_once_they_are_many() {
    let (mut queue, start) = queue();
    let mut most = 0;
    // Ever earlier: each time replaces the one before.
    for step in 0..10_000 {
        for key in ["a", "b", "c"] {
            queue.delay(key, start.after((20_000 - step) * MS));
            most = most.max(queue.delays.waiting.len());
        }
    }
    assert_eq!(most, 2 * 3 + SLACK, "seldom, as it goes through all of them, but often enough");
    assert_eq!((queue.delays.len(), queue.next()), (3, Some(start.after(10_001 * MS))));
    assert_eq!(released(&mut queue, start.after(10_001 * MS)), ["a", "b", "c"]);
    assert_eq!((queue.delays.len(), queue.next()), (0, None));
}

#[test]
fn the_next_due_time_is_never_one_that_was_replaced() {
    let (mut queue, start) = queue();
    queue.delay("a", start.after(5 * MS));
    queue.delay("a", start.after(2 * MS));
    queue.delay("b", start.after(9 * MS));
    assert_eq!(released(&mut queue, start.after(2 * MS)), ["a"]);
    assert_eq!(queue.next(), Some(start.after(9 * MS)));
}

#[test]
fn the_higher_priority_of_two_delayed_adds_counts_and_is_used_up() {
    let (mut queue, start) = queue();
    queue.delay_with("foo", start.after(5 * MS), Priority::High);
    queue.delay_with("foo", start.after(3 * MS), Priority::Low);
    assert_eq!(queue.advance(start.after(3 * MS)), 1);
    assert_eq!(queue.queue.depth(), [0, 0, 1]);
    let (taken, _) = queue.queue.get(0, start.after(3 * MS)).unwrap();
    queue.queue.done(taken.ticket);

    queue.delay_with("foo", start.after(9 * MS), Priority::Low);
    assert_eq!((queue.advance(start.after(9 * MS)), queue.queue.depth()), (1, [1, 0, 0]));
}

#[test]
fn a_plain_add_does_not_cancel_a_delayed_one() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(5 * MS));
    assert_eq!(queue.add("foo", start), Some(Added::Queued));
    assert_eq!(released(&mut queue, start), ["foo"]);
    assert_eq!(released(&mut queue, start.after(5 * MS)), ["foo"]);
}

#[test]
fn a_released_key_has_waited_since_its_due_time() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(5 * MS));
    assert_eq!(queue.advance(start.after(8 * MS)), 1);
    assert_eq!(queue.queue.get(0, start.after(9 * MS)).map(|(_, waited)| waited), Some(4_000_000));
}

#[test]
fn a_key_due_while_worked_on_or_waiting_is_run_once_more_at_most() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(MS));
    assert_eq!((queue.advance(start.after(MS)), queue.queue.len()), (1, 1));
    queue.delay("foo", start.after(2 * MS));
    assert_eq!((queue.advance(start.after(2 * MS)), queue.queue.len()), (0, 1), "it waits already");
    let (taken, _) = queue.queue.get(0, start.after(2 * MS)).unwrap();
    queue.delay("foo", start.after(3 * MS));
    assert_eq!((queue.advance(start.after(3 * MS)), queue.queue.len()), (1, 0), "a worker has it");
    queue.queue.done(taken.ticket);
    assert_eq!(queue.queue.len(), 1);
}

#[test]
fn a_shutdown_drops_what_is_not_due_and_takes_nothing_more() {
    let (mut queue, start) = queue();
    queue.delay("foo", start.after(5 * MS));
    queue.add("waits", start);
    queue.delay("waits", start.after(5 * MS));
    queue.queue.shut_down();
    queue.delays.clear(&mut queue.queue);
    queue.delay("bar", start.after(5 * MS));
    assert_eq!((queue.next(), queue.advance(start.after(9 * MS)), queue.queue.slots.len()), (None, 0, 1));
    assert_eq!(released(&mut queue, start), ["waits"]);
}

#[test]
fn parked_and_delayed_keys_are_released_in_the_order_of_their_times() {
    let (mut queue, start) = queue();
    park(&mut queue, "b", start.after(5 * MS), start);
    queue.delay("c", start.after(5 * MS));
    park(&mut queue, "d", start.after(5 * MS), start);
    park(&mut queue, "a", start.after(4 * MS), start);
    assert_eq!((queue.delays.len(), queue.queue.parked(), queue.next()), (1, 3, Some(start.after(4 * MS))));
    assert_eq!(queue.advance(start.after(9 * MS)), 1, "the end of a parking is no add");
    assert_eq!(released(&mut queue, start.after(9 * MS)), ["a", "b", "c", "d"]);
    assert_eq!((queue.delays.len(), queue.queue.parked(), queue.next()), (0, 0, None));
}

#[test]
fn the_next_due_time_is_never_that_of_a_key_that_was_unparked() {
    let (mut queue, start) = queue();
    park(&mut queue, "a", start.after(2 * MS), start);
    park(&mut queue, "b", start.after(3 * MS), start);
    queue.delay("c", start.after(9 * MS));
    assert_eq!(queue.next(), Some(start.after(2 * MS)));
    for key in ["a", "b"] {
        assert_eq!(queue.add(key, start), Some(Added::Collapsed), "it still needs the run of its first add");
    }
    assert_eq!(queue.next(), Some(start.after(9 * MS)));
    assert_eq!(released(&mut queue, start), ["a", "b"]);
    assert_eq!(released(&mut queue, start.after(5 * MS)), Vec::<&str>::new());
}

#[test]
fn times_of_keys_that_were_unparked_are_cleared_away_once_they_are_many() {
    let (mut queue, start) = queue();
    queue.delay("early", start.after(MS));
    for _ in 0..10_000 {
        park(&mut queue, "a", start.after(5 * MS), start);
        assert!(queue.delays.waiting.len() <= 2 * 2 + SLACK);
        queue.add("a", start);
        assert_eq!(released(&mut queue, start), ["a"]);
    }
}
