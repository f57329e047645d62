//! Listers: typed reads from an informer cache.

use std::borrow::Cow;
use std::sync::Arc;

use kube_core::{Selector, SelectorExt};

use crate::latch::Latch;
use crate::object::{DecodeError, Kind, Listing, Object, ObjectName};
use crate::store::{Indexer, NAMESPACE_INDEX, NoIndex};

/// Reads typed objects of one kind from an informer's store. Clones share it.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_core::Selector;
/// use watchkeeper::informer::Lister;
/// use watchkeeper::store::{Indexer, namespace_index};
/// use watchkeeper::{Env, Object};
///
/// let store = Indexer::<Pod>::new(&Env::simulated(1), [namespace_index()]);
/// store.add(Object::from_json(br#"{"metadata":{"name":"a","namespace":"ns","labels":{"app":"web"}}}"#)?);
/// let pods = Lister::new(store);
/// assert_eq!(pods.namespace("ns").get("a")?.metadata.name.as_deref(), Some("a"));
/// assert_eq!(pods.list(&Selector::from_iter([("app", "web")])).complete()?.len(), 1);
/// assert_eq!(pods.by_index("namespace", "ns")?.complete()?.len(), 1);
/// let missing = pods.namespace("ns").get("b").unwrap_err();
/// assert_eq!(missing.to_string(), "pods \"ns/b\" not found");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lister<K> {
    store: Indexer<K>,
    resource: Arc<str>,
    synced: Arc<Latch>,
}

/// The reason why a lister has no typed object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The object is not in the cache.
    #[error("{resource} \"{key}\" not found")]
    NotFound {
        /// The plural name of the kind.
        resource: String,
        /// The requested key.
        key: ObjectName,
    },
    /// The object exists, but does not fit its type.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
}

impl LookupError {
    /// Returns whether the object is not in the cache.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl<K: Kind> Lister<K> {
    /// Returns the lister of a store that has synced once `synced` is set.
    pub(super) fn following(store: Indexer<K>, resource: Cow<'_, str>, synced: Arc<Latch>) -> Self {
        Self { store, resource: resource.into(), synced }
    }

    /// Returns the lister of a store that is filled by hand or by an unshared informer, which counts as synced.
    pub fn new(store: Indexer<K>) -> Self
    where
        K::DynamicType: Default,
    {
        let synced = Arc::new(Latch::default());
        synced.set();
        Self::following(store, K::plural(&K::DynamicType::default()), synced)
    }

    /// Returns whether the store has its initial list. Before that, a missing object may just not have been read yet.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    /// Waits until [`Lister::has_synced`]; forever if the informer stops before. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.synced.wait().await;
    }

    /// Returns the object of that key.
    pub fn get(&self, key: &ObjectName) -> Result<Arc<K>, LookupError> {
        Ok(self.object(key)?.get()?)
    }

    /// Returns the object of that key, not decoded.
    pub fn object(&self, key: &ObjectName) -> Result<Object<K>, LookupError> {
        let not_found = || LookupError::NotFound { resource: self.resource.to_string(), key: key.clone() };
        self.store.get(key).ok_or_else(not_found)
    }

    /// Returns whether there is an object of that key.
    pub fn contains(&self, key: &ObjectName) -> bool {
        self.store.snapshot().get(key).is_some()
    }

    /// Returns all objects that `selector` matches, in no particular order, separated from those that do not fit their
    /// type.
    pub fn list(&self, selector: &Selector) -> Listing<Arc<K>> {
        self.objects(selector).iter().map(Object::get).collect()
    }

    /// Returns all objects that `selector` matches, in no particular order, not decoded.
    pub fn objects(&self, selector: &Selector) -> Vec<Object<K>> {
        let snapshot = self.store.snapshot();
        snapshot.iter().filter(|object| matches(selector, object)).cloned().collect()
    }

    /// Returns the objects to which `index` gives `value`, in no particular order, separated from those that do not fit
    /// their type.
    ///
    /// # Errors
    ///
    /// The index does not exist. A value that no object has is not an error.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Listing<Arc<K>>, NoIndex> {
        Ok(self.store.snapshot().by_index(index, value)?.map(Object::get).collect())
    }

    /// Returns the store.
    pub fn indexer(&self) -> &Indexer<K> {
        &self.store
    }

    /// Returns the lister of one namespace; with an empty name, it lists the objects of all.
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
    /// Returns the object of that name.
    pub fn get(&self, name: &str) -> Result<Arc<K>, LookupError> {
        self.lister.get(&ObjectName::namespaced(&self.namespace, name))
    }

    /// Returns the object of that name, not decoded.
    pub fn object(&self, name: &str) -> Result<Object<K>, LookupError> {
        self.lister.object(&ObjectName::namespaced(&self.namespace, name))
    }

    /// Returns all objects that `selector` matches, in no particular order, separated from those that do not fit their
    /// type.
    pub fn list(&self, selector: &Selector) -> Listing<Arc<K>> {
        self.objects(selector).iter().map(Object::get).collect()
    }

    /// Returns the objects of this namespace to which `index` gives `value`, in no particular order, separated from
    /// those that do not fit their type.
    ///
    /// # Errors
    ///
    /// The index does not exist. A value that no object has is not an error.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Listing<Arc<K>>, NoIndex> {
        let snapshot = self.lister.store.snapshot();
        let objects = snapshot.by_index(index, value)?;
        let is_here =
            |object: &&Object<K>| self.namespace.is_empty() || object.namespace() == Some(&*self.namespace);
        Ok(objects.filter(is_here).map(Object::get).collect())
    }

    /// Returns all objects that `selector` matches, in no particular order, not decoded.
    pub fn objects(&self, selector: &Selector) -> Vec<Object<K>> {
        if self.namespace.is_empty() {
            return self.lister.objects(selector);
        }
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
        Self { store: self.store.clone(), resource: self.resource.clone(), synced: self.synced.clone() }
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}
