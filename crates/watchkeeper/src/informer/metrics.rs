//! Metrics of informers: narrow hooks, which do nothing by default, and statistics to read at any time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::object::{Kind, ResourceVersion};
use crate::reflector::{Cause, ListReason};
use crate::wire::WatchEventType;

/// The identity of an informer in metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InformerId {
    /// The program's name for this informer, or for all of its informers.
    pub name: String,
    /// The kind's API group; empty for the core group.
    pub group: String,
    /// The kind's API version.
    pub version: String,
    /// The kind's plural name.
    pub resource: String,
}

impl InformerId {
    /// Returns the identity of the informer of kind `K` among those called `name`.
    pub fn new<K: Kind>(name: &str, kind: &K::DynamicType) -> Self {
        Self {
            name: name.to_owned(),
            group: K::group(kind).into_owned(),
            version: K::version(kind).into_owned(),
            resource: K::plural(kind).into_owned(),
        }
    }
}

/// Provides the hooks of every informer.
pub trait MetricsProvider: Send + Sync + 'static {
    /// Returns the hooks of one informer.
    fn informer(&self, id: InformerId) -> Arc<dyn InformerMetrics>;
}

/// Statistics of an informer at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InformerStats {
    /// The number of queued entries.
    pub queued: usize,
    /// The number of queued bytes.
    pub queued_bytes: usize,
    /// The number of objects in the store.
    pub objects: usize,
    /// The bytes of the store's objects, without decoded values.
    pub bytes: usize,
    /// The version that the store reflects.
    pub version: ResourceVersion,
    /// The number of decodes.
    pub decodes: u64,
    /// The time since the last answer or event of the server; none before the first.
    pub silent_for: Option<Duration>,
    /// The time for which the cache has been degraded, and the cause; none while it is not.
    pub degraded: Option<(Duration, Cause)>,
    /// The handlers.
    pub handlers: Vec<HandlerStats>,
}

/// The backlog of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStats {
    /// The handler's name.
    pub name: String,
    /// The number of pending notifications.
    pub pending: usize,
    /// The number of notifications that were merged into a later one, or cancelled.
    pub coalesced: u64,
    /// The number of panics.
    pub panics: u64,
    /// The number of callbacks that blocked their thread for more than 100 ms.
    pub slow: u64,
}

/// A source of [`InformerStats`].
pub trait Observed: Send + Sync {
    /// Returns the current statistics.
    fn stats(&self) -> InformerStats;
}

/// Hooks on the path from the API server into one informer's cache. They must not block.
pub trait InformerMetrics: Send + Sync + 'static {
    /// Called when the informer was built. Its statistics can be read as long as it lives.
    fn made(&self, informer: Weak<dyn Observed>) {
        let _ = informer;
    }

    /// Called when a list is complete.
    fn listed(&self, reason: ListReason, items: usize) {
        let _ = (reason, items);
    }

    /// Called when a watch event was read.
    fn event(&self, event: &WatchEventType) {
        let _ = event;
    }

    /// Called when the server's history turned out to be rewritten, for example by a restore from a backup. A relist
    /// follows, or has just shown it.
    fn history_rewritten(&self) {}

    /// Called when the cache was compared with the server, with the number of objects that differed. A relist follows if
    /// there are any.
    fn verified(&self, differences: usize) {
        let _ = differences;
    }

    /// Called with the number of queued entries.
    fn queued(&self, entries: usize) {
        let _ = entries;
    }

    /// Called when deltas were applied to the store and put into the handlers' mailboxes.
    fn processed(&self, deltas: usize, took: Duration) {
        let _ = (deltas, took);
    }
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl InformerMetrics for NoMetrics {}
