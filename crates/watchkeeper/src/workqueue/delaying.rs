//! When does a delayed key join the queue? At its due time, earliest first, however many are waiting and without a timer for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};

use foldhash::fast::FixedState;

use super::priority::Priority;
use super::queue::{Added, Queue};
use super::slots::{Number, Slots};
use super::tick::Tick;

/// The pure queue with a waiting room in front of it.
///
/// Due keys enter the queue at the start of every operation, before the operation's own key, so that the order is that of the due times
/// even when nobody was looking at the time.
pub(super) struct Delaying<T> {
    queue: Queue<T>,
    /// The due time of each slot that has one, and times that were replaced by earlier ones and are not cleared away yet. The first is
    /// none of those: the time that took its place is earlier.
    waiting: BinaryHeap<Reverse<Due>>,
    /// How many slots have a due time.
    delayed: usize,
    /// Counts the due times given. Wraps: only the order of equal times depends on it.
    given: u32,
}

/// The time, and for equal times the order in which they were given.
type Due = (Tick, u32, Number);

/// How many replaced times may wait, beside as many as there are others.
const SLACK: usize = 64;

/// Whether that is still the due time of its slot.
fn holds<T>(slots: &Slots<T>, (due, order, number): Due) -> bool {
    let slot = &slots[number];
    slot.due == Some(due) && slot.due_order == order
}

impl<T: Hash + Eq + Clone> Delaying<T> {
    pub(super) fn new(kept: usize, hasher: FixedState) -> Self {
        Self { queue: Queue::new(kept, hasher), waiting: BinaryHeap::new(), delayed: 0, given: 0 }
    }

    /// Lets a claimed slot join the queue at `due`. The earlier of two times wins, and the higher of two priorities.
    pub(super) fn delay(&mut self, number: Number, due: Tick, priority: Priority) {
        let slot = &mut self.queue.slots[number];
        let old = slot.due;
        slot.due_priority = if old.is_some() { slot.due_priority.max(priority) } else { priority };
        if old.is_some_and(|old| old <= due) {
            return;
        }
        (slot.due, slot.due_order) = (Some(due), self.given);
        self.waiting.push(Reverse((due, self.given, number)));
        self.given = self.given.wrapping_add(1);
        self.delayed += usize::from(old.is_none());
        if self.waiting.len() > 2 * self.delayed + SLACK {
            self.waiting.retain(|entry| holds(&self.queue.slots, entry.0));
        }
    }

    /// Moves every key that is due at `now` into the queue; returns how many of them led to a run of their own.
    pub(super) fn advance(&mut self, now: Tick) -> u64 {
        let mut runs = 0;
        while let Some(&Reverse(first @ (due, _, number))) = self.waiting.peek() {
            let holds = holds(&self.queue.slots, first);
            if holds && due > now {
                break;
            }
            self.waiting.pop();
            if holds {
                self.delayed -= 1;
                let slot = &mut self.queue.slots[number];
                (slot.due, slot.backing_off) = (None, false);
                let priority = slot.due_priority;
                // As of its due time: how long it went unnoticed is part of its wait.
                runs += u64::from(self.queue.add(number, priority, due) != Added::Collapsed);
            }
        }
        runs
    }

    /// When the next key becomes due.
    pub(super) fn next_due(&self) -> Option<Tick> {
        self.waiting.peek().map(|&Reverse((due, ..))| due)
    }

    /// How many keys are delayed.
    pub(super) fn delayed(&self) -> usize {
        self.delayed
    }

    /// Refuses every add from now on, and drops what is not due yet.
    pub(super) fn shut_down(&mut self) {
        self.queue.shut_down();
        self.delayed = 0;
        while let Some(Reverse(entry)) = self.waiting.pop() {
            if holds(&self.queue.slots, entry) {
                self.queue.slots[entry.2].due = None;
                self.queue.rest(entry.2);
            }
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
