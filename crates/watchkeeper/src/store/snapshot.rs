//! Snapshots: items, indexes and version of one moment, for as long as a reader keeps them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::index::Index;
use super::state::{Filled, IndexPanics, State, Values, bytes_of};
use crate::object::{Object, ObjectName, ResourceVersion};

/// Items, indexes and version of one moment, consistent with each other. A clone copies a pointer.
///
/// A snapshot does not change when the store does. Dropping it frees the objects that it alone still holds.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::store::{Index, Indexer};
/// use watchkeeper::{Env, Object};
///
/// let pods = Indexer::<Pod>::new(&Env::simulated(1), [Index::field("node", "spec.nodeName")?]);
/// pods.add(Object::from_json(br#"{"metadata":{"name":"a","namespace":"ns"},"spec":{"nodeName":"n1"}}"#)?);
/// let now = pods.snapshot();
/// assert_eq!(now.by_index("node", "n1")?.count(), 1);
/// assert_eq!(now.index_keys("node", "n1")?[0].to_string(), "ns/a");
/// assert!(now.by_index("nodes", "n1").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot<K>(Arc<State<K>>);

/// The error of an index name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {name:?}; there are {there:?}")]
pub struct NoIndex {
    /// The requested name.
    pub name: String,
    /// The names of the existing indexes.
    pub there: Vec<String>,
}

impl<K> Snapshot<K> {
    pub(super) fn of(state: Arc<State<K>>) -> Self {
        Self(state)
    }

    pub(super) fn state(&self) -> &State<K> {
        &self.0
    }

    /// Returns the object of that key.
    pub fn get(&self, key: &ObjectName) -> Option<&Object<K>> {
        self.0.find(bytes_of(key))
    }

    /// Returns the object with the key of `like`.
    pub fn get_like(&self, like: &Object<K>) -> Option<&Object<K>> {
        self.0.find(like.key_bytes())
    }

    /// Iterates over all objects, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Object<K>> {
        self.0.items.iter()
    }

    /// Iterates over the keys of all objects, in no particular order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = ObjectName> {
        self.iter().map(Object::key)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the objects take in memory, without decoded values.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns the version that all of this reflects.
    pub fn version(&self) -> &ResourceVersion {
        &self.0.version
    }

    /// Iterates over the objects to which `index` gives `value`, each once, in no particular order.
    ///
    /// # Errors
    ///
    /// The index does not exist. A value that no object has is not an error.
    pub fn by_index(&self, index: &str, value: &str) -> Result<impl Iterator<Item = &Object<K>>, NoIndex> {
        let filled = self.find_index(index)?;
        let bucket = filled.bucket(&self.0.tools, value);
        Ok(bucket.into_iter().flat_map(|bucket| self.0.in_bucket(filled, bucket)))
    }

    /// Returns the objects that share a value of `index` with `object`, which need not be in the store; each once,
    /// ordered by key.
    ///
    /// # Errors
    ///
    /// The index does not exist.
    pub fn index(&self, index: &str, object: &Object<K>) -> Result<Vec<&Object<K>>, NoIndex> {
        let filled = self.find_index(index)?;
        let mut values = Values::default();
        let mut panics = IndexPanics::none(&self.0.tools);
        values.fill_or_note(&filled.index, object, &mut panics);
        panics.report();
        let buckets = values.iter().filter_map(|value| filled.bucket(&self.0.tools, value));
        let objects = buckets.flat_map(|bucket| self.0.in_bucket(filled, bucket));
        Ok(objects.map(|object| (object.key(), object)).collect::<BTreeMap<_, _>>().into_values().collect())
    }

    /// Returns the keys of the objects to which `index` gives `value`, in order.
    ///
    /// # Errors
    ///
    /// The index does not exist. A value that no object has is not an error.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectName>, NoIndex> {
        let mut keys: Vec<_> = self.by_index(index, value)?.map(Object::key).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Iterates over the values that `index` gives to any object, each once, in no particular order.
    ///
    /// # Errors
    ///
    /// The index does not exist.
    pub fn index_values(&self, index: &str) -> Result<impl ExactSizeIterator<Item = &str>, NoIndex> {
        Ok(self.find_index(index)?.buckets.iter().map(|bucket| &*bucket.value))
    }

    /// Iterates over the existing indexes.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = &Index<K>> {
        self.0.indexes.iter().map(|filled| &filled.index)
    }

    fn find_index(&self, name: &str) -> Result<&Filled<K>, NoIndex> {
        self.0.index(name).ok_or_else(|| NoIndex {
            name: name.to_owned(),
            there: self.indexes().map(|index| index.name().to_owned()).collect(),
        })
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len()).field("version", self.version()).finish()
    }
}
