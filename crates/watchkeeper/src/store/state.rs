//! The state of a store: objects by the hash of their key, and for each value of each index the hashes of its objects.

use std::any::Any;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::index::Index;
use super::publish::Versioned;
use super::trie::Trie;
use crate::object::{Object, ObjectName, ResourceVersion};
use crate::report::Reporter;

/// Items, indexes and version of one moment. A clone shares everything.
pub(super) struct State<K> {
    pub(super) items: Trie<Object<K>>,
    pub(super) indexes: Vec<Filled<K>>,
    pub(super) version: ResourceVersion,
    /// The size of all items.
    pub(super) bytes: usize,
    pub(super) tools: Arc<Tools>,
}

pub(super) struct Tools {
    pub(super) hasher: FixedState,
    /// The bits of a hash that count: all of them, except in tests of hash collisions.
    pub(super) mask: u64,
    pub(super) reporter: Reporter,
}

/// An index and its buckets.
pub(super) struct Filled<K> {
    pub(super) index: Index<K>,
    pub(super) buckets: Trie<Bucket>,
}

/// All objects with one value of an index, by the hashes of their keys: a new state of an object with the same value
/// changes nothing here. Never empty.
#[derive(Clone)]
pub(super) struct Bucket {
    pub(super) value: Arc<str>,
    pub(super) hashes: Trie<()>,
}

impl<K> State<K> {
    pub(super) fn new(tools: Tools) -> Self {
        let (items, tools) = (Trie::default(), Arc::new(tools));
        Self { items, indexes: Vec::new(), version: ResourceVersion::UNSET, bytes: 0, tools }
    }

    /// Returns the object of that namespace and name.
    pub(super) fn find(&self, key: (&[u8], &[u8])) -> Option<&Object<K>> {
        self.items.get(self.tools.hash_of(key), |object| object.key_bytes() == key)
    }

    pub(super) fn index(&self, name: &str) -> Option<&Filled<K>> {
        self.indexes.iter().find(|filled| filled.index.name() == name)
    }

    /// Iterates over the objects in a bucket of `filled`.
    pub(super) fn in_bucket<'a>(
        &'a self,
        filled: &'a Filled<K>,
        bucket: &'a Bucket,
    ) -> impl Iterator<Item = &'a Object<K>> {
        bucket.hashes.entries().flat_map(move |(hash, ())| {
            let alike = self.items.with_hash(*hash);
            let is_one = alike.clone().nth(1).is_none();
            // If two keys have one hash, the index function decides which of them has the value.
            alike.filter(move |object| is_one || gives(&filled.index, object, &bucket.value))
        })
    }
}

impl<K> Filled<K> {
    pub(super) fn bucket(&self, tools: &Tools, value: &str) -> Option<&Bucket> {
        self.buckets.get(tools.hash_of_value(value), |bucket| *bucket.value == *value)
    }

    /// Moves the object of `key`, whose hash is `hash`, from the buckets of `before` to those of `after`; `items`
    /// already have the change.
    pub(super) fn refile(
        &mut self,
        tools: &Tools,
        items: &Trie<Object<K>>,
        hash: u64,
        key: (&[u8], &[u8]),
        before: &Values,
        after: &Values,
    ) {
        let Self { index, buckets } = self;
        for value in before.iter().filter(|value| !after.contains(value)) {
            // Another key with the same hash may need the entry.
            let mut others = items.with_hash(hash).filter(|object| object.key_bytes() != key);
            if others.any(|object| gives(index, object, value)) {
                continue;
            }
            let value_hash = tools.hash_of_value(value);
            let Some(bucket) = buckets.get_mut(value_hash, |bucket| *bucket.value == *value) else {
                continue;
            };
            bucket.hashes.remove(hash, |()| true);
            if bucket.hashes.len() == 0 {
                buckets.remove(value_hash, |bucket| *bucket.value == *value);
            }
        }
        for value in after.iter().filter(|value| !before.contains(value)) {
            let value_hash = tools.hash_of_value(value);
            if let Some(bucket) = buckets.get_mut(value_hash, |bucket| *bucket.value == *value) {
                bucket.hashes.insert(hash, (), |()| true);
                continue;
            }
            let mut bucket = Bucket { value: value.into(), hashes: Trie::default() };
            bucket.hashes.insert(hash, (), |()| true);
            buckets.insert(value_hash, bucket, |_| false);
        }
    }
}

