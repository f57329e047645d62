//! Triggers: the reasons for which keys are added.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock::Instant;
use crate::informer::Change;
use crate::object::{ObjectName, ResourceVersion};

/// The reason for which a key is added to a work queue: see
/// [`RateLimitingQueue::add_because`](super::RateLimitingQueue::add_because).
///
/// It displays as a clause:
///
/// ```
/// use watchkeeper::ObjectName;
/// use watchkeeper::workqueue::{ObjectRef, Reason, Relation, Trigger};
///
/// let web = ObjectRef::new("Deployment", ObjectName::namespaced("default", "web"));
/// let trigger = Trigger::related(Relation::Owner, web, Reason::Changed, &"123".into());
/// assert_eq!(trigger.to_string(), "Deployment default/web changed (version 123)");
/// let trigger = Trigger::itself(Reason::Deleted, &"124".into());
/// assert_eq!(trigger.to_string(), "the object was deleted (version 124)");
/// assert_eq!(Trigger::Retry.to_string(), "a retry was due");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// An informer reported an object.
    Object {
        /// The relation of the object to the key.
        relation: Relation,
        /// The reason of the report.
        reason: Reason,
        /// The object; `None` if the key is its own.
        object: Option<ObjectRef>,
        /// Its resource version, if that is a number.
        version: Option<NonZeroU64>,
    },
    /// A backoff after a failure is over.
    Retry,
    /// A delayed add became due, such as that of [`WorkItem::retry_after`](super::WorkItem::retry_after).
    Requeue,
    /// A [parking](super::WorkItem::park) of the key ended, usually because its own writes have reached the caches.
    OwnWrites,
    /// The key came from outside the cluster, such as through
    /// [`Controller::events`](crate::controller::Controller::events).
    External,
    /// Somebody asked for the run, such as on the admin page.
    Manual,
}

/// The relation of an object to the key that is added for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Relation {
    /// The key is that of the object.
    Itself,
    /// The key is that of the object's owner.
    Owner,
    /// A function maps the object to the key.
    Mapping,
}

/// The reason for which an informer reports an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The object was created or changed.
    Changed,
    /// The object was deleted.
    Deleted,
    /// The object existed when the handler started.
    InitialList,
    /// The object did not change: a resync reports every object again.
    Resync,
}

impl Reason {
    /// Returns the reason for which an informer reports `change`.
    pub fn of<K>(change: &Change<'_, K>) -> Self {
        match change {
            Change::Added { in_initial_list: true, .. } => Self::InitialList,
            Change::Deleted(_) => Self::Deleted,
            change if change.is_resync() => Self::Resync,
            _ => Self::Changed,
        }
    }
}

/// A reference to an object by its kind and name. A clone copies two pointers.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectRef {
    kind: Arc<str>,
    name: ObjectName,
}

impl ObjectRef {
    /// Returns a reference to the object `name` of `kind`.
    pub fn new(kind: impl Into<Arc<str>>, name: ObjectName) -> Self {
        Self { kind: kind.into(), name }
    }

    /// Returns the name of its kind, such as `Deployment`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns its name, with its namespace if it has one.
    pub fn name(&self) -> &ObjectName {
        &self.name
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRef({self})")
    }
}

/// The cause of an object's trigger, by relation and reason.
const CAUSES: [[Cause; 4]; 3] = [
    [Cause::Itself, Cause::Itself, Cause::InitialList, Cause::Resync],
    [Cause::Owner, Cause::Owner, Cause::InitialList, Cause::Resync],
    [Cause::Mapping, Cause::Mapping, Cause::InitialList, Cause::Resync],
];

impl Trigger {
    /// Returns the trigger of a report of the key's own object.
    #[inline]
    pub fn itself(reason: Reason, version: &ResourceVersion) -> Self {
        Self::Object { relation: Relation::Itself, reason, object: None, version: number(version) }
    }

    /// Returns the trigger of a report of another object.
    #[inline]
    pub fn related(relation: Relation, object: ObjectRef, reason: Reason, version: &ResourceVersion) -> Self {
        Self::Object { relation, reason, object: Some(object), version: number(version) }
    }

