//! Items and events that are unusable.

use crate::object::{IdentityError, ObjectName};
use crate::wire::{BadEvent, TooLarge};

/// An item or event that is unusable.
pub(super) struct Bad {
    /// The object, if its bytes contain a name.
    pub(super) name: Option<ObjectName>,
    pub(super) source: BoxError,
}

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Bad {
    pub(super) fn identity(&self) -> Option<&IdentityError> {
        self.source.downcast_ref()
    }
}

impl From<TooLarge> for Bad {
    fn from(large: TooLarge) -> Self {
        Self { name: large.name.clone(), source: Box::new(large) }
    }
}

impl From<BadEvent> for Bad {
    fn from(bad: BadEvent) -> Self {
        match bad {
            BadEvent::TooLarge(large) | BadEvent::DeletedTooLarge(large) => large.into(),
            BadEvent::Malformed(malformed) => Self { name: None, source: Box::new(malformed) },
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("skipped {place}")]
pub(super) struct Skipped {
    pub(super) place: String,
    #[source]
    pub(super) source: BoxError,
}

#[derive(Debug, thiserror::Error)]
#[error("skipped a bookmark without a resourceVersion")]
pub(super) struct BadBookmark;

#[derive(Debug, thiserror::Error)]
#[error("skipped an event of the unknown type {0:?}")]
pub(super) struct UnknownEvent(pub(super) String);

#[derive(Debug, thiserror::Error)]
#[error("{phase}: {why}")]
pub(super) struct Failure {
    pub(super) phase: &'static str,
    pub(super) why: String,
}
