//! Metrics of a reflector: its lists and its events.

use crate::wire::WatchEventType;

/// The reason of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ListReason {
    /// The initial list.
    First,
    /// The version to watch from had expired.
    Expired,
    /// The version to watch from was newer than the server's state.
    VersionTooLarge,
    /// The server reported an internal error.
    ServerError,
    /// Watches from one version kept failing.
    KeptFailing,
}

impl ListReason {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::First, Self::Expired, Self::VersionTooLarge, Self::ServerError, Self::KeptFailing];

    /// Returns the name for labels.
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

/// Hooks of a reflector. They must not block.
pub(crate) trait ReflectorMetrics: Send + Sync + 'static {
    /// Called when a list is complete.
    fn listed(&self, reason: ListReason, items: usize);

    /// Called when a watch event was read.
    fn event(&self, event: &WatchEventType);

    /// Called when the server's history turned out to be rewritten.
    fn history_rewritten(&self);
}

/// Counts nothing.
pub(crate) struct Uncounted;

impl ReflectorMetrics for Uncounted {
    fn listed(&self, _reason: ListReason, _items: usize) {}

    fn event(&self, _event: &WatchEventType) {}

    fn history_rewritten(&self) {}
}
