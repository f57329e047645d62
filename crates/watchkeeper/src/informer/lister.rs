//! How are typed objects read from a cache?

use std::sync::Arc;

use kube_core::{Selector, SelectorExt};

use crate::object::{DecodeError, Kind, Object, ObjectName};
use crate::store::{Indexer, NAMESPACE_INDEX};

/// Reads typed objects of one kind from an informer's store. Clones share it.
#[derive(Debug)]
pub struct Lister<K> {
    store: Indexer<K>,
    resource: Arc<str>,
}

/// Why a lister has no typed object to give.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// There is no such object in the cache.
    #[error("{resource} \"{key}\" not found")]
    NotFound {
        /// The plural name of the kind.
        resource: String,
        /// The key asked for.
        key: ObjectName,
    },
    /// The object is there, but does not fit its type.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
}

impl LookupError {
    /// Whether there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl<K: Kind> Lister<K> {
    pub(super) fn new(store: Indexer<K>, resource: String) -> Self {
        Self { store, resource: resource.into() }
    }

    /// The object of that key.
    pub fn get(&self, key: &ObjectName) -> Result<Arc<K>, LookupError> {
        Ok(self.object(key)?.get()?)
    }

    /// The object of that key, not decoded.
    pub fn object(&self, key: &ObjectName) -> Result<Object<K>, LookupError> {
        let not_found = || LookupError::NotFound { resource: self.resource.to_string(), key: key.clone() };
        self.store.get(key).ok_or_else(not_found)
    }

    /// Whether there is an object of that key.
    pub fn contains(&self, key: &ObjectName) -> bool {
        self.store.snapshot().get(key).is_some()
    }

    /// All objects that `selector` matches, in no particular order, not decoded.
    pub fn list(&self, selector: &Selector) -> Vec<Object<K>> {
        let snapshot = self.store.snapshot();
        snapshot.iter().filter(|object| matches(selector, object)).cloned().collect()
    }

    /// The objects of one namespace.
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }
}

/// Reads typed objects of one kind and namespace.
#[derive(Debug)]
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: Arc<str>,
}

impl<K: Kind> NamespaceLister<K> {
    /// The object of that name.
    pub fn get(&self, name: &str) -> Result<Arc<K>, LookupError> {
        self.lister.get(&ObjectName::namespaced(&self.namespace, name))
    }

    /// All objects that `selector` matches, in no particular order, not decoded.
    pub fn list(&self, selector: &Selector) -> Vec<Object<K>> {
        let snapshot = self.lister.store.snapshot();
        let selected = |object: &&Object<K>| matches(selector, object);
        if let Ok(here) = snapshot.by_index(NAMESPACE_INDEX, &self.namespace) {
            return here.filter(selected).cloned().collect();
        }
        let here = |object: &&Object<K>| object.namespace() == Some(&self.namespace);
        snapshot.iter().filter(here).filter(selected).cloned().collect()
    }
}

fn matches<K>(selector: &Selector, object: &Object<K>) -> bool {
    selector.selects_all() || selector.matches(&object.labels().to_map())
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), resource: self.resource.clone() }
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}
