//! The caches of a manager, found by the kind of their objects.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;

use super::selection::Matcher;
use crate::informer::SharedInformer;
use crate::object::{Kind, Object, ObjectName};
use crate::source::Scope;
use crate::store::{Indexer, Snapshot};

/// The index of owned kinds by the uid of the object that controls them.
pub(super) use crate::explain::CONTROLLER_INDEX;

/// The caches of a manager. Filled while controllers are registered, and read by their contexts.
#[derive(Default)]
pub(super) struct Caches {
    kinds: RwLock<BTreeMap<TypeId, Vec<Arc<dyn Any + Send + Sync>>>>,
    /// Reads that no cache can answer: mistakes of the program.
    mistakes: RwLock<BTreeSet<String>>,
}

/// The caches of one kind: one per scope and selection.
pub(super) struct KindCaches<W: Kind> {
    pub(super) kind: W::DynamicType,
    parts: RwLock<Vec<Arc<Part<W>>>>,
}

/// One cache.
pub(super) struct Part<W: Kind> {
    pub(super) scope: Scope,
    pub(super) matcher: Matcher,
    pub(super) metadata_only: bool,
    pub(super) informer: SharedInformer<W>,
}

impl Caches {
    /// The caches of a kind, if there are any.
    pub(super) fn find<W: Kind>(&self, kind: &W::DynamicType) -> Option<Arc<KindCaches<W>>> {
        let kinds = self.kinds.read();
        let mut of_type = kinds.get(&TypeId::of::<W>())?.iter().cloned().filter_map(typed::<W>);
        of_type.find(|caches| caches.kind == *kind)
    }

    pub(super) fn note_mistake(&self, mistake: &str) {
        if self.mistakes.write().insert(mistake.to_owned()) {
            tracing::error!(mistake, "the program reads what it does not watch");
        }
    }

    /// The reads that no cache could answer.
    pub(super) fn mistakes(&self) -> Vec<String> {
        self.mistakes.read().iter().cloned().collect()
    }

    /// Adds a cache to those of its kind; returns them.
    pub(super) fn add<W: Kind>(&self, kind: &W::DynamicType, part: Part<W>) -> Arc<KindCaches<W>> {
        let caches = self.find::<W>(kind).unwrap_or_else(|| {
            let made = Arc::new(KindCaches { kind: kind.clone(), parts: RwLock::default() });
            self.kinds.write().entry(TypeId::of::<W>()).or_default().push(made.clone());
            made
        });
        let is_there = caches.parts.read().iter().any(|known| known.informer.is_same(&part.informer));
        if !is_there {
            caches.parts.write().push(Arc::new(part));
        }
        caches
    }
}

fn typed<W: Kind>(caches: Arc<dyn Any + Send + Sync>) -> Option<Arc<KindCaches<W>>> {
    caches.downcast().ok()
}

impl<W: Kind> KindCaches<W> {
    pub(super) fn parts(&self) -> Vec<Arc<Part<W>>> {
        self.parts.read().clone()
    }

    /// The caches that may hold an object of that name.
    pub(super) fn covering(&self, name: &ObjectName) -> Vec<Arc<Part<W>>> {
        let parts = self.parts.read();
        parts.iter().filter(|part| part.covers(name)).cloned().collect()
    }
}

impl<W: Kind> Part<W> {
    fn covers(&self, name: &ObjectName) -> bool {
        self.scope.namespace().is_none_or(|namespace| name.namespace() == Some(namespace))
    }

    pub(super) fn store(&self) -> &Indexer<W> {
        self.informer.indexer()
    }
}

/// The cached objects of one kind, for mappings: the state when the mapping is called.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use watchkeeper::controller::{IndexKey, View};
/// # use watchkeeper::{Object, ObjectName};
/// const SECRET: IndexKey<ConfigMap> = IndexKey::field("secret", "data.secret");
///
/// fn map(secret: &Object<Secret>, maps: &View<'_, ConfigMap>) -> Vec<ObjectName> {
///     maps.keys_in(&SECRET, secret.namespace(), secret.name())
/// }
/// ```
pub struct View<'a, K: Kind>(pub(super) &'a KindCaches<K>);

impl<K: Kind> View<'_, K> {
    /// The object of that name.
    pub fn get(&self, name: &ObjectName) -> Option<Object<K>> {
        self.0.covering(name).iter().find_map(|part| part.store().get(name))
    }

    /// The keys of the objects to which `index` gives `value`: those in `namespace`, or in all with `None`.
    ///
    /// The index must have been added to the controller with [`Controller::index`](super::Controller::index); others have no keys.
    pub fn keys_in(
        &self,
        index: &super::IndexKey<K>,
        namespace: Option<&str>,
        value: &str,
    ) -> Vec<ObjectName> {
        let mut keys = Vec::new();
        for snapshot in self.snapshots() {
            let Ok(found) = snapshot.by_index(index.name(), value) else { continue };
            let found = found.filter(|object| namespace.is_none_or(|name| object.namespace() == Some(name)));
            keys.extend(found.map(Object::key));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The keys of all objects.
    pub fn keys(&self) -> Vec<ObjectName> {
        let mut keys: Vec<_> =
            self.snapshots().flat_map(|snapshot| snapshot.keys().collect::<Vec<_>>()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn snapshots(&self) -> impl Iterator<Item = Snapshot<K>> {
        self.0.parts().into_iter().map(|part| part.store().snapshot())
    }
}

impl<K: Kind> std::fmt::Debug for View<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("kind", &K::kind(&self.0.kind)).finish_non_exhaustive()
    }
}
