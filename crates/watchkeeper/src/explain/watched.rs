//! The informers of a controller, with their types erased.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::facts::{ObjectFacts, WatchFacts};
use super::view::KindView;
use crate::informer::SharedInformer;
use crate::object::{Kind, Object, ObjectName};
use crate::report::WithCauses;
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
    fn len(&self) -> usize;
    fn keys(&self) -> Vec<ObjectName>;
    /// Returns the objects that the object with this uid controls.
    fn children(&self, uid: &str) -> Vec<(ObjectName, ObjectFacts)>;
    /// Returns the keys that a change of a cached object reconciles.
    fn maps_to(&self, key: &ObjectName) -> Vec<ObjectName>;
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
        let kind = self.kind();
        let health = self.informer.health();
        let degraded = health.cause().zip(health.degraded.clone());
        let resource = if kind.group.is_empty() {
            kind.plural.clone()
        } else {
            format!("{}.{}", kind.plural, kind.group)
        };
        let namespace = self.scope.namespace().map(str::to_owned);
        let place = namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        WatchFacts {
            name: format!("{resource}{place}"),
            resource,
            kind: kind.kind,
            namespace,
            labels: self.selection.labels.clone(),
            fields: self.selection.fields.clone(),
            phase: health.phase,
            has_synced: self.informer.has_synced(),
            degraded: degraded.map(|(cause, (since, why))| (since, cause, why)),
        }
    }

    fn object(&self, key: &ObjectName) -> Option<ObjectFacts> {
        let object = self.informer.indexer().get(key)?;
        let is_whole = !self.metadata_only && self.mapping.is_none();
        let undecodable =
            is_whole.then(|| object.get().err()).flatten().map(|error| WithCauses(&error).to_string());
        Some(ObjectFacts { undecodable, ..facts_of(&object) })
    }

    fn len(&self) -> usize {
        self.informer.indexer().snapshot().len()
    }

    fn keys(&self) -> Vec<ObjectName> {
        self.informer.indexer().snapshot().keys().collect()
    }

    fn children(&self, uid: &str) -> Vec<(ObjectName, ObjectFacts)> {
        let snapshot = self.informer.indexer().snapshot();
        if let Ok(found) = snapshot.by_index(CONTROLLER_INDEX, uid) {
            return found.map(|object| (object.key(), facts_of(object))).collect();
        }
        if snapshot.len() > SEARCHED {
            return Vec::new();
        }
        let is_child = |object: &&Object<W>| object.controller().is_some_and(|owner| owner.uid == uid);
        snapshot.iter().filter(is_child).map(|object| (object.key(), facts_of(object))).collect()
    }

    fn maps_to(&self, key: &ObjectName) -> Vec<ObjectName> {
        let Some((object, mapping)) = self.informer.indexer().get(key).zip(self.mapping.as_ref()) else {
            return Vec::new();
        };
        // The mapping is the author's, and may panic.
        let mut keys = catch_unwind(AssertUnwindSafe(|| mapping(&object))).unwrap_or_default();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
