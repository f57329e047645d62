//! What became of the events? Every one that did not arrive is counted somewhere here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many events were recorded, and what became of them, over all sinks of a broadcaster.
///
/// With one [`ApiSink`](super::ApiSink) for core/v1 and no other sink, what was recorded was dropped, filtered, written, failed, or is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Events that were recorded.
    pub recorded: u64,
    /// Events that a sink was too full to take, or that came when all sinks had ended; once for each such sink.
    pub dropped: u64,
    /// Events that were not written since their object had too many.
    pub filtered: u64,
    /// Writes that the API server took.
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
