//! What is in the store, seen from a reader and from the writer?

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::index::Index;
use super::trie::Trie;
use crate::env::Env;
use crate::object::{Object, ObjectName, ResourceVersion};
use crate::queue::KnownObjects;
use crate::report::Reporter;

/// The thread-safe store of one kind. Clones share the contents.
///
/// Writers wait for each other; readers take a [`Snapshot`] and wait for nobody.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::store::{Indexer, namespace_index};
/// use watchkeeper::{Env, Object};
///
/// let pods = Indexer::<Pod>::new(&Env::simulated(1), [namespace_index()]);
/// pods.add(Object::from_json(br#"{"metadata":{"name":"a","namespace":"ns"}}"#)?);
/// assert_eq!(pods.snapshot().by_index("namespace", "ns").count(), 1);
/// # Ok::<(), watchkeeper::object::IdentityError>(())
/// ```
pub struct Indexer<K>(Arc<Shared<K>>);

struct Shared<K> {
    published: ArcSwap<State<K>>,
    /// The state being written; equal to the published one whenever the lock is free.
    writer: Mutex<State<K>>,
    version: watch::Sender<ResourceVersion>,
    hasher: FixedState,
    reporter: Reporter,
}

/// Items, indexes and version of one moment.
struct State<K> {
    items: Trie<Object<K>>,
    indexes: Vec<Filled<K>>,
    version: ResourceVersion,
    bytes: usize,
}

struct Filled<K> {
    index: Index<K>,
    values: Trie<Bucket<K>>,
}

/// All objects with one value of an index; never empty.
struct Bucket<K> {
    value: Arc<str>,
    objects: Trie<Object<K>>,
}

/// Two indexes of one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("indexer conflict: there is an index {0:?} already")]
pub struct IndexConflict(pub String);

impl<K> Indexer<K> {
    /// An empty store with `indexes`; of two with one name the first counts.
    pub fn new(env: &Env, indexes: impl IntoIterator<Item = Index<K>>) -> Self {
        let mut state =
            State { items: Trie::default(), indexes: Vec::new(), version: ResourceVersion::UNSET, bytes: 0 };
        for index in indexes {
            if state.index(index.name()).is_none() {
                state.indexes.push(Filled { index, values: Trie::default() });
            }
        }
        Self(Arc::new(Shared {
            published: ArcSwap::from_pointee(state.clone()),
            writer: Mutex::new(state),
            version: watch::Sender::new(ResourceVersion::UNSET),
            hasher: env.generator.hasher(),
            reporter: env.reporter.clone(),
        }))
    }

    /// Everything in the store at this moment, in O(1).
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot { state: self.0.published.load_full(), hasher: self.0.hasher.clone() }
    }

    /// The object of that key.
    pub fn get(&self, key: &ObjectName) -> Option<Object<K>> {
        self.0.published.load().find(&self.0.hasher, bytes_of(key)).cloned()
    }

    /// The object with the key of `like`.
    pub(crate) fn get_like(&self, like: &Object<K>) -> Option<Object<K>> {
        self.0.published.load().find(&self.0.hasher, like.key_bytes()).cloned()
    }

    /// The version that the contents reflect.
    pub fn version(&self) -> ResourceVersion {
        self.0.published.load().version.clone()
    }

    /// Puts an object in, in the place of one with the same key.
    pub fn add(&self, object: Object<K>) {
        self.write(|batch| drop(batch.put(&object)));
    }

    /// As [`Indexer::add`]: the store does not ask whether the object was there.
    pub fn update(&self, object: Object<K>) {
        self.add(object);
    }

    /// Takes an object out.
    pub fn delete(&self, key: &ObjectName) -> Option<Object<K>> {
        self.write(|batch| batch.remove(key))
    }

    /// Replaces the whole contents in one step; of two objects with one key the last counts.
    pub fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion) {
        self.write(|batch| {
            batch.clear();
            items.iter().for_each(|object| drop(batch.put(object)));
            batch.set_version(version);
        });
    }

    /// Adds indexes, filled with what is in the store; an error, and nothing changes, where a name is taken.
    pub fn add_indexes(&self, indexes: impl IntoIterator<Item = Index<K>>) -> Result<(), IndexConflict> {
        let indexes: Vec<_> = indexes.into_iter().collect();
        self.write(|batch| {
            let mut names: BTreeSet<String> =
                batch.state.indexes.iter().map(|filled| filled.index.name().to_owned()).collect();
            if let Some(taken) = indexes.iter().find(|index| !names.insert(index.name().to_owned())) {
                return Err(IndexConflict(taken.name().to_owned()));
            }
            for index in indexes {
                let mut filled = Filled { index, values: Trie::default() };
                for object in batch.state.items.iter() {
                    batch.shared.file(&mut filled, None, Some(object));
                }
                batch.state.indexes.push(filled);
            }
            Ok(())
        })
    }

    /// Waits until the contents reflect `version`. Cancel-safe. A version that cannot be compared is waited for by equality; an unset one
    /// is reflected by anything.
    pub async fn wait_until_fresh(&self, version: &ResourceVersion) {
        if version.is_unset() {
            return;
        }
        let mut reached = self.0.version.subscribe();
        // The sender lives as long as `self`.
        let _closed = reached.wait_for(|reached| reached >= version || reached == version).await;
    }

    /// Applies all changes of `write` as one: readers see all of them or none.
    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut Batch<'_, K>) -> R) -> R {
        let mut state = self.0.writer.lock();
        let result = write(&mut Batch { state: &mut state, shared: &self.0 });
        let old = self.0.published.swap(Arc::new(state.clone()));
        // Told in the order of the writes.
        self.0.version.send_if_modified(|told| {
            let moved = *told != state.version;
            told.clone_from(&state.version);
            moved
        });
        drop(state);
        // What nobody reads any more is freed outside the lock.
        drop(old);
        result
    }
}

