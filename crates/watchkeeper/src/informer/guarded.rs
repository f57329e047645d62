//! A guard around metrics hooks: a panic of a hook is reported, and the informer goes on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::metrics::{InformerMetrics, Observed};
use crate::reflector::{ListReason, ReflectorMetrics};
use crate::report::Reporter;
use crate::wire::WatchEventType;

/// The user's hooks, behind a guard.
pub(super) struct Guarded {
    pub(super) metrics: Arc<dyn InformerMetrics>,
    /// The informer's name in reports.
    pub(super) name: String,
    pub(super) reporter: Reporter,
}

impl Guarded {
    fn call(&self, call: impl FnOnce(&dyn InformerMetrics)) {
        self.reporter.guard("metrics", &self.name, || call(&*self.metrics));
    }
}

impl InformerMetrics for Guarded {
    fn made(&self, informer: Weak<dyn Observed>) {
        self.call(|metrics| metrics.made(informer));
    }

    fn listed(&self, reason: ListReason, items: usize) {
        self.call(|metrics| metrics.listed(reason, items));
    }

    fn event(&self, event: &WatchEventType) {
        self.call(|metrics| metrics.event(event));
    }

    fn history_rewritten(&self) {
        self.call(|metrics| metrics.history_rewritten());
    }

    fn verified(&self, differences: usize) {
        self.call(|metrics| metrics.verified(differences));
    }

    fn queued(&self, entries: usize) {
        self.call(|metrics| metrics.queued(entries));
    }

    fn processed(&self, deltas: usize, took: Duration) {
        self.call(|metrics| metrics.processed(deltas, took));
    }
}

impl ReflectorMetrics for Guarded {
    fn listed(&self, reason: ListReason, items: usize) {
        InformerMetrics::listed(self, reason, items);
    }

    fn event(&self, event: &WatchEventType) {
        InformerMetrics::event(self, event);
    }

    fn history_rewritten(&self) {
        InformerMetrics::history_rewritten(self);
    }

    fn verified(&self, differences: usize) {
        InformerMetrics::verified(self, differences);
    }
}
