//! What is known of one key? Where it is, since when, and how its last runs ended.

use std::error::Error;

use super::priority::Priority;
use super::slots::Slot;
use super::tick::Tick;
use crate::clock::Instant;
use crate::report::WithCauses;

/// What a queue knows of one key, at one moment: the answer to "why is it not worked on?".
///
/// Found by [`RateLimitingQueue::explain`](super::RateLimitingQueue::explain). A key that was added again while it is worked on both waits
/// and is worked on; one of which only the last runs are known does neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord<T> {
    /// The key.
    pub key: T,
    /// Since when it needs a run that has not begun.
    pub waiting_since: Option<Instant>,
    /// When it will be added, by a delay or a backoff.
    pub delayed_until: Option<Instant>,
    /// When it becomes ready at the latest, if it is [parked](super::WorkItem::park) now.
    pub parked_until: Option<Instant>,
    /// When it was parked first since its last run.
    pub parked_since: Option<Instant>,
    /// Since when a worker has it.
    pub worked_on_since: Option<Instant>,
    /// Of the run that waits; of the one in progress, the delayed or the last one where none waits.
    pub priority: Priority,
    /// How often it was retried since it last succeeded or was given up.
    pub retries: u32,
    /// How it last failed.
    pub last_error: Option<LastError>,
    /// When a run last succeeded.
    pub last_success: Option<Instant>,
}

/// How a run of a key failed, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError<I = Instant> {
    /// When the run ended.
    pub at: I,
    /// The error and its causes; the first 512 bytes of them.
    pub message: Box<str>,
}

/// The longest message that is kept of an error.
const MESSAGE: usize = 512;

/// The message of an error, fit to be kept.
pub(super) fn message(error: &(dyn Error + 'static)) -> Box<str> {
    let mut message = WithCauses(error).to_string();
    message.truncate(message.floor_char_boundary(MESSAGE));
    message.into()
}

impl<T: Clone> Slot<T> {
    /// The record of its key; `None` for a free slot.
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
            priority: self.priority,
            retries: self.failures,
            last_error: error
                .map(|error| LastError { at: instant(error.at), message: error.message.clone() }),
            last_success: self.last_success.map(instant),
        })
    }
}
