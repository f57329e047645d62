//! The informers of a controller, with their types erased.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::facts::{Mapped, ObjectFacts, WatchFacts};
use super::view::KindView;
use crate::informer::{InformerStats, SharedInformer};
use crate::object::{Kind, Object, ObjectName};
use crate::report::{WithCauses, panic_message};
use crate::source::{Scope, Selection};

/// The index of objects by the uid of the object that controls them.
pub(crate) const CONTROLLER_INDEX: &str = "controller";

/// The number of objects up to which a cache without that index is searched for children.
const SEARCHED: usize = 10_000;

/// Maps an object to the keys that its changes reconcile.
pub(crate) type Mapping<W> = Box<dyn Fn(&Object<W>) -> Vec<ObjectName> + Send + Sync>;

/// An informer, in one scope and with one selection.
pub(crate) struct Watched<W: Kind> {
    pub(crate) informer: SharedInformer<W>,
    pub(crate) scope: Scope,
    pub(crate) selection: Selection,
    pub(crate) metadata_only: bool,
    /// For a related kind.
    pub(crate) mapping: Option<Mapping<W>>,
}

/// An informer of any kind.
pub(crate) trait AnyWatched: Send + Sync {
    fn kind(&self) -> KindView;
    fn is_namespaced(&self) -> bool;
    fn facts(&self) -> WatchFacts;
    fn object(&self, key: &ObjectName) -> Option<ObjectFacts>;
    fn has(&self, key: &ObjectName) -> bool;
    fn len(&self) -> usize;
    fn keys(&self) -> Vec<ObjectName>;
    /// Returns the objects that the object with this uid controls; none if the cache is too large to be searched.
    fn children(&self, uid: &str) -> Option<Vec<(ObjectName, ObjectFacts)>>;
    /// Returns the keys that a change of a cached object reconciles.
    fn maps_to(&self, key: &ObjectName) -> Mapped;
}

/// Returns the view of a kind.
pub(super) fn kind_view<K: Kind>(kind: &K::DynamicType) -> KindView {
    KindView {
        group: K::group(kind).into_owned(),
        version: K::version(kind).into_owned(),
        kind: K::kind(kind).into_owned(),
        plural: K::plural(kind).into_owned(),
    }
}

/// Returns the number of changes that wait for the cache or for the handler that is furthest behind.
pub(super) fn backlog(stats: &InformerStats) -> usize {
    stats.queued + stats.handlers.iter().map(|handler| handler.pending).max().unwrap_or(0)
}

fn facts_of<W>(object: &Object<W>) -> ObjectFacts {
    ObjectFacts {
        version: object.version().clone(),
        uid: object.uid().to_owned(),
        deleting: object.is_deleting(),
        finalizers: object.finalizers(),
        undecodable: None,
    }
}

impl<W: Kind> AnyWatched for Watched<W> {
    fn kind(&self) -> KindView {
        kind_view::<W>(self.informer.kind())
    }

    fn is_namespaced(&self) -> bool {
        Scope::Namespace("any".to_owned()).of_kind::<W>() != Scope::Cluster
    }

    fn facts(&self) -> WatchFacts {
        let health = self.informer.health();
        let degraded = health.cause().zip(health.degraded.clone());
        WatchFacts {
            phase: health.phase,
            has_synced: self.informer.has_synced(),
            degraded: degraded.map(|(cause, (since, why))| (since, cause, why)),
            backlog: backlog(&self.informer.stats()),
            ..WatchFacts::of(&self.kind(), &self.scope, &self.selection)
        }
    }

    fn object(&self, key: &ObjectName) -> Option<ObjectFacts> {
        let object = self.informer.indexer().get(key)?;
        let is_whole = !self.metadata_only && self.mapping.is_none();
        let undecodable =
            is_whole.then(|| object.get().err()).flatten().map(|error| WithCauses(&error).to_string());
        Some(ObjectFacts { undecodable, ..facts_of(&object) })
    }

    fn has(&self, key: &ObjectName) -> bool {
        self.informer.indexer().get(key).is_some()
    }

    fn len(&self) -> usize {
        self.informer.indexer().snapshot().len()
    }

    fn keys(&self) -> Vec<ObjectName> {
        self.informer.indexer().snapshot().keys().collect()
    }

    fn children(&self, uid: &str) -> Option<Vec<(ObjectName, ObjectFacts)>> {
        let snapshot = self.informer.indexer().snapshot();
        if let Ok(found) = snapshot.by_index(CONTROLLER_INDEX, uid) {
            return Some(found.map(|object| (object.key(), facts_of(object))).collect());
        }
        if snapshot.len() > SEARCHED {
            return None;
        }
        let is_child = |object: &&Object<W>| object.controller().is_some_and(|owner| owner.uid == uid);
        Some(snapshot.iter().filter(is_child).map(|object| (object.key(), facts_of(object))).collect())
    }

    fn maps_to(&self, key: &ObjectName) -> Mapped {
        let Some((object, mapping)) = self.informer.indexer().get(key).zip(self.mapping.as_ref()) else {
            return Mapped::default();
        };
        // The mapping is the author's, and may panic.
        match catch_unwind(AssertUnwindSafe(|| mapping(&object))) {
            Ok(keys) => Mapped { keys, panic: None },
            Err(payload) => {
                Mapped { keys: Vec::new(), panic: Some(panic_message(payload.as_ref()).to_owned()) }
            }
        }
    }
}
