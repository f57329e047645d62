//! The core of the queue: each key once, with one worker at a time, in FIFO order within a priority.

use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::metrics::Running;
use super::priority::Priority;
use super::ready::Ready;
use super::slots::{List, Number, Place, Slot, Slots};
use super::tick::Tick;
use super::trigger::{Cause, Trigger};

/// The pure queue: no lock, no clock, no waiting.
///
/// A key is hashed once per round of add, get and done: after the add, its slot is known by number.
pub(super) struct Queue<T> {
    /// One for each key that is waiting, being processed or delayed, and for the last idle ones.
    pub(super) slots: Slots<T>,
    ready: Ready,
    /// The slots with a worker, in the order in which they were handed out: as many as there are tickets.
    working: List,
    /// The idle slots that are kept for their history, the longest idle first.
    idle: List,
    /// The number of idle slots to keep.
    kept: usize,
    /// Whether an idle slot was evicted: if not, every key that was ever processed is known.
    has_forgotten: bool,
    /// The number of parked keys.
    parked: usize,
    /// The number of adds by cause, in the order of [`Cause::ALL`].
    triggers: [u64; Cause::ALL.len()],
    /// Whether a key was ever added with a trigger: if not, slots keep none.
    keeps_triggers: bool,
    /// Never reset once set.
    shutting_down: bool,
}

/// The right to call [`Queue::done`] once: only `get` makes one, so only a key that was handed out can be finished.
#[derive(Debug)]
#[must_use]
pub(super) struct Ticket(Number);

impl Ticket {
    pub(super) fn number(&self) -> Number {
        self.0
    }
}

/// A key handed out to a worker.
#[derive(Debug)]
pub(super) struct Taken<T> {
    pub(super) ticket: Ticket,
    pub(super) key: T,
    pub(super) priority: Priority,
    pub(super) failures: u32,
    pub(super) parked_since: Option<Tick>,
}

/// The result of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// A run of the key was already pending.
    Collapsed,
    /// A worker has the key: it is queued again when that worker is done.
    Deferred,
    /// The key waits for a worker.
    Queued,
}

impl<T: Hash + Eq + Clone> Queue<T> {
    /// Returns an empty queue that remembers the last `kept` idle keys.
    pub(super) fn new(kept: usize, hasher: FixedState) -> Self {
        Self {
            slots: Slots::new(hasher),
            ready: Ready::new(),
            working: List::EMPTY,
            idle: List::EMPTY,
            kept,
            has_forgotten: false,
            parked: 0,
            triggers: [0; Cause::ALL.len()],
            keeps_triggers: false,
            shutting_down: false,
        }
    }

    /// Returns the slot of `key`, protected from eviction; none once the queue shuts down.
    ///
    /// The caller must record something that keeps the slot: see [`rest`](Self::rest).
    pub(super) fn claim(&mut self, key: T) -> Option<Number> {
        if self.shutting_down {
            return None;
        }
        let number = self.slots.find_or_insert(key);
        if self.slots[number].place == Place::Idle {
            self.idle.remove(&mut self.slots, number);
            self.slots[number].place = Place::Nowhere;
        }
        Some(number)
    }

    /// Records why a claimed slot is about to be added. Leaves a trigger that is no longer needed.
    #[inline(always)]
    pub(super) fn note(&mut self, number: Number, trigger: &mut Trigger, now: Tick) {
        self.triggers[trigger.cause() as usize] += 1;
        self.keeps_triggers = true;
        self.slots[number].note(trigger, now);
    }

    /// Records why the queue itself adds a slot. Slots of a queue without triggers stay small.
    pub(super) fn note_own(&mut self, number: Number, mut trigger: Trigger, now: Tick) {
        if self.keeps_triggers {
            self.note(number, &mut trigger, now);
        } else {
            self.triggers[trigger.cause() as usize] += 1;
        }
    }

    /// Returns the number of adds by cause.
    pub(super) fn triggers(&self) -> [u64; Cause::ALL.len()] {
        self.triggers
    }

    /// Marks a claimed slot as in need of a run.
    pub(super) fn add(&mut self, number: Number, priority: Priority, now: Tick) -> Added {
        let slot = &mut self.slots[number];
        match (slot.place, slot.added) {
            (Place::Ready, _) => {
                self.ready.raise(&mut self.slots, number, priority);
                Added::Collapsed
            }
            (_, Some(_)) => {
                slot.priority = slot.priority.max(priority);
                Added::Collapsed
            }
            (Place::Parked, None) => {
                self.unpark(number, priority, now);
                Added::Collapsed
            }
            (Place::Working, None) if planted!(LostAdd) => Added::Collapsed,
            (Place::Working, None) => {
                (slot.added, slot.priority) = (Some(now), priority);
                Added::Deferred
            }
            (Place::Nowhere | Place::Idle, None) => {
                (slot.added, slot.priority) = (Some(now), priority);
                self.make_ready(number);
                Added::Queued
            }
        }
    }

    /// Makes a parked key ready, with the priority it was parked with or a higher one.
    pub(super) fn unpark(&mut self, number: Number, priority: Priority, now: Tick) {
        let slot = &mut self.slots[number];
        let Some(parking) = slot.parked() else { return };
        (slot.priority, slot.added) = (priority.max(parking.priority), Some(now));
        self.parked -= 1;
        self.make_ready(number);
    }

