use std::time::Duration;

use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);

fn queue() -> (Delaying<&'static str>, Tick) {
    let epoch = Clock::system().now();
    (Delaying::new(0, FixedState::default()), Tick::at(epoch, epoch))
}

impl Delaying<&'static str> {
    fn delay_key(&mut self, key: &'static str, due: Tick) {
        if let Some(number) = self.claim(key) {
            self.delay(number, due, Priority::Normal);
        }
    }
}

fn released(queue: &mut Delaying<&'static str>, now: Tick) -> Vec<&'static str> {
    queue.advance(now);
    let mut keys = Vec::new();
    while let Some((taken, _)) = queue.get(now) {
        keys.push(taken.key);
        queue.done(taken.ticket, now);
    }
    keys
}

// client-go: TestSimpleQueue
#[test]
fn a_delayed_key_appears_once_and_not_before_its_time() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(50 * MS));
    assert_eq!(released(&mut queue, start.after(49 * MS)), Vec::<&str>::new());
    assert_eq!((queue.next_due(), queue.delayed()), (Some(start.after(50 * MS)), 1));
    assert_eq!(released(&mut queue, start.after(50 * MS)), ["foo"]);
    assert_eq!(
        (released(&mut queue, start.after(10_000 * MS)), queue.next_due(), queue.delayed()),
        (vec![], None, 0)
    );
    assert_eq!(queue.slots.len(), 0);
}

// client-go: TestDeduping
#[test]
fn of_two_times_for_a_key_the_earlier_wins() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(50 * MS));
    queue.delay_key("foo", start.after(70 * MS));
    assert_eq!(released(&mut queue, start.after(60 * MS)), ["foo"]);
    assert_eq!(released(&mut queue, start.after(80 * MS)), Vec::<&str>::new());

    queue.delay_key("foo", start.after(150 * MS));
    queue.delay_key("foo", start.after(130 * MS));
    assert_eq!((queue.next_due(), queue.delayed()), (Some(start.after(130 * MS)), 1));
    assert_eq!(released(&mut queue, start.after(140 * MS)), ["foo"]);
    assert_eq!(released(&mut queue, start.after(200 * MS)), Vec::<&str>::new());
}

// client-go: TestAddTwoFireEarly
#[test]
fn a_shorter_delay_that_comes_later_is_released_first() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(1000 * MS));
    queue.delay_key("bar", start.after(50 * MS));
    assert_eq!(released(&mut queue, start.after(60 * MS)), ["bar"]);
    queue.delay_key("baz", start.after(2060 * MS));
    assert_eq!(released(&mut queue, start.after(1000 * MS)), ["foo"]);
    assert_eq!(released(&mut queue, start.after(2060 * MS)), ["baz"]);
}

// client-go: TestCopyShifting
#[test]
fn after_a_jump_in_time_keys_come_out_in_the_order_of_their_times() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(1000 * MS));
    queue.delay_key("bar", start.after(500 * MS));
    queue.delay_key("baz", start.after(250 * MS));
    assert_eq!(released(&mut queue, start.after(2000 * MS)), ["baz", "bar", "foo"]);
}

#[test]
fn equal_times_are_released_in_the_order_in_which_they_were_given() {
    let (mut queue, start) = queue();
    queue.delay_key("c", start.after(9 * MS));
    for key in ["d", "a", "b"] {
        queue.delay_key(key, start.after(5 * MS));
    }
    // Moved to an earlier time, it comes after those that had that time before.
    queue.delay_key("c", start.after(5 * MS));
    // Told the same time again, it keeps its place.
    queue.delay_key("d", start.after(5 * MS));
    assert_eq!(released(&mut queue, start.after(5 * MS)), ["d", "a", "b", "c"]);
}

#[test]
fn times_that_were_replaced_are_cleared_away() {
    let (mut queue, start) = queue();
    // Ever earlier: each time takes the place of the one before.
    for step in 0..10_000 {
        for key in ["a", "b"] {
            queue.delay_key(key, start.after((20_000 - step) * MS));
        }
        assert!(queue.waiting.len() <= 2 * 2 + SLACK, "{} entries for two keys", queue.waiting.len());
    }
    assert_eq!((queue.delayed(), queue.next_due()), (2, Some(start.after(10_001 * MS))));
    assert_eq!(released(&mut queue, start.after(10_001 * MS)), ["a", "b"]);
    assert_eq!((queue.delayed(), queue.next_due()), (0, None));
}

#[test]
fn the_next_due_time_is_never_one_that_was_replaced() {
    let (mut queue, start) = queue();
    queue.delay_key("a", start.after(5 * MS));
    queue.delay_key("a", start.after(2 * MS));
    queue.delay_key("b", start.after(9 * MS));
    assert_eq!(released(&mut queue, start.after(2 * MS)), ["a"]);
    assert_eq!(queue.next_due(), Some(start.after(9 * MS)));
}

#[test]
fn the_higher_priority_of_two_delayed_adds_counts_and_is_used_up() {
    let (mut queue, start) = queue();
    let number = queue.claim("foo").unwrap();
    queue.delay(number, start.after(5 * MS), Priority::High);
    queue.delay(number, start.after(3 * MS), Priority::Low);
    assert_eq!(queue.advance(start.after(3 * MS)), 1);
    assert_eq!(queue.depth(), [0, 0, 1]);
    let (taken, _) = queue.get(start.after(3 * MS)).unwrap();
    queue.done(taken.ticket, start.after(3 * MS));

    let number = queue.claim("foo").unwrap();
    queue.delay(number, start.after(9 * MS), Priority::Low);
    assert_eq!((queue.advance(start.after(9 * MS)), queue.depth()), (1, [1, 0, 0]));
}

#[test]
fn a_plain_add_does_not_cancel_a_delayed_one() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(5 * MS));
    let number = queue.claim("foo").unwrap();
    assert_eq!(queue.add(number, Priority::Normal, start), Added::Queued);
    assert_eq!(released(&mut queue, start), ["foo"]);
    assert_eq!(released(&mut queue, start.after(5 * MS)), ["foo"]);
}

#[test]
fn a_released_key_has_waited_since_its_due_time() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(5 * MS));
    assert_eq!(queue.advance(start.after(8 * MS)), 1);
    assert_eq!(queue.get(start.after(9 * MS)).map(|(_, waited)| waited), Some(4_000_000));
}

#[test]
fn a_key_due_while_worked_on_or_waiting_is_run_once_more_at_most() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(MS));
    assert_eq!((queue.advance(start.after(MS)), queue.len()), (1, 1));
    queue.delay_key("foo", start.after(2 * MS));
    assert_eq!((queue.advance(start.after(2 * MS)), queue.len()), (0, 1), "it waits already");
    let (taken, _) = queue.get(start.after(2 * MS)).unwrap();
    queue.delay_key("foo", start.after(3 * MS));
    assert_eq!((queue.advance(start.after(3 * MS)), queue.len()), (1, 0), "a worker has it");
    queue.done(taken.ticket, start.after(3 * MS));
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_shutdown_drops_what_is_not_due_and_takes_nothing_more() {
    let (mut queue, start) = queue();
    queue.delay_key("foo", start.after(5 * MS));
    let number = queue.claim("waits").unwrap();
    queue.add(number, Priority::Normal, start);
    queue.delay_key("waits", start.after(5 * MS));
    queue.shut_down();
    queue.delay_key("bar", start.after(5 * MS));
    assert_eq!((queue.next_due(), queue.advance(start.after(9 * MS)), queue.slots.len()), (None, 0, 1));
    assert_eq!(released(&mut queue, start), ["waits"]);
}
