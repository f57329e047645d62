//! When does a delayed key join the queue? At its due time, earliest first, however many are waiting and without a timer for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use super::priority::Priority;
use super::queue::{Added, Queue};
use super::slots::{Number, Slots};
use super::tick::Tick;

/// The waiting room in front of a queue.
///
/// Due keys enter the queue at the start of every operation, before the operation's own key, so that the order is that of the due times
/// even when nobody was looking at the time.
#[derive(Default)]
pub(super) struct Delays {
    /// The due time of each slot that has one, and times that were replaced by earlier ones and are not cleared away yet. After an
    /// [`advance`](Self::advance) the first is none of those: the time that took its place is earlier.
    waiting: BinaryHeap<Reverse<Due>>,
    /// How many slots have a due time.
    len: usize,
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

impl Delays {
    /// Lets a claimed slot join the queue at `due`. The earlier of two times wins, and the higher of two priorities.
    pub(super) fn delay<T>(&mut self, queue: &mut Queue<T>, number: Number, due: Tick, priority: Priority) {
        let slot = &mut queue.slots[number];
        let old = slot.due;
        slot.due_priority = if old.is_some() { slot.due_priority.max(priority) } else { priority };
        if old.is_some_and(|old| old <= due) {
            return;
        }
        (slot.due, slot.due_order) = (Some(due), self.given);
        self.waiting.push(Reverse((due, self.given, number)));
        self.given = self.given.wrapping_add(1);
        self.len += usize::from(old.is_none());
        if self.waiting.len() > 2 * self.len + SLACK {
            self.waiting.retain(|entry| holds(&queue.slots, entry.0));
        }
    }

    /// Moves every key that is due at `now` into the queue; returns how many of them led to a run of their own.
    pub(super) fn advance<T: Hash + Eq + Clone>(&mut self, queue: &mut Queue<T>, now: Tick) -> u64 {
        let mut runs = 0;
        while let Some(&Reverse(first @ (due, _, number))) = self.waiting.peek() {
            let holds = holds(&queue.slots, first);
            if holds && due > now {
                break;
            }
            self.waiting.pop();
            if holds {
                self.len -= 1;
                let slot = &mut queue.slots[number];
                (slot.due, slot.backing_off) = (None, false);
                let priority = slot.due_priority;
                // As of its due time: how long it went unnoticed is part of its wait.
                runs += u64::from(queue.add(number, priority, due) != Added::Collapsed);
            }
        }
        runs
    }

    /// When the next key becomes due.
    pub(super) fn next(&self) -> Option<Tick> {
        self.waiting.peek().map(|&Reverse((due, ..))| due)
    }

    /// How many keys are delayed.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Drops what is not due yet.
    pub(super) fn clear<T: Hash + Eq + Clone>(&mut self, queue: &mut Queue<T>) {
        self.len = 0;
        while let Some(Reverse(entry)) = self.waiting.pop() {
            if holds(&queue.slots, entry) {
                queue.slots[entry.2].due = None;
                queue.rest(entry.2);
            }
        }
    }
}

#[cfg(test)]
mod tests;
