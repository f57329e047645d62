//! Metrics of informers: narrow hooks, which do nothing unless somebody listens, and statistics to read at any time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::object::{Kind, ResourceVersion};
use crate::reflector::ListReason;
use crate::wire::WatchEventType;

/// Which informer metrics are of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InformerId {
    /// What the program calls its informers, or this one.
    pub name: String,
    /// The kind's API group; empty for the core group.
    pub group: String,
    /// The kind's API version.
    pub version: String,
    /// The kind's plural name.
    pub resource: String,
}

impl InformerId {
    /// The informer of kind `K` among those called `name`.
    pub fn new<K: Kind>(name: &str, kind: &K::DynamicType) -> Self {
        Self {
            name: name.to_owned(),
            group: K::group(kind).into_owned(),
            version: K::version(kind).into_owned(),
            resource: K::plural(kind).into_owned(),
        }
    }
}

/// Gives every informer its hooks.
pub trait MetricsProvider: Send + Sync + 'static {
    /// The hooks of one informer.
    fn informer(&self, id: InformerId) -> Arc<dyn InformerMetrics>;
}

/// How much is where in an informer at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InformerStats {
    /// Entries that wait in the queue.
    pub queued: usize,
    /// Bytes that wait in the queue.
    pub queued_bytes: usize,
    /// Objects in the store.
    pub objects: usize,
    /// Bytes that the store's objects take, decoded values not counted.
    pub bytes: usize,
    /// The version that the store reflects.
    pub version: ResourceVersion,
    /// How often an object was decoded.
    pub decodes: u64,
    /// How long the server has not been heard of; none before the first time.
    pub silent_for: Option<Duration>,
    /// The handlers.
    pub handlers: Vec<HandlerStats>,
}

/// How far behind one handler is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStats {
    /// Its name.
    pub name: String,
    /// Notifications that wait for it.
    pub pending: usize,
    /// Notifications that were told with a later one, or not at all.
    pub coalesced: u64,
    /// How often it panicked.
    pub panics: u64,
    /// How many of its callbacks blocked their thread for more than 100 ms.
    pub slow: u64,
}

/// Something that tells its [`InformerStats`] when asked.
pub trait Observed: Send + Sync {
    /// How much is where now.
    fn stats(&self) -> InformerStats;
}

/// Hooks along the way from the API server into one informer's cache. They must not block.
pub trait InformerMetrics: Send + Sync + 'static {
    /// The informer was made: ask it for its stats when somebody wants to know, as long as it lives.
    fn made(&self, informer: Weak<dyn Observed>) {
        let _ = informer;
    }

    /// A list is complete.
    fn listed(&self, reason: ListReason, items: usize) {
        let _ = (reason, items);
    }

    /// A watch event was read.
    fn event(&self, event: &WatchEventType) {
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
