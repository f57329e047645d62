//! A guard around metrics hooks: one that panics is reported, and the informer goes on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::metrics::{InformerMetrics, Observed};
use crate::reflector::{ListReason, ReflectorMetrics};
use crate::report::Reporter;
use crate::wire::WatchEventType;

/// The hooks of somebody else, behind a guard.
pub(super) struct Guarded {
    pub(super) metrics: Arc<dyn InformerMetrics>,
    /// What reports call the informer.
    pub(super) name: String,
    pub(super) reporter: Reporter,
}

impl Guarded {
    fn tell(&self, tell: impl FnOnce(&dyn InformerMetrics)) {
        self.reporter.guard("metrics", &self.name, || tell(&*self.metrics));
    }
}

impl InformerMetrics for Guarded {
    fn made(&self, informer: Weak<dyn Observed>) {
        self.tell(|metrics| metrics.made(informer));
    }

    fn listed(&self, reason: ListReason, items: usize) {
        self.tell(|metrics| metrics.listed(reason, items));
    }

    fn event(&self, event: &WatchEventType) {
        self.tell(|metrics| metrics.event(event));
    }

    fn queued(&self, entries: usize) {
        self.tell(|metrics| metrics.queued(entries));
    }

    fn processed(&self, deltas: usize, took: Duration) {
        self.tell(|metrics| metrics.processed(deltas, took));
    }
}

impl ReflectorMetrics for Guarded {
    fn listed(&self, reason: ListReason, items: usize) {
        InformerMetrics::listed(self, reason, items);
    }

    fn event(&self, event: &WatchEventType) {
        InformerMetrics::event(self, event);
    }
}
