//! Batches: changes of any number of objects and of the version, which readers see at once.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashTable;

use super::index::Index;
use super::snapshot::Snapshot;
use super::state::{Filled, IndexPanics, State, Values, bytes_of};
use super::trie::Trie;
use crate::object::{Object, ObjectName, ResourceVersion};

/// Changes that become visible at once; made by [`Indexer::write`](super::Indexer::write).
pub struct Batch<'a, K> {
    state: &'a mut State<K>,
    before: Values,
    after: Values,
    pub(super) panics: IndexPanics,
}

impl<'a, K> Batch<'a, K> {
    pub(super) fn new(state: &'a mut State<K>) -> Self {
        let panics = IndexPanics::none(&state.tools);
        Self { state, before: Values::default(), after: Values::default(), panics }
    }

    /// Returns the object of that key, including changes of this batch.
    pub fn get(&self, key: &ObjectName) -> Option<&Object<K>> {
        self.state.find(bytes_of(key))
    }

    /// Returns the object with the key of `like`, including changes of this batch.
    pub fn get_like(&self, like: &Object<K>) -> Option<&Object<K>> {
        self.state.find(like.key_bytes())
    }

    /// Iterates over all objects, in no particular order, including changes of this batch.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Object<K>> {
        self.state.items.iter()
    }

    /// Adds an object, or replaces and returns the one with the same key.
    pub fn put(&mut self, object: &Object<K>) -> Option<Object<K>> {
        self.put_at(self.state.tools.hash_of(object.key_bytes()), object)
    }

    fn put_at(&mut self, hash: u64, object: &Object<K>) -> Option<Object<K>> {
        let old = self.state.items.insert(hash, object.clone(), |other| same_key(other, object));
        self.state.bytes += object.size();
        self.state.bytes -= old.as_ref().map_or(0, Object::size);
        self.refile(hash, old.as_ref(), Some(object));
        old
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, key: &ObjectName) -> Option<Object<K>> {
        let key = bytes_of(key);
        self.remove_at(self.state.tools.hash_of(key), key)
    }

    fn remove_at(&mut self, hash: u64, key: (&[u8], &[u8])) -> Option<Object<K>> {
        let old = self.state.items.remove(hash, |object| object.key_bytes() == key)?;
        self.state.bytes -= old.size();
        self.refile(hash, Some(&old), None);
        Some(old)
    }

    /// Replaces the whole contents and returns the old ones; of two objects with one key the last counts.
    ///
    /// An object that is present in the same state (equal key, uid and version) stays as it is, with its decoded value
    /// and in its allocation, and its index functions are not called again.
    pub fn replace(&mut self, items: &[Object<K>], version: ResourceVersion) -> Snapshot<K> {
        let before = Snapshot::of(Arc::new(self.state.clone()));
        let tools = self.state.tools.clone();
        let hash_of = |object: &Object<K>| tools.hash_of(object.key_bytes());
        // With an empty store everything is added, and nothing has to be removed.
        let mut listed = (!before.is_empty()).then(|| HashTable::<&Object<K>>::with_capacity(items.len()));
        for object in items {
            let hash = hash_of(object);
            if let Some(listed) = &mut listed {
                listed.entry(hash, |other| same_key(other, object), |other| hash_of(other)).or_insert(object);
            }
            let there = self.state.items.get(hash, |other| same_key(other, object));
            if planted!(StaleIndex) && there.is_some() {
                self.state.items.insert(hash, object.clone(), |other| same_key(other, object));
                continue;
            }
            if there.is_none_or(|there| !there.same_state(object)) {
                self.put_at(hash, object);
            }
        }
        if let Some(listed) = listed
            && listed.len() != self.state.items.len()
        {
            for (hash, old) in before.state().items.entries() {
                if listed.find(*hash, |object| same_key(object, old)).is_none() {
                    self.remove_at(*hash, old.key_bytes());
                }
            }
        }
        self.set_version(version);
        before
    }

    /// Sets the version that the contents reflect once this batch is applied.
    ///
    /// Nothing else changes it: the version of one object does not imply that everything before it has been seen.
    pub fn set_version(&mut self, version: ResourceVersion) {
        self.state.version = version;
    }

    /// Adds an index of a free name, filled with the current contents.
    pub(super) fn add_index(&mut self, index: Index<K>) {
        let Self { state, before, after, panics } = self;
        before.clear();
        let mut filled = Filled { index, buckets: Trie::default() };
        for (hash, object) in state.items.entries() {
            after.fill_or_note(&filled.index, object, panics);
            filled.refile(&state.tools, &state.items, *hash, object.key_bytes(), before, after);
        }
        state.indexes.push(filled);
    }

    pub(super) fn index_names(&self) -> impl Iterator<Item = &str> {
        self.state.indexes.iter().map(|filled| filled.index.name())
    }

    /// Moves an object between the buckets of all indexes, once `items` have its new state.
    fn refile(&mut self, hash: u64, old: Option<&Object<K>>, new: Option<&Object<K>>) {
        let Self { state, before, after, panics } = self;
        let State { items, indexes, tools, .. } = &mut **state;
        let Some(key) = new.or(old).map(Object::key_bytes) else { return };
        for filled in indexes {
            before.clear();
            after.clear();
            if let Some(old) = old {
                // A panic was reported when the object was added.
                let _reported = before.fill(&filled.index, old);
            }
            if let Some(new) = new {
                after.fill_or_note(&filled.index, new, panics);
            }
            if before != after {
                filled.refile(tools, items, hash, key, before, after);
            }
        }
    }
}

fn same_key<K>(a: &Object<K>, b: &Object<K>) -> bool {
    a.key_bytes() == b.key_bytes()
}

impl<K> fmt::Debug for Batch<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.iter().len())
            .field("version", &self.state.version)
            .finish()
    }
}