/// The values that an index gives to one object, in two reusable buffers.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Values {
    text: String,
    ends: Vec<usize>,
}

impl Values {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Collects the values of `object`; none, and the panic, if the function panics.
    pub(super) fn fill<K>(
        &mut self,
        index: &Index<K>,
        object: &Object<K>,
    ) -> Result<(), Box<dyn Any + Send>> {
        self.clear();
        let push = &mut |value: &str| {
            self.text.push_str(value);
            self.ends.push(self.text.len());
        };
        catch_unwind(AssertUnwindSafe(|| index.each(object, push))).inspect_err(|_| self.clear())
    }

    /// Does the same as [`Values::fill`], and adds a panic to `panics`.
    pub(super) fn fill_or_note<K>(&mut self, index: &Index<K>, object: &Object<K>, panics: &mut IndexPanics) {
        if let Err(panic) = self.fill(index, object) {
            panics.caught.push((format!("index {:?} of {}", index.name(), object.key()), panic));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }

    fn contains(&self, value: &str) -> bool {
        self.iter().any(|other| other == value)
    }
}

/// Panics of index functions. The caller reports them after releasing all locks, because a report hook may use the
/// store.
#[must_use]
pub(crate) struct IndexPanics {
    tools: Arc<Tools>,
    caught: Vec<(String, Box<dyn Any + Send>)>,
}

impl IndexPanics {
    pub(super) fn none(tools: &Arc<Tools>) -> Self {
        Self { tools: tools.clone(), caught: Vec::new() }
    }

    pub(crate) fn report(self) {
        for (subject, panic) in self.caught {
            self.tools.reporter.panic("indexer", &subject, panic.as_ref());
        }
    }
}

/// Returns whether `index` gives `value` to `object`. A panic was reported when the object was added.
fn gives<K>(index: &Index<K>, object: &Object<K>, value: &str) -> bool {
    let mut values = Values::default();
    let _reported = values.fill(index, object);
    values.contains(value)
}

impl Tools {
    pub(super) fn hash_of(&self, (namespace, name): (&[u8], &[u8])) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(namespace);
        hasher.write_u8(0xff);
        hasher.write(name);
        hasher.finish() & self.mask
    }

    pub(super) fn hash_of_value(&self, value: &str) -> u64 {
        self.hasher.hash_one(value) & self.mask
    }
}

pub(super) fn bytes_of(key: &ObjectName) -> (&[u8], &[u8]) {
    (key.namespace().unwrap_or_default().as_bytes(), key.name().as_bytes())
}

impl<K> Versioned for State<K> {
    fn version(&self) -> &ResourceVersion {
        &self.version
    }
}

impl<K> Clone for State<K> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
            indexes: self.indexes.clone(),
            version: self.version.clone(),
            bytes: self.bytes,
            tools: self.tools.clone(),
        }
    }
}

impl<K> Clone for Filled<K> {
    fn clone(&self) -> Self {
        Self { index: self.index.clone(), buckets: self.buckets.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::env::Env;

    #[test]
    fn hashes_differ_wherever_names_namespaces_or_values_do_unless_they_are_masked() {
        let env = Env::simulated(1);
        let tools = |mask| Tools { hasher: env.generator.hasher(), mask, reporter: env.reporter.clone() };
        let (whole, narrow) = (tools(u64::MAX), tools(0b11));
        let names: Vec<_> = (0..1000_u32).map(|number| number.to_string().into_bytes()).collect();
        let of_keys = |tools: &Tools| {
            let keys = names.iter().flat_map(|name| [(&b"ns"[..], &name[..]), (name, b"ns"), (b"", name)]);
            keys.map(|key| tools.hash_of(key)).collect::<BTreeSet<_>>()
        };
        let of_values = |tools: &Tools| {
            let values = (0..1000_u32).map(|number| tools.hash_of_value(&number.to_string()));
            values.collect::<BTreeSet<_>>()
        };
        assert_eq!((of_keys(&whole).len(), of_values(&whole).len()), (3000, 1000));
        assert_ne!(whole.hash_of((b"a", b"bc")), whole.hash_of((b"ab", b"c")));
        let all = BTreeSet::from([0, 1, 2, 3]);
        assert_eq!((of_keys(&narrow), of_values(&narrow)), (all.clone(), all));
    }
}
