//! Which key is worked on next, and by whom? First in, first out, each key once, never by two workers at the same time.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::metrics::Running;
use crate::clock::Instant;

/// The pure queue: no lock, no clock, no waiting.
///
/// A key is hashed once per round of add, get and done: after the add, its slot is known by number. `now` only feeds the durations that
/// come back; a caller who does not read them may pass any time.
pub(super) struct Queue<T> {
    /// Slots of the keys that wait for a worker, in the order in which they are handed out. Exactly the slots that are `Waiting`, each once.
    ready: VecDeque<usize>,
    /// Finds the slot of a key: one entry per occupied slot.
    index: HashTable<usize>,
    /// One occupied slot per key that waits or is worked on. A key that is neither has none, so the queue keeps nothing alive.
    slots: Vec<Option<Slot<T>>>,
    /// The numbers of the empty slots.
    free: Vec<usize>,
    /// How many slots are `Processing` or `Dirty`: as many as there are tickets outside.
    processing: usize,
    /// Never taken back once set.
    shutting_down: bool,
    hasher: FixedState,
}

struct Slot<T> {
    key: T,
    hash: u64,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// In `ready`.
    Waiting { added: Instant },
    /// With a worker.
    Processing { started: Instant },
    /// With a worker, and to be queued again when that worker is done.
    Dirty { started: Instant, added: Instant },
}

/// The right to call [`Queue::done`], once: only `get` makes one, so nobody can finish what was never handed out.
#[derive(Debug)]
#[must_use]
pub(super) struct Ticket(usize);

/// A key handed out to a worker.
#[derive(Debug)]
pub(super) struct Taken<T> {
    pub(super) ticket: Ticket,
    pub(super) key: T,
    /// Since the add that led to this run.
    pub(super) waited: Duration,
}

/// What became of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The queue is shutting down.
    Refused,
    /// The key was due for a run anyway.
    Collapsed,
    /// A worker has the key: it is queued again when that worker is done.
    Deferred,
    /// The key waits for a worker.
    Queued,
}

impl Added {
    /// Whether the add led to a run of its own.
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Deferred | Self::Queued)
    }
}

/// What became of a done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) worked: Duration,
    /// The key was added meanwhile and waits for a worker again.
    pub(super) queued_again: bool,
}

impl Finished {
    /// For a key that no worker has.
    const NOTHING: Self = Self { worked: Duration::ZERO, queued_again: false };
}

impl<T: Hash + Eq + Clone> Queue<T> {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self {
            ready: VecDeque::new(),
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            processing: 0,
            shutting_down: false,
            hasher,
        }
    }

    pub(super) fn add(&mut self, key: T, now: Instant) -> Added {
        if self.shutting_down {
            return Added::Refused;
        }
        let hash = self.hasher.hash_one(&key);
        let slots = &mut self.slots;
        let known = self
            .index
            .find(hash, |&number| slots[number].as_ref().is_some_and(|slot| slot.key == key))
            .copied();
        if let Some(slot) = known.and_then(|number| slots[number].as_mut()) {
            return match slot.state {
                State::Waiting { .. } | State::Dirty { .. } => Added::Collapsed,
                State::Processing { started } => {
                    slot.state = State::Dirty { started, added: now };
                    Added::Deferred
                }
            };
        }
        let slot = Some(Slot { key, hash, state: State::Waiting { added: now } });
        let number = match self.free.pop() {
            Some(number) => {
                slots[number] = slot;
                number
            }
            None => {
                slots.push(slot);
                slots.len() - 1
            }
        };
        self.index.insert_unique(hash, number, |&number| slots[number].as_ref().map_or(0, |slot| slot.hash));
        self.ready.push_back(number);
        Added::Queued
    }

    /// Hands out the key that waits longest. Goes on during a shutdown, until nothing waits.
    pub(super) fn get(&mut self, now: Instant) -> Option<Taken<T>> {
        let number = self.ready.pop_front()?;
        let slot = self.slots[number].as_mut()?;
        let waited = match slot.state {
            State::Waiting { added } => now.saturating_duration_since(added),
            State::Processing { .. } | State::Dirty { .. } => return None,
        };
        slot.state = State::Processing { started: now };
        self.processing += 1;
        Some(Taken { ticket: Ticket(number), key: slot.key.clone(), waited })
    }

    /// Takes a key back from its worker. One that was added meanwhile takes its place in the order now, also during a shutdown.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one done")]
    pub(super) fn done(&mut self, ticket: Ticket, now: Instant) -> Finished {
        let Ticket(number) = ticket;
        let Some(slot) = self.slots[number].as_mut() else {
            return Finished::NOTHING;
        };
        let (started, queued_again) = match slot.state {
            State::Processing { started } => {
                if let Ok(entry) = self.index.find_entry(slot.hash, |&other| other == number) {
                    entry.remove();
                }
                self.slots[number] = None;
                self.free.push(number);
                (started, false)
            }
            State::Dirty { started, added } => {
                slot.state = State::Waiting { added };
                self.ready.push_back(number);
                (started, true)
            }
            State::Waiting { .. } => return Finished::NOTHING,
        };
        self.processing -= 1;
        Finished { worked: now.saturating_duration_since(started), queued_again }
    }

    /// Refuses every add from now on.
    pub(super) fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// How many keys wait for a worker.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// How many keys are with a worker.
    pub(super) fn processing(&self) -> usize {
        self.processing
    }

    /// How long the keys now with a worker have been there.
    pub(super) fn running(&self, now: Instant) -> Running {
        let ages = self.slots.iter().flatten().filter_map(|slot| match slot.state {
            State::Waiting { .. } => None,
            State::Processing { started } | State::Dirty { started, .. } => {
                Some(now.saturating_duration_since(started))
            }
        });
        ages.fold(Running::default(), |sum, age| Running {
            count: sum.count + 1,
            unfinished: sum.unfinished + age,
            longest: sum.longest.max(age),
        })
    }
}

#[cfg(test)]
mod tests;