    /// Returns the cause under which a queue counts this trigger.
    #[inline]
    pub fn cause(&self) -> Cause {
        match self {
            // From a table, as most adds have one of these.
            Self::Object { relation, reason, .. } => CAUSES[*relation as usize][*reason as usize],
            other => other.cause_without_object(),
        }
    }

    #[cold]
    fn cause_without_object(&self) -> Cause {
        match self {
            Self::Retry => Cause::Retry,
            Self::Requeue => Cause::Requeue,
            Self::OwnWrites => Cause::OwnWrites,
            Self::Manual => Cause::Manual,
            Self::Object { .. } | Self::External => Cause::External,
        }
    }

    /// Returns whether an object arrived that was not there in this state before.
    #[inline]
    pub(super) fn is_arrival(&self) -> bool {
        matches!(self, Self::Object { reason, .. } if *reason != Reason::Resync)
    }

    /// Returns whether both are equal, except for the version of the object.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Object { relation, reason, object, .. },
                Self::Object { relation: its_relation, reason: its_reason, object: its_object, .. },
            ) => relation == its_relation && reason == its_reason && object == its_object,
            _ => self == other,
        }
    }
}

#[inline]
fn number(version: &ResourceVersion) -> Option<NonZeroU64> {
    version.as_number().and_then(NonZeroU64::new)
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, object, version) = match self {
            Self::Object { reason, object, version, .. } => (reason, object, version),
            Self::Retry => return f.write_str("a retry was due"),
            Self::Requeue => return f.write_str("a delayed add was due"),
            Self::OwnWrites => return f.write_str("it waited for its own writes"),
            Self::External => return f.write_str("it was added from outside"),
            Self::Manual => return f.write_str("a reconcile was requested"),
        };
        match object {
            Some(object) => write!(f, "{object} ")?,
            None => f.write_str("the object ")?,
        }
        f.write_str(match reason {
            Reason::Changed => "changed",
            Reason::Deleted => "was deleted",
            Reason::InitialList => "was in the initial list",
            Reason::Resync => "was resynced",
        })?;
        version.map_or(Ok(()), |version| write!(f, " (version {version})"))
    }
}

/// A trigger of a key, and the time of its last add.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriggerRecord {
    /// The trigger, with the last version of the object.
    pub trigger: Trigger,
    /// The time of its last add.
    pub at: Instant,
    /// The number of its adds for one run: adds of a waiting key collapse.
    pub times: u32,
}

impl fmt::Display for TriggerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            1 => self.trigger.fmt(f),
            times => write!(f, "{}, {times} times", self.trigger),
        }
    }
}

/// The cause of an add, by which a queue counts triggers: see [`QueueFigures::triggers`](super::QueueFigures::triggers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The object of the key changed or was deleted.
    Itself,
    /// An object that the object of the key owns changed or was deleted.
    Owner,
    /// An object that is mapped to the key changed or was deleted.
    Mapping,
    /// An object of any relation existed when the handler started.
    InitialList,
    /// A resync reported an object of any relation.
    Resync,
    /// See [`Trigger::Retry`].
    Retry,
    /// See [`Trigger::Requeue`].
    Requeue,
    /// See [`Trigger::OwnWrites`].
    OwnWrites,
    /// See [`Trigger::External`].
    External,
    /// See [`Trigger::Manual`].
    Manual,
}

impl Cause {
    /// All causes, in the order of [`QueueFigures::triggers`](super::QueueFigures::triggers).
    pub const ALL: [Self; 10] = [
        Self::Itself,
        Self::Owner,
        Self::Mapping,
        Self::InitialList,
        Self::Resync,
        Self::Retry,
        Self::Requeue,
        Self::OwnWrites,
        Self::External,
        Self::Manual,
    ];

    /// Returns the name of the cause for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Itself => "itself",
            Self::Owner => "owner",
            Self::Mapping => "mapping",
            Self::InitialList => "initial_list",
            Self::Resync => "resync",
            Self::Retry => "retry",
            Self::Requeue => "requeue",
            Self::OwnWrites => "own_writes",
            Self::External => "external",
            Self::Manual => "manual",
        }
    }
}

#[cfg(test)]
mod tests;
