//! Counts of events by outcome.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of recorded events, and of their outcomes, over all sinks of a broadcaster.
///
/// With one [`ApiSink`](super::ApiSink) for core/v1 and no other sink, every recorded event was dropped, filtered,
/// written or failed, or is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Recorded events.
    pub recorded: u64,
    /// Events that found the queue of a sink full, or all sinks ended; counted once for each such sink.
    pub dropped: u64,
    /// Events that were not written because their object had too many.
    pub filtered: u64,
    /// Writes that the API server accepted.
    pub written: u64,
    /// Writes that were given up.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) recorded: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) filtered: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Counters {
    pub(crate) fn now(&self) -> EventCounts {
        EventCounts {
            recorded: self.recorded.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            filtered: self.filtered.load(Relaxed),
            written: self.written.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}
