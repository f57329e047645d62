//! When does a delayed key join the queue? At its due time, earliest first, however many are waiting and without a timer for each.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};

use foldhash::fast::FixedState;

use super::priority::Priority;
use super::queue::{Added, Queue};
use super::slots::Number;
use super::tick::Tick;

/// The pure queue with a waiting room in front of it.
///
/// Due keys enter the queue at the start of every operation, before the operation's own key, so that the order is that of the due times
/// even when nobody was looking at the time.
pub(super) struct Delaying<T> {
    queue: Queue<T>,
    /// One entry for each slot that has a due time.
    waiting: BTreeSet<Due>,
    /// Counts the due times given. Wraps: only the order of equal times depends on it.
    given: u32,
}

/// The time, and for equal times the order in which they were given.
type Due = (Tick, u32, Number);

impl<T: Hash + Eq + Clone> Delaying<T> {
    pub(super) fn new(kept: usize, hasher: FixedState) -> Self {
        Self { queue: Queue::new(kept, hasher), waiting: BTreeSet::new(), given: 0 }
    }

    /// Lets a claimed slot join the queue at `due`. The earlier of two times wins, and the higher of two priorities.
    pub(super) fn delay(&mut self, number: Number, due: Tick, priority: Priority) {
        let slot = &mut self.queue.slots[number];
        let (old, raised) = match slot.due {
            Some(old) => (Some((old, slot.due_order, number)), slot.due_priority.max(priority)),
            None => (None, priority),
        };
        slot.due_priority = raised;
        if old.is_some_and(|(old, ..)| old <= due) {
            return;
        }
        (slot.due, slot.due_order) = (Some(due), self.given);
        if let Some(old) = old {
            self.waiting.remove(&old);
        }
        self.waiting.insert((due, self.given, number));
        self.given = self.given.wrapping_add(1);
    }

    /// Moves every key that is due at `now` into the queue; returns how many of them led to a run of their own.
    #[inline]
    pub(super) fn advance(&mut self, now: Tick) -> u64 {
        if self.waiting.is_empty() { 0 } else { self.release(now) }
    }

    fn release(&mut self, now: Tick) -> u64 {
        let mut runs = 0;
        while let Some(&first @ (due, _, number)) = self.waiting.first()
            && due <= now
        {
            self.waiting.remove(&first);
            let slot = &mut self.queue.slots[number];
            (slot.due, slot.backing_off) = (None, false);
            let priority = slot.due_priority;
            // As of its due time: how long it went unnoticed is part of its wait.
            runs += u64::from(self.queue.add(number, priority, due) != Added::Collapsed);
        }
        runs
    }

    /// When the next key becomes due.
    pub(super) fn next_due(&self) -> Option<Tick> {
        self.waiting.first().map(|&(due, ..)| due)
    }

    /// How many keys are delayed.
    pub(super) fn delayed(&self) -> usize {
        self.waiting.len()
    }

    /// Refuses every add from now on, and drops what is not due yet.
    pub(super) fn shut_down(&mut self) {
        self.queue.shut_down();
        for (_, _, number) in std::mem::take(&mut self.waiting) {
            self.queue.slots[number].due = None;
            self.queue.rest(number);
        }
    }
}

/// Adds, gets and dones go through.
impl<T> Deref for Delaying<T> {
    type Target = Queue<T>;

    fn deref(&self) -> &Queue<T> {
        &self.queue
    }
}

impl<T> DerefMut for Delaying<T> {
    fn deref_mut(&mut self) -> &mut Queue<T> {
        &mut self.queue
    }
}

#[cfg(test)]
mod tests;
