//! Faults that last for a while.

use std::collections::BTreeMap;

use watchkeeper::clock::Instant;

use crate::fault::Planned;

/// What is out of order now, and until when.
#[derive(Debug, Default)]
pub(super) struct Windows {
    unreachable: Option<(Instant, Planned)>,
    /// Resources whose requests are refused with a status.
    refused: BTreeMap<String, (u16, Instant, Planned)>,
    pub(super) stale: Option<Stale>,
}

/// A server that is behind, for one replica of the controller: reads of any version see an old one.
#[derive(Clone, Debug)]
pub(super) struct Stale {
    pub(super) replica: usize,
    pub(super) revision: u64,
    pub(super) until: Instant,
    pub(super) planned: Planned,
}

impl Windows {
    pub(super) fn refuse(&mut self, resource: &str, status: u16, until: Instant, planned: &Planned) {
        self.refused.insert(resource.to_owned(), (status, until, planned.clone()));
    }

    pub(super) fn cut_off(&mut self, until: Instant, planned: &Planned) {
        self.unreachable = Some((until, planned.clone()));
    }

    /// Why the server cannot be reached now.
    pub(super) fn is_unreachable(&self, now: Instant) -> Option<Planned> {
        let (until, planned) = self.unreachable.as_ref()?;
        (now < *until).then(|| planned.clone())
    }

    /// The status with which requests about a resource are refused now, and why.
    pub(super) fn refusal(&self, resource: &str, now: Instant) -> Option<(u16, Planned)> {
        let (status, until, planned) = self.refused.get(resource)?;
        (now < *until).then(|| (*status, planned.clone()))
    }

    pub(super) fn stale(&self, replica: usize, now: Instant) -> Option<Stale> {
        self.stale.as_ref().filter(|stale| stale.replica == replica && now < stale.until).cloned()
    }
}
