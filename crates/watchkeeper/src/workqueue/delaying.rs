//! Delayed keys: they join the queue at their due time, earliest first, without a timer for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use super::priority::Priority;
use super::queue::{Added, Queue, Ticket};
use super::slots::{Number, Slots};
use super::tick::Tick;
use super::trigger::Trigger;

/// The delayed keys in front of a queue.
///
/// Due keys enter the queue at the start of every operation, before the operation's own key, so that the order is that
/// of the due times even if nothing happened in between.
#[derive(Default)]
pub(super) struct Delays {
    /// The due time of each slot that has one, the end of each parking, and times that no longer hold: they were
    /// replaced by earlier ones, or the key was unparked.
    waiting: BinaryHeap<Reverse<Due>>,
    /// The number of slots with a due time.
    len: usize,
    /// The number of due times given. It wraps: only the order of equal times depends on it.
    given: u32,
}

/// The time, and for equal times the order in which they were given.
type Due = (Tick, u32, Number);

/// The number of times that no longer hold that are tolerated, in addition to as many as there are others.
const SLACK: usize = 64;

/// The event at a time that still holds. A slot can have one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A delayed add.
    Add,
    /// The end of a parking.
    Unpark,
}

/// Returns the event at that time; none if it no longer holds.
fn what<T>(slots: &Slots<T>, (due, order, number): Due) -> Option<What> {
    let slot = &slots[number];
    if slot.due == Some(due) && slot.due_order == order {
        return Some(What::Add);
    }
    let parking = slot.parked()?;
    (parking.until == due && parking.order == order).then_some(What::Unpark)
}

impl Delays {
    /// Lets a claimed slot join the queue at `due`, for a retry or a requeue. The earlier of two times wins, and the
    /// higher of two priorities.
    pub(super) fn delay<T: Hash + Eq + Clone>(
        &mut self,
        queue: &mut Queue<T>,
        number: Number,
        due: Tick,
        priority: Priority,
        trigger: &Trigger,
    ) {
        let slot = &mut queue.slots[number];
        let old = slot.due;
        slot.due_priority = if old.is_some() { slot.due_priority.max(priority) } else { priority };
        if old.is_some_and(|old| old <= due) {
            return;
        }
        (slot.due, slot.due_order) = (Some(due), self.given);
        slot.due_by_retry = matches!(trigger, Trigger::Retry);
        self.len += usize::from(old.is_none());
        self.push(queue, due, number);
    }

    /// Takes back a key that cannot be processed yet, and lets it join the queue at `until`. A delayed add of it stays.
    pub(super) fn park<T: Hash + Eq + Clone>(
        &mut self,
        queue: &mut Queue<T>,
        ticket: Ticket,
        priority: Priority,
        until: Tick,
        now: Tick,
    ) {
        let number = ticket.number();
        if queue.park(ticket, priority, until, self.given, now) && !planted!(ParkedForever) {
            self.push(queue, until, number);
        }
    }

    fn push<T: Hash + Eq + Clone>(&mut self, queue: &Queue<T>, due: Tick, number: Number) {
        self.waiting.push(Reverse((due, self.given, number)));
        self.given = self.given.wrapping_add(1);
        if self.waiting.len() > 2 * (self.len + queue.parked()) + SLACK {
            self.waiting.retain(|entry| what(&queue.slots, entry.0).is_some());
        }
    }

    /// Moves every key that is due at `now` into the queue; returns how many of them led to a run of their own.
    pub(super) fn advance<T: Hash + Eq + Clone>(&mut self, queue: &mut Queue<T>, now: Tick) -> u64 {
        let mut runs = 0;
        while let Some((due, number, what)) = self.first(queue)
            && due <= now
        {
            self.waiting.pop();
            // As of its due time: the time until now is part of its wait.
            match what {
                What::Add => {
                    self.len -= 1;
                    let slot = &mut queue.slots[number];
                    (slot.due, slot.backing_off) = (None, false);
                    let priority = slot.due_priority;
                    let trigger = if slot.due_by_retry { Trigger::Retry } else { Trigger::Requeue };
                    queue.note_own(number, trigger, due);
                    runs += u64::from(queue.add(number, priority, due) != Added::Collapsed);
                }
                What::Unpark => {
                    queue.note_own(number, Trigger::OwnWrites, due);
                    queue.unpark(number, Priority::Low, due);
                }
            }
        }
        runs
    }

    /// Returns the first time that holds, with its slot and its event. Removes the outdated ones before it.
    fn first<T: Hash + Eq + Clone>(&mut self, queue: &Queue<T>) -> Option<(Tick, Number, What)> {
        while let Some(&Reverse(first @ (due, _, number))) = self.waiting.peek() {
            if let Some(what) = what(&queue.slots, first) {
                return Some((due, number, what));
            }
            self.waiting.pop();
        }
        None
    }

    /// Returns the time at which the next key becomes due.
    pub(super) fn next<T: Hash + Eq + Clone>(&mut self, queue: &Queue<T>) -> Option<Tick> {
        self.first(queue).map(|(due, ..)| due)
    }

    /// Returns the number of delayed keys, without parked ones.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Drops the keys that are not due yet or parked.
    pub(super) fn clear<T: Hash + Eq + Clone>(&mut self, queue: &mut Queue<T>) {
        self.len = 0;
        while let Some(Reverse(entry)) = self.waiting.pop() {
            match what(&queue.slots, entry) {
                Some(What::Add) => {
                    queue.slots[entry.2].due = None;
                    queue.rest(entry.2);
                }
                Some(What::Unpark) => queue.abandon(entry.2),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
