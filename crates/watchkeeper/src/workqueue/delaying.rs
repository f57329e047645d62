//! When does a delayed key join the queue? At its due time, earliest first, however many are waiting and without a timer for each.

use std::collections::BTreeMap;
use std::hash::Hash;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::metrics::Running;
use super::queue::{Added, Finished, Queue, Taken, Ticket};
use crate::clock::Instant;

/// The pure queue with a waiting room in front of it.
///
/// Due keys enter the queue at the start of every operation, before the operation's own key, so that the order is that of the due times
/// even when nobody was looking at the time. While the room is empty, `now` is not read here.
pub(super) struct Delaying<T> {
    queue: Queue<T>,
    /// The keys in the order in which they become due. Holds the same keys as `due`.
    waiting: BTreeMap<Due, T>,
    /// When each key becomes due: one entry per key.
    due: HashMap<T, Due, FixedState>,
    /// Counts insertions; never reset, so that no two entries of `waiting` are equal.
    inserted: u64,
}

/// The time, and for equal times the order of insertion.
type Due = (Instant, u64);

impl<T: Hash + Eq + Clone> Delaying<T> {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self {
            queue: Queue::new(hasher.clone()),
            waiting: BTreeMap::new(),
            due: HashMap::with_hasher(hasher),
            inserted: 0,
        }
    }

    /// Lets `key` join the queue at `due`. The earlier of two times wins; a later one is ignored.
    pub(super) fn delay(&mut self, key: T, due: Instant) {
        if self.queue.is_shutting_down() {
            return;
        }
        let place = (due, self.inserted);
        self.inserted += 1;
        match self.due.entry(key) {
            Entry::Occupied(entry) if entry.get().0 <= due => {}
            Entry::Occupied(mut entry) => {
                let later = entry.insert(place);
                if let Some(key) = self.waiting.remove(&later) {
                    self.waiting.insert(place, key);
                }
            }
            Entry::Vacant(entry) => {
                self.waiting.insert(place, entry.key().clone());
                entry.insert(place);
            }
        }
    }

    /// Moves every key that is due at `now` into the queue; returns how many of these adds counted, and whether a key became ready.
    pub(super) fn advance(&mut self, now: Instant) -> (usize, bool) {
        let (mut adds, mut ready) = (0, false);
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
        {
            let ((due, _), key) = first.remove_entry();
            self.due.remove(&key);
            // As of its due time: how long it went unnoticed is part of its wait.
            let added = self.queue.add(key, due);
            adds += usize::from(added.counts());
            ready |= added == Added::Queued;
        }
        (adds, ready)
    }

    /// When the next key becomes due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    /// See [`Queue::add`]. A delayed add of the same key stays where it is.
    pub(super) fn add(&mut self, key: T, now: Instant) -> Added {
        self.queue.add(key, now)
    }

    pub(super) fn get(&mut self, now: Instant) -> Option<Taken<T>> {
        self.queue.get(now)
    }

    pub(super) fn done(&mut self, ticket: Ticket, now: Instant) -> Finished {
        self.queue.done(ticket, now)
    }

    /// Refuses every add from now on, and drops what is not due yet.
    pub(super) fn shut_down(&mut self) {
        self.queue.shut_down();
        self.waiting = BTreeMap::new();
        self.due.clear();
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// How many keys wait for a worker; those not yet moved here by [`advance`](Self::advance) are not counted.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn processing(&self) -> usize {
        self.queue.processing()
    }

    pub(super) fn running(&self, now: Instant) -> Running {
        self.queue.running(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    const MS: Duration = Duration::from_millis(1);

    fn queue() -> (Delaying<&'static str>, Instant) {
        (Delaying::new(FixedState::default()), Clock::system().now())
    }

    fn released(queue: &mut Delaying<&'static str>, now: Instant) -> Vec<&'static str> {
        queue.advance(now);
        let mut keys = Vec::new();
        while let Some(taken) = queue.get(now) {
            keys.push(taken.key);
            let _ = queue.done(taken.ticket, now);
        }
        keys
    }

    // client-go: TestSimpleQueue
    #[test]
    fn a_delayed_key_appears_once_and_not_before_its_time() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 50 * MS);
        assert_eq!(released(&mut queue, start + 49 * MS), Vec::<&str>::new());
        assert_eq!(queue.next_due(), Some(start + 50 * MS));
        assert_eq!(released(&mut queue, start + 50 * MS), ["foo"]);
        assert_eq!((released(&mut queue, start + 10_000 * MS), queue.next_due()), (vec![], None));
    }

    // client-go: TestDeduping
    #[test]
    fn of_two_times_for_a_key_the_earlier_wins() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 50 * MS);
        queue.delay("foo", start + 70 * MS);
        assert_eq!(released(&mut queue, start + 60 * MS), ["foo"]);
        assert_eq!(released(&mut queue, start + 80 * MS), Vec::<&str>::new());

        queue.delay("foo", start + 150 * MS);
        queue.delay("foo", start + 130 * MS);
        assert_eq!(queue.next_due(), Some(start + 130 * MS));
        assert_eq!(released(&mut queue, start + 140 * MS), ["foo"]);
        assert_eq!(released(&mut queue, start + 200 * MS), Vec::<&str>::new());
    }

    // client-go: TestAddTwoFireEarly
    #[test]
    fn a_shorter_delay_that_comes_later_is_released_first() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 1000 * MS);
        queue.delay("bar", start + 50 * MS);
        assert_eq!(released(&mut queue, start + 60 * MS), ["bar"]);
        queue.delay("baz", start + 2060 * MS);
        assert_eq!(released(&mut queue, start + 1000 * MS), ["foo"]);
        assert_eq!(released(&mut queue, start + 2060 * MS), ["baz"]);
    }

    // client-go: TestCopyShifting
    #[test]
    fn after_a_jump_in_time_keys_come_out_in_the_order_of_their_times() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 1000 * MS);
        queue.delay("bar", start + 500 * MS);
        queue.delay("baz", start + 250 * MS);
        assert_eq!(released(&mut queue, start + 2000 * MS), ["baz", "bar", "foo"]);
    }

    #[test]
    fn equal_times_are_released_in_the_order_of_insertion() {
        let (mut queue, start) = queue();
        queue.delay("c", start + 9 * MS);
        for key in ["d", "a", "b"] {
            queue.delay(key, start + 5 * MS);
        }
        // Moved to an earlier time, it comes after those that had that time before.
        queue.delay("c", start + 5 * MS);
        assert_eq!(released(&mut queue, start + 5 * MS), ["d", "a", "b", "c"]);
    }

    #[test]
    fn a_plain_add_does_not_cancel_a_delayed_one() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 5 * MS);
        assert_eq!(queue.add("foo", start), Added::Queued);
        assert_eq!(released(&mut queue, start), ["foo"]);
        assert_eq!(released(&mut queue, start + 5 * MS), ["foo"]);
    }

    #[test]
    fn a_released_key_has_waited_since_its_due_time() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 5 * MS);
        assert_eq!(queue.advance(start + 8 * MS), (1, true));
        assert_eq!(queue.get(start + 9 * MS).map(|taken| taken.waited), Some(4 * MS));
    }

    #[test]
    fn a_key_due_while_worked_on_counts_but_is_not_ready() {
        let (mut queue, start) = queue();
        assert_eq!(queue.add("foo", start), Added::Queued);
        let taken = queue.get(start).unwrap();
        queue.delay("foo", start + MS);
        assert_eq!(queue.advance(start + MS), (1, false));
        assert!(queue.done(taken.ticket, start + MS).queued_again);
    }

    #[test]
    fn a_shutdown_drops_what_is_not_due_and_takes_nothing_more() {
        let (mut queue, start) = queue();
        queue.delay("foo", start + 5 * MS);
        queue.shut_down();
        queue.delay("bar", start + 5 * MS);
        assert_eq!((queue.next_due(), queue.advance(start + 9 * MS)), (None, (0, false)));
        assert!(queue.due.is_empty());
    }
}
