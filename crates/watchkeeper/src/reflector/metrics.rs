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
    /// Watches are not permitted, so the kind is polled.
    Polled,
    /// The kind was not served for a while.
    ServedAgain,
    /// The cache differed from the server.
    Differs,
}

impl ListReason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::First,
        Self::Expired,
        Self::VersionTooLarge,
        Self::ServerError,
        Self::KeptFailing,
        Self::Polled,
        Self::ServedAgain,
        Self::Differs,
    ];

    /// Returns the name for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Expired => "expired",
            Self::VersionTooLarge => "version_too_large",
            Self::ServerError => "server_error",
            Self::KeptFailing => "kept_failing",
            Self::Polled => "polled",
            Self::ServedAgain => "served_again",
            Self::Differs => "differs",
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

    /// Called when the cache was compared with the server, with the number of objects that differed.
    fn verified(&self, differences: usize);
}

/// Counts nothing.
pub(crate) struct Uncounted;

impl ReflectorMetrics for Uncounted {
    fn listed(&self, _reason: ListReason, _items: usize) {}

    fn event(&self, _event: &WatchEventType) {}

    fn history_rewritten(&self) {}

    fn verified(&self, _differences: usize) {}
}