impl<K> Shared<K> {
    /// Moves an object between the buckets of one index.
    fn file(&self, filled: &mut Filled<K>, old: Option<&Object<K>>, new: Option<&Object<K>>) {
        let Filled { index, values } = filled;
        let values_of = |object: Option<&Object<K>>| -> Vec<String> {
            let Some(object) = object else { return Vec::new() };
            let values = self.reporter.guard("indexer", index.name(), || index.values(object));
            let mut values = values.unwrap_or_default();
            values.sort_unstable();
            values.dedup();
            values
        };
        let (before, after) = (values_of(old), values_of(new));
        if let Some(old) = old {
            let hash = hash_of(&self.hasher, old.key_bytes());
            for value in before.iter().filter(|value| !after.contains(value)) {
                let value_hash = self.hasher.hash_one(value);
                let Some(bucket) = values.get_mut(value_hash, |b| *b.value == **value) else { continue };
                bucket.objects.remove(hash, |object| same_key(object, old));
                if bucket.objects.len() == 0 {
                    values.remove(value_hash, |bucket| *bucket.value == **value);
                }
            }
        }
        if let Some(new) = new {
            let hash = hash_of(&self.hasher, new.key_bytes());
            for value in after {
                let value_hash = self.hasher.hash_one(&value);
                if let Some(bucket) = values.get_mut(value_hash, |bucket| *bucket.value == *value) {
                    bucket.objects.insert(hash, new.clone(), |object| same_key(object, new));
                    continue;
                }
                let mut bucket = Bucket { value: value.into(), objects: Trie::default() };
                bucket.objects.insert(hash, new.clone(), |_| false);
                values.insert(value_hash, bucket, |_| false);
            }
        }
    }
}

/// Changes that readers will see at once.
pub(crate) struct Batch<'a, K> {
    state: &'a mut State<K>,
    shared: &'a Shared<K>,
}

impl<K> Batch<'_, K> {
    pub(crate) fn get_like(&self, object: &Object<K>) -> Option<&Object<K>> {
        self.state.find(&self.shared.hasher, object.key_bytes())
    }

    pub(crate) fn put(&mut self, object: &Object<K>) -> Option<Object<K>> {
        let hash = hash_of(&self.shared.hasher, object.key_bytes());
        let old = self.state.items.insert(hash, object.clone(), |other| same_key(other, object));
        self.state.bytes += object.size();
        self.state.bytes -= old.as_ref().map_or(0, Object::size);
        for filled in &mut self.state.indexes {
            self.shared.file(filled, old.as_ref(), Some(object));
        }
        old
    }

    pub(crate) fn remove(&mut self, key: &ObjectName) -> Option<Object<K>> {
        let hash = hash_of(&self.shared.hasher, bytes_of(key));
        let old = self.state.items.remove(hash, |object| object.key_bytes() == bytes_of(key))?;
        self.state.bytes -= old.size();
        for filled in &mut self.state.indexes {
            self.shared.file(filled, Some(&old), None);
        }
        Some(old)
    }

    /// Empties the store; what was in it is returned.
    pub(crate) fn clear(&mut self) -> Snapshot<K> {
        let before = Snapshot { state: Arc::new(self.state.clone()), hasher: self.shared.hasher.clone() };
        self.state.items = Trie::default();
        self.state.bytes = 0;
        self.state.indexes.iter_mut().for_each(|filled| filled.values = Trie::default());
        before
    }

    pub(crate) fn set_version(&mut self, version: ResourceVersion) {
        self.state.version = version;
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Object<K>> {
        self.state.items.iter()
    }
}

