//! The record of a key: its state, and the outcome of its last runs.

use std::error::Error;

use super::priority::Priority;
use super::slots::Slot;
use super::tick::Tick;
use super::trigger::TriggerRecord;
use crate::clock::Instant;
use crate::report::WithCauses;

/// The record of one key at one moment: the answer to "why is it not processed?".
///
/// Returned by [`RateLimitingQueue::explain`](super::RateLimitingQueue::explain). A key that was added again during
/// processing is both waiting and being processed; one of which only the last runs are known is neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord<T> {
    /// The key.
    pub key: T,
    /// The time since which it needs a run that has not begun.
    pub waiting_since: Option<Instant>,
    /// The time at which it will be added, after a delay or a backoff.
    pub delayed_until: Option<Instant>,
    /// The time at which it becomes ready at the latest, if it is [parked](super::WorkItem::park) now.
    pub parked_until: Option<Instant>,
    /// The time of the first park since its last run.
    pub parked_since: Option<Instant>,
    /// The time since which a worker has it.
    pub worked_on_since: Option<Instant>,
    /// The priority of the waiting run; if none is waiting, of the current, the delayed or the last one.
    pub priority: Priority,
    /// The number of retries since it last succeeded or was given up.
    pub retries: u32,
    /// The last failure.
    pub last_error: Option<LastError>,
    /// The time of the last success.
    pub last_success: Option<Instant>,
    /// Its last four triggers, the newest first. Adds for one run that differ only in the version of the object count
    /// as one.
    ///
    /// Empty unless keys are added with [`RateLimitingQueue::add_because`](super::RateLimitingQueue::add_because), as
    /// [`enqueue`](super::enqueue) does.
    pub triggers: Vec<TriggerRecord>,
}

/// A failed run of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError<I = Instant> {
    /// The time at which the run ended.
    pub at: I,
    /// The error and its causes; the first 512 bytes of them.
    pub message: Box<str>,
}

/// The maximum length of a message.
const MESSAGE: usize = 512;

/// Returns the message of an error, truncated.
pub(super) fn message(error: &(dyn Error + 'static)) -> Box<str> {
    let mut message = WithCauses(error).to_string();
    message.truncate(message.floor_char_boundary(MESSAGE));
    message.into()
}

impl<T: Clone> Slot<T> {
    /// Returns whether the next run is a delayed one, and none goes on.
    fn is_only_delayed(&self) -> bool {
        self.due.is_some() && self.added.is_none() && self.started.is_none()
    }

    /// Returns the record of the key; `None` for a free slot.
    pub(super) fn record(&self, epoch: Instant) -> Option<KeyRecord<T>> {
        let instant = |tick: Tick| tick.instant(epoch);
        let error = self.last_error();
        Some(KeyRecord {
            key: self.key.clone()?,
            waiting_since: self.added.map(instant),
            delayed_until: self.due.map(instant),
            parked_until: self.parked().map(|parking| instant(parking.until)),
            parked_since: self.parked_since().map(instant),
            worked_on_since: self.started.map(instant),
            priority: if self.is_only_delayed() { self.due_priority } else { self.priority },
            retries: self.failures,
            last_error: error
                .map(|error| LastError { at: instant(error.at), message: error.message.clone() }),
            last_success: self.last_success.map(instant),
            triggers: self.extra.as_ref().map_or_else(Vec::new, |extra| extra.triggers.records(epoch)),
        })
    }
}
