//! What can be counted on the way into a cache? Narrow hooks, which do nothing unless somebody listens.

use std::time::Duration;

use crate::wire::EventType;

/// Why a list was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ListReason {
    /// The first one.
    First,
    /// The version to watch from was no longer served.
    Expired,
    /// The server did not know the version to watch from yet.
    VersionTooLarge,
    /// The server told of an error of its own.
    ServerError,
    /// Watches from one version kept failing.
    KeptFailing,
}

impl ListReason {
    /// A word for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Expired => "expired",
            Self::VersionTooLarge => "version_too_large",
            Self::ServerError => "server_error",
            Self::KeptFailing => "kept_failing",
        }
    }
}

/// Hooks along the way from the API server into one informer's cache. They must not block.
pub trait InformerMetrics: Send + Sync + 'static {
    /// A list is complete.
    fn listed(&self, reason: ListReason, items: usize) {
        let _ = (reason, items);
    }

    /// A watch event was read.
    fn event(&self, event: &EventType) {
        let _ = event;
    }

    /// So many entries wait in the queue.
    fn queued(&self, entries: usize) {
        let _ = entries;
    }

    /// Deltas were applied to the store and handed to the handlers' mailboxes.
    fn processed(&self, deltas: usize, took: Duration) {
        let _ = (deltas, took);
    }
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl InformerMetrics for NoMetrics {}