/// Items, indexes and version of one moment, agreeing with each other. A clone copies a pointer.
pub struct Snapshot<K> {
    state: Arc<State<K>>,
    hasher: FixedState,
}

impl<K> Snapshot<K> {
    /// The object of that key.
    pub fn get(&self, key: &ObjectName) -> Option<&Object<K>> {
        self.state.find(&self.hasher, bytes_of(key))
    }

    /// The object with the key of `like`.
    pub(crate) fn get_like(&self, like: &Object<K>) -> Option<&Object<K>> {
        self.state.find(&self.hasher, like.key_bytes())
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Object<K>> {
        self.state.items.iter()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the objects take in memory, decoded values not counted.
    pub fn bytes(&self) -> usize {
        self.state.bytes
    }

    /// The version that all of this reflects.
    pub fn version(&self) -> &ResourceVersion {
        &self.state.version
    }

    /// The objects to which `index` gives `value`, in no particular order; none where there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = &Object<K>> {
        let filled = self.state.index(index);
        let hash = self.hasher.hash_one(value);
        let bucket = filled.and_then(|filled| filled.values.get(hash, |bucket| *bucket.value == *value));
        bucket.into_iter().flat_map(|bucket| bucket.objects.iter())
    }

    /// The values that `index` gives to any object, in no particular order.
    pub fn index_values(&self, index: &str) -> impl Iterator<Item = &str> {
        self.state
            .index(index)
            .into_iter()
            .flat_map(|filled| filled.values.iter())
            .map(|bucket| &*bucket.value)
    }

    /// The names of the indexes.
    pub fn index_names(&self) -> impl Iterator<Item = &str> {
        self.state.indexes.iter().map(|filled| filled.index.name())
    }
}

impl<K> State<K> {
    /// The object of that namespace and name.
    fn find(&self, hasher: &FixedState, key: (&[u8], &[u8])) -> Option<&Object<K>> {
        self.items.get(hash_of(hasher, key), |object| object.key_bytes() == key)
    }

    fn index(&self, name: &str) -> Option<&Filled<K>> {
        self.indexes.iter().find(|filled| filled.index.name() == name)
    }
}

fn hash_of(hasher: &FixedState, (namespace, name): (&[u8], &[u8])) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(namespace);
    hasher.write_u8(0xff);
    hasher.write(name);
    hasher.finish()
}

fn bytes_of(key: &ObjectName) -> (&[u8], &[u8]) {
    (key.namespace().unwrap_or_default().as_bytes(), key.name().as_bytes())
}

fn same_key<K>(a: &Object<K>, b: &Object<K>) -> bool {
    a.key_bytes() == b.key_bytes()
}

impl<K> KnownObjects<K> for Indexer<K> {
    fn known(&self, key: &ObjectName) -> Option<Object<K>> {
        self.get(key)
    }

    fn each_known(&self, each: &mut dyn FnMut(&Object<K>)) {
        self.snapshot().iter().for_each(each);
    }
}

impl<K> Clone for Indexer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), hasher: self.hasher.clone() }
    }
}

impl<K> Clone for State<K> {
    fn clone(&self) -> Self {
        let (items, indexes) = (self.items.clone(), self.indexes.clone());
        Self { items, indexes, version: self.version.clone(), bytes: self.bytes }
    }
}

impl<K> Clone for Filled<K> {
    fn clone(&self) -> Self {
        Self { index: self.index.clone(), values: self.values.clone() }
    }
}

impl<K> Clone for Bucket<K> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), objects: self.objects.clone() }
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.snapshot(), f)
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len()).field("version", self.version()).finish()
    }
}
