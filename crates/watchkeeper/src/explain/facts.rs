//! What is known of one object, from which the verdict follows.

use std::time::Duration;

use super::view::{KindView, LeaderView, ProgramPhase};
use crate::clock::Instant;
use crate::object::{ObjectName, ResourceVersion};
use crate::reflector::{Cause, Phase};
use crate::source::{Scope, Selection};
use crate::workqueue::KeyRecord;

/// Everything that the verdict on one key depends on.
pub(super) struct Facts<'a> {
    pub(super) now: Instant,
    pub(super) controller: &'a str,
    pub(super) kind: &'a KindView,
    pub(super) key: &'a ObjectName,
    pub(super) phase: ProgramPhase,
    pub(super) leader: Option<&'a LeaderView>,
    pub(super) is_paused: bool,
    pub(super) workers: usize,
    /// The first keys with a worker, the one that has had it for longest first, and since when.
    pub(super) runs: Vec<(ObjectName, Instant)>,
    /// Whether the queue has ever dropped the history of a key.
    pub(super) has_forgotten: bool,
    /// The watches of the kind.
    pub(super) watches: Vec<WatchFacts>,
    /// Those of the other kinds that the controller depends on.
    pub(super) others: Vec<WatchFacts>,
    /// Those of other controllers whose caches have not synced, while the program starts.
    pub(super) blockers: &'a [WatchFacts],
    pub(super) has_predicates: bool,
    /// The finalizer of the controller.
    pub(super) finalizer: Option<&'a str>,
    pub(super) object: Option<ObjectFacts>,
    pub(super) record: Option<KeyRecord<ObjectName>>,
    pub(super) writes: Vec<PendingWrite>,
}

/// A watch of one kind in one scope.
#[derive(Clone, Debug)]
pub(crate) struct WatchFacts {
    /// The plural name of the kind, with its scope and selection.
    pub(super) name: String,
    /// The plural name and the group.
    pub(super) resource: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) labels: String,
    pub(super) fields: String,
    pub(super) phase: Phase,
    pub(super) has_synced: bool,
    /// Since when, why, and the last error.
    pub(super) degraded: Option<(Instant, Cause, String)>,
    /// The number of changes that wait for the cache or for one of its handlers.
    pub(super) backlog: usize,
}

impl WatchFacts {
    /// Returns a watch that is well.
    pub(super) fn of(kind: &KindView, scope: &Scope, selection: &Selection) -> Self {
        let (resource, namespace) = (kind.resource(), scope.namespace().map(str::to_owned));
        let place = namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        Self {
            name: format!("{resource}{place}"),
            resource,
            kind: kind.kind.clone(),
            namespace,
            labels: selection.labels.clone(),
            fields: selection.fields.clone(),
            phase: Phase::default(),
            has_synced: true,
            degraded: None,
            backlog: 0,
        }
    }

    pub(super) fn covers(&self, key: &ObjectName) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
    }
}

/// What the cache says of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectFacts {
    pub(crate) version: ResourceVersion,
    pub(crate) uid: String,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    /// Why it cannot be decoded, if it cannot.
    pub(crate) undecodable: Option<String>,
}

/// A write that a cache has not seen; see [`OpenWrites`](super::OpenWrites).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PendingWrite {
    /// The kind of the object, if it is known.
    pub kind: String,
    /// The object.
    pub name: ObjectName,
    /// The version that the server answered; unset for a delete.
    pub version: ResourceVersion,
    /// The version that the cache has.
    pub cached: ResourceVersion,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// How long ago the server answered.
    pub age: Duration,
}

impl PendingWrite {
    /// Returns a write of the version that the server answered `age` ago, to an object whose cache has version `cached`.
    pub fn new(name: ObjectName, version: ResourceVersion, cached: ResourceVersion, age: Duration) -> Self {
        Self { kind: String::new(), name, version, cached, deleted: false, age }
    }
}

/// A write of a reconcile, which the caches may have seen; see [`OpenWrites::recent`](super::OpenWrites::recent).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PastWrite {
    /// The kind of the object, if it is known.
    pub kind: String,
    /// The object.
    pub name: ObjectName,
    /// The version that the server answered; unset for a delete.
    pub version: ResourceVersion,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// How long ago the server answered.
    pub age: Duration,
}

impl PastWrite {
    /// Returns a write of the version that the server answered `age` ago.
    pub fn new(name: ObjectName, version: ResourceVersion, age: Duration) -> Self {
        Self { kind: String::new(), name, version, deleted: false, age }
    }
}

/// The keys that a change of a related object reconciles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) keys: Vec<ObjectName>,
    /// What the mapping said when it panicked, if it did.
    pub(crate) panic: Option<String>,
}

/// What is known of an object whose changes lead to reconciles of others.
pub(super) struct RelatedFacts<'a> {
    pub(super) now: Instant,
    pub(super) controller: &'a str,
    /// The kind that the controller reconciles.
    pub(super) main: &'a KindView,
    pub(super) kind: &'a KindView,
    pub(super) key: &'a ObjectName,
    pub(super) is_owned: bool,
    pub(super) watches: Vec<WatchFacts>,
    pub(super) object: Option<ObjectFacts>,
    pub(super) maps_to: Mapped,
}