    fn make_ready(&mut self, number: Number) {
        self.slots[number].place = Place::Ready;
        self.ready.push(&mut self.slots, number);
    }

    /// Hands out the next key to the worker of that number; returns the nanoseconds since it was added, too. Continues during a shutdown, until no key is
    /// waiting.
    pub(super) fn get(&mut self, worker: u16, now: Tick) -> Option<(Taken<T>, u64)> {
        let number = self.ready.pop(&mut self.slots)?;
        self.working.push(&mut self.slots, number);
        let slot = &mut self.slots[number];
        slot.place = Place::Working;
        (slot.started, slot.worker) = (Some(now), worker);
        let waited = slot.added.take().map_or(0, |added| now.since(added));
        slot.unparked = false;
        let parked_since = slot.take();
        let (priority, failures, key) = (slot.priority, slot.failures, slot.key.clone()?);
        Some((Taken { ticket: Ticket(number), key, priority, failures, parked_since }, waited))
    }

    /// Takes a key back from its worker. A key that was added meanwhile is queued now, even during a shutdown.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one done")]
    pub(super) fn done(&mut self, ticket: Ticket) {
        let Ticket(number) = ticket;
        self.working.remove(&mut self.slots, number);
        let slot = &mut self.slots[number];
        (slot.place, slot.started) = (Place::Nowhere, None);
        if slot.added.is_some() {
            self.make_ready(number);
        } else {
            self.rest(number);
        }
    }

    /// Takes a key back from a worker that could not begin; returns whether it is parked. It is ready instead if it was
    /// added or unparked while the worker had it, with the higher priority of both.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one park")]
    pub(super) fn park(
        &mut self,
        ticket: Ticket,
        priority: Priority,
        until: Tick,
        order: u32,
        now: Tick,
    ) -> bool {
        let Ticket(number) = ticket;
        self.working.remove(&mut self.slots, number);
        let slot = &mut self.slots[number];
        slot.started = None;
        slot.park(until, order, priority, now);
        slot.place = Place::Parked;
        self.parked += 1;
        let (added, added_priority) = (slot.added, slot.priority);
        let stays = added.is_none() && !slot.unparked && until > now;
        if !stays {
            if added.is_none() {
                self.note_own(number, Trigger::OwnWrites, now);
            }
            let priority = added.map_or(priority, |_| added_priority);
            self.unpark(number, priority, added.unwrap_or(now));
        }
        stays
    }

    /// Drops a parked key.
    pub(super) fn abandon(&mut self, number: Number) {
        self.parked -= 1;
        let slot = &mut self.slots[number];
        slot.place = Place::Nowhere;
        slot.end_parking();
        self.rest(number);
    }

    /// Releases a slot that has nothing pending. If the outcome of its last runs is known, it is kept for a while.
    pub(super) fn rest(&mut self, number: Number) {
        let slot = &mut self.slots[number];
        if slot.place != Place::Nowhere || slot.due.is_some() {
            return;
        }
        if slot.last_success.is_none() && slot.last_error().is_none() {
            return self.slots.remove(number);
        }
        slot.place = Place::Idle;
        self.idle.push(&mut self.slots, number);
        if self.idle.len() > self.kept
            && let Some(oldest) = self.idle.first()
        {
            self.idle.remove(&mut self.slots, oldest);
            self.slots.remove(oldest);
            self.has_forgotten = true;
        }
    }

    /// Refuses every add from now on.
    pub(super) fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Returns the number of keys that wait for a worker.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of keys with a worker.
    pub(super) fn working(&self) -> usize {
        self.working.len()
    }

    /// Returns the number of parked keys.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Returns the number of needed runs that have not begun, by priority. This is more than [`len`](Self::len): it
    /// includes those of keys with a worker.
    pub(super) fn depth(&self) -> [usize; Priority::ALL.len()] {
        let mut depth = Priority::ALL.map(|priority| self.ready.depth(priority));
        for slot in self.working.iter(&self.slots).filter(|slot| slot.added.is_some()) {
            depth[slot.priority as usize] += 1;
        }
        depth
    }

    /// Returns the time since which the key has been ready that has been for longest.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.ready.oldest(&self.slots)
    }

    /// Returns the number of keys that are handed out before a waiting one.
    pub(super) fn before(&self, number: Number) -> Option<usize> {
        (self.slots[number].place == Place::Ready).then(|| self.ready.before(&self.slots, number))
    }

    /// Returns whether the history of a key was ever dropped to make room.
    pub(super) fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Iterates over the slots with a worker, the one that has had it for longest first.
    pub(super) fn with_workers(&self) -> impl Iterator<Item = &Slot<T>> {
        self.working.iter(&self.slots)
    }

    /// Returns the ages of the keys with a worker.
    pub(super) fn running(&self, now: Tick) -> Running {
        let started = self.working.iter(&self.slots).filter_map(|slot| slot.started);
        let ages = started.map(|started| Duration::from_nanos(now.since(started)));
        ages.fold(Running::default(), |sum, age| Running {
            count: sum.count + 1,
            unfinished: sum.unfinished + age,
            longest: sum.longest.max(age),
        })
    }
}

#[cfg(test)]
mod tests;
