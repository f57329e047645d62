//! What does a reader see? Items, indexes and version of one moment, for as long as it likes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::index::Index;
use super::state::{Filled, IndexPanics, State, Values, bytes_of};
use crate::object::{Object, ObjectName, ResourceVersion};

/// Items, indexes and version of one moment, agreeing with each other. A clone copies a pointer.
///
/// It stays as it is while the store goes on; what it alone still holds is freed with it.
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

/// There is no index of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {name:?}; there are {there:?}")]
pub struct NoIndex {
    /// The name asked for.
    pub name: String,
    /// The names of the indexes that there are.
    pub there: Vec<String>,
}

impl<K> Snapshot<K> {
    pub(super) fn of(state: Arc<State<K>>) -> Self {
        Self(state)
    }

    pub(super) fn state(&self) -> &State<K> {
        &self.0
    }

    /// The object of that key.
    pub fn get(&self, key: &ObjectName) -> Option<&Object<K>> {
        self.0.find(bytes_of(key))
    }

    /// The object with the key of `like`.
    pub fn get_like(&self, like: &Object<K>) -> Option<&Object<K>> {
        self.0.find(like.key_bytes())
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Object<K>> {
        self.0.items.iter()
    }

    /// The keys of all objects, in no particular order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = ObjectName> {
        self.iter().map(Object::key)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the objects take in memory, decoded values not counted.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The version that all of this reflects.
    pub fn version(&self) -> &ResourceVersion {
        &self.0.version
    }

    /// The objects to which `index` gives `value`, each once, in no particular order.
    ///
    /// # Errors
    ///
    /// There is no such index. A value that no object has is no error.
    pub fn by_index(&self, index: &str, value: &str) -> Result<impl Iterator<Item = &Object<K>>, NoIndex> {
        let filled = self.find_index(index)?;
        let bucket = filled.bucket(&self.0.tools, value);
        Ok(bucket.into_iter().flat_map(|bucket| self.0.in_bucket(filled, bucket)))
    }

    /// The objects that share a value of `index` with `object`, which need not be in the store; each once, ordered by key.
    ///
    /// # Errors
    ///
    /// There is no such index.
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

    /// The keys of the objects to which `index` gives `value`, in order.
    ///
    /// # Errors
    ///
    /// There is no such index. A value that no object has is no error.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectName>, NoIndex> {
        let mut keys: Vec<_> = self.by_index(index, value)?.map(Object::key).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// The values that `index` gives to any object, each once, in no particular order.
    ///
    /// # Errors
    ///
    /// There is no such index.
    pub fn index_values(&self, index: &str) -> Result<impl ExactSizeIterator<Item = &str>, NoIndex> {
        Ok(self.find_index(index)?.buckets.iter().map(|bucket| &*bucket.value))
    }

    /// The indexes that there are.
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
