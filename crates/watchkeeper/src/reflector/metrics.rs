//! What a reflector counts: the lists it makes and the events it reads.

use crate::wire::WatchEventType;

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
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::First, Self::Expired, Self::VersionTooLarge, Self::ServerError, Self::KeptFailing];

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

/// Hooks of a reflector. They must not block.
pub(crate) trait ReflectorMetrics: Send + Sync + 'static {
    /// A list is complete.
    fn listed(&self, reason: ListReason, items: usize);

    /// A watch event was read.
    fn event(&self, event: &WatchEventType);
}

/// Counts nothing.
pub(crate) struct Uncounted;

impl ReflectorMetrics for Uncounted {
    fn listed(&self, _reason: ListReason, _items: usize) {}

    fn event(&self, _event: &WatchEventType) {}
}
