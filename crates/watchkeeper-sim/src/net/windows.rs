//! Faults that last for a while.

use std::collections::BTreeMap;

use watchkeeper::clock::Instant;

/// What is out of order now, and until when.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub(super) unreachable_until: Option<Instant>,
    /// Resources whose requests are refused with a status.
    refused: BTreeMap<String, (u16, Instant)>,
    pub(super) stale: Option<Stale>,
}

/// A server that is behind, for one replica of the controller: reads of any version see an old one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    pub(super) replica: usize,
    pub(super) revision: u64,
    pub(super) until: Instant,
}

impl Windows {
    pub(super) fn refuse(&mut self, resource: &str, status: u16, until: Instant) {
        self.refused.insert(resource.to_owned(), (status, until));
    }

    pub(super) fn is_unreachable(&self, now: Instant) -> bool {
        self.unreachable_until.is_some_and(|until| now < until)
    }

    /// The status with which requests about a resource are refused now.
    pub(super) fn refusal(&self, resource: &str, now: Instant) -> Option<u16> {
        self.refused.get(resource).filter(|(_, until)| now < *until).map(|(status, _)| *status)
    }

    pub(super) fn stale(&self, replica: usize, now: Instant) -> Option<Stale> {
        self.stale.filter(|stale| stale.replica == replica && now < stale.until)
    }
}
