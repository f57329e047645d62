//! Where do objects live, and what happened to them? One revision counter, objects by key, and a bounded log of changes per resource.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use serde_json::Value;

use crate::registry::{Kind, ResourceId};
use crate::selector;

/// The key of an object within its resource; an empty namespace for a cluster-scoped one. Ordered by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One version of one object: encoded once, and shared by every get, list and watch that shows it.
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) uid: String,
    pub(crate) api_version: String,
    pub(crate) terminating: bool,
    /// Sorted by key.
    pub(crate) labels: Box<[(String, String)]>,
    /// The kind's selectable fields, by stored path.
    pub(crate) fields: Box<[(String, String)]>,
    /// The JSON text.
    pub(crate) bytes: Bytes,
    /// Where the text goes on after `{"kind":..,"apiVersion":..,`: items of built-in lists leave these two out. 0: keep all.
    pub(crate) head: usize,
}

// The content may be a Secret: it never shows in a debug print.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Stored {
    /// Encodes `value`, whose `metadata.resourceVersion` must already be `revision`.
    pub(crate) fn encode(kind: &Kind, key: Key, revision: u64, value: &Value) -> Self {
        let (bytes, head) = encode(kind.custom.is_some(), value);
        let metadata = &value["metadata"];
        let labels = metadata["labels"].as_object().map(|labels| {
            let mut labels: Vec<_> = labels
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect();
            labels.sort();
            labels
        });
        Self {
            key,
            revision,
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            api_version: value["apiVersion"].as_str().unwrap_or_default().to_owned(),
            terminating: metadata["deletionTimestamp"].is_string(),
            labels: labels.unwrap_or_default().into(),
            fields: selector::selectable(kind, value).into(),
            bytes,
            head,
        }
    }

    /// The object as JSON again.
    pub(crate) fn value(&self) -> Value {
        // The text is our own encoding, which always parses.
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// The JSON text of an object, and where it goes on after kind and apiVersion.
pub(crate) fn encode(custom: bool, value: &Value) -> (Bytes, usize) {
    let mut out = Vec::with_capacity(512);
    let Value::Object(map) = value else {
        write_json(&mut out, value);
        return (exact(out), 0);
    };
    // Custom resources are printed in the order of their keys, as the real server does.
    if custom || !map.contains_key("kind") || !map.contains_key("apiVersion") {
        write_json(&mut out, value);
        return (exact(out), 0);
    }
    out.extend_from_slice(b"{\"kind\":");
    write_json(&mut out, &map["kind"]);
    out.extend_from_slice(b",\"apiVersion\":");
    write_json(&mut out, &map["apiVersion"]);
    let head = out.len() + 1;
    let rest = map.iter().filter(|(key, _)| !["kind", "apiVersion", "metadata"].contains(&key.as_str()));
    let metadata = map.get_key_value("metadata");
    for (key, value) in metadata.into_iter().chain(rest) {
        out.push(b',');
        write_json(&mut out, &Value::from(key.as_str()));
        out.push(b':');
        write_json(&mut out, value);
    }
    out.push(b'}');
    let head = if out.len() > head { head } else { 0 };
    (exact(out), head)
}

/// Without the spare room of the buffer: the text is kept for long.
fn exact(text: Vec<u8>) -> Bytes {
    text.into_boxed_slice().into()
}

fn write_json(out: &mut Vec<u8>, value: &Value) {
    // Writing a JSON value into memory cannot fail.
    let _infallible = serde_json::to_writer(out, value);
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// The state before; none for an object that was created.
    pub(crate) before: Option<Arc<Stored>>,
    /// The state after; of a removed object its last content, with the revision of the removal.
    pub(crate) after: Arc<Stored>,
    pub(crate) removed: bool,
}

/// The history no longer reaches back to what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The oldest version that can still be asked for.
    pub(crate) oldest: u64,
}

#[derive(Debug, Default)]
struct Resource {
    objects: BTreeMap<Key, Arc<Stored>>,
    log: VecDeque<Change>,
    /// Revision of the newest change that has left the log.
    dropped: u64,
    /// How often the resource was closed, and at which revision last: watches from before end there.
    closings: u64,
    closed_at: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// Objects and their history.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// Versions before this one are gone, for all resources.
    floor: u64,
    /// How many changes each resource remembers.
    window: usize,
    resources: BTreeMap<ResourceId, Resource>,
    /// Raised to end every open watch.
    watch_epoch: u64,
    to_wake: Vec<Waker>,
}

impl Store {
    pub(crate) fn new(revision: u64, window: usize) -> Self {
        Self {
            revision,
            floor: revision,
            window,
            resources: BTreeMap::new(),
            watch_epoch: 0,
            to_wake: Vec::new(),
        }
    }

    /// The revision of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision that the next change must carry.
    pub(crate) fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    pub(crate) fn get(&self, id: &ResourceId, key: &Key) -> Option<&Arc<Stored>> {
        self.resources.get(id)?.objects.get(key)
    }

    /// Stores a new version, made with [`Store::next_revision`].
    pub(crate) fn put(&mut self, id: &ResourceId, stored: Stored) -> Arc<Stored> {
        let after = Arc::new(stored);
        let resource = self.resources.entry(id.clone()).or_default();
        let before = resource.objects.insert(after.key.clone(), after.clone());
        self.record(id, before, after.clone(), false);
        after
    }

    /// Removes an object; `last` is its final state, made with [`Store::next_revision`].
    pub(crate) fn remove(&mut self, id: &ResourceId, last: Stored) -> Arc<Stored> {
        let after = Arc::new(last);
        let resource = self.resources.entry(id.clone()).or_default();
        let before = resource.objects.remove(&after.key);
        self.record(id, before, after.clone(), true);
        after
    }

    fn record(&mut self, id: &ResourceId, before: Option<Arc<Stored>>, after: Arc<Stored>, removed: bool) {
        debug_assert_eq!(after.revision, self.revision + 1, "every change has a revision of its own");
        self.revision = after.revision;
        let window = self.window;
        let resource = self.resources.entry(id.clone()).or_default();
        resource.log.push_back(Change { revision: after.revision, before, after, removed });
        while resource.log.len() > window {
            if let Some(oldest) = resource.log.pop_front() {
                resource.dropped = oldest.revision;
            }
        }
        self.to_wake.extend(std::mem::take(&mut resource.wakers).into_values());
    }

    /// The objects of a resource, in the order of their keys, optionally of one namespace and after a key.
    pub(crate) fn range<'a>(
        &'a self,
        id: &ResourceId,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let first = Key::new(namespace.unwrap_or_default(), "");
        let from = match after {
            Some(key) if *key >= first => Bound::Excluded(key.clone()),
            _ => Bound::Included(first),
        };
        self.resources
            .get(id)
            .into_iter()
            .flat_map(move |resource| resource.objects.range((from.clone(), Bound::Unbounded)))
            .take_while(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
            .map(|(_, stored)| stored)
    }

    /// The oldest version from which a watch of this resource can start without a gap.
    pub(crate) fn oldest(&self, id: &ResourceId) -> u64 {
        self.resources.get(id).map_or(0, |resource| resource.dropped).max(self.floor)
    }

    /// As [`Store::range`], but as it was at `revision`.
    pub(crate) fn range_at(
        &self,
        id: &ResourceId,
        namespace: Option<&str>,
        after: Option<&Key>,
        revision: u64,
    ) -> Result<Vec<Arc<Stored>>, Forgotten> {
        let oldest = self.oldest(id);
        if revision < oldest {
            return Err(Forgotten { oldest });
        }
        let in_range = |key: &Key| {
            namespace.is_none_or(|namespace| key.namespace == namespace)
                && after.is_none_or(|after| key > after)
        };
        // The oldest change after `revision` knows what stood there before: it is looked at last and wins.
        let mut undone: BTreeMap<Key, Option<Arc<Stored>>> = BTreeMap::new();
        for change in self.changes_after(id, revision).rev() {
            if in_range(&change.after.key) {
                undone.insert(change.after.key.clone(), change.before.clone());
            }
        }
        let current = self.range(id, namespace, after);
        if undone.is_empty() {
            return Ok(current.cloned().collect());
        }
        let mut objects: BTreeMap<Key, Arc<Stored>> =
            current.map(|stored| (stored.key.clone(), stored.clone())).collect();
        for (key, before) in undone {
            match before {
                Some(before) => objects.insert(key, before),
                None => objects.remove(&key),
            };
        }
        Ok(objects.into_values().collect())
    }

    fn changes_after(
        &self,
        id: &ResourceId,
        revision: u64,
    ) -> impl DoubleEndedIterator<Item = &Change> + use<'_> {
        self.resources.get(id).into_iter().flat_map(move |resource| {
            let first = resource.log.partition_point(|change| change.revision <= revision);
            resource.log.range(first..)
        })
    }

    /// The next change after a watch's cursor.
    ///
    /// Fails when changes between the two have left the log, as happens to a reader that is too slow.
    pub(crate) fn next_change(&self, id: &ResourceId, cursor: u64) -> Result<Option<&Change>, Forgotten> {
        let Some(resource) = self.resources.get(id) else { return Ok(None) };
        if cursor < resource.dropped {
            return Err(Forgotten { oldest: self.oldest(id) });
        }
        Ok(self.changes_after(id, cursor).next())
    }

    /// Wakes `waker` at the next change of the resource, or when watches are ended.
    ///
    /// Returns the waker it replaces, to be dropped once the store is unlocked: with it a task may go, and with that a watch,
    /// which locks the store to say good-bye.
    pub(crate) fn wake_on_change(&mut self, id: &ResourceId, watch: u64, waker: &Waker) -> Option<Waker> {
        let resource = self.resources.entry(id.clone()).or_default();
        resource.wakers.insert(watch, waker.clone())
    }

    /// Forgets the waker of a watch that was dropped, and returns it for the same reason.
    pub(crate) fn forget_waker(&mut self, id: &ResourceId, watch: u64) -> Option<Waker> {
        self.resources.get_mut(id)?.wakers.remove(&watch)
    }

    /// The wakers to call once the store is unlocked.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.to_wake)
    }

    /// How often the resource was closed, and the revision at which it last was.
    pub(crate) fn closings(&self, id: &ResourceId) -> (u64, u64) {
        self.resources.get(id).map_or((0, 0), |resource| (resource.closings, resource.closed_at))
    }

    /// Ends the watches of a resource whose kind is no longer served, once they have seen every change so far.
    pub(crate) fn close(&mut self, id: &ResourceId) {
        let revision = self.revision;
        let resource = self.resources.entry(id.clone()).or_default();
        resource.closings += 1;
        resource.closed_at = revision;
        self.to_wake.extend(std::mem::take(&mut resource.wakers).into_values());
    }

    pub(crate) fn watch_epoch(&self) -> u64 {
        self.watch_epoch
    }

    /// Ends every open watch.
    pub(crate) fn end_watches(&mut self) {
        self.watch_epoch += 1;
        for resource in self.resources.values_mut() {
            self.to_wake.extend(std::mem::take(&mut resource.wakers).into_values());
        }
    }

    /// Forgets all history: versions before the current one are gone.
    pub(crate) fn compact(&mut self) {
        self.floor = self.revision;
        for resource in self.resources.values_mut() {
            if let Some(newest) = resource.log.back() {
                resource.dropped = newest.revision;
            }
            resource.log.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    struct Fixture {
        store: Store,
        kind: Arc<Kind>,
    }

    impl Fixture {
        fn new(window: usize) -> Self {
            let kind = Registry::new().find("", "v1", "configmaps").unwrap().clone();
            Self { store: Store::new(100, window), kind }
        }

        fn object(&self, name: &str) -> Stored {
            let revision = self.store.next_revision();
            let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
                "name": name, "namespace": "d", "resourceVersion": revision.to_string()}});
            Stored::encode(&self.kind, Key::new("d", name), revision, &value)
        }

        fn put(&mut self, name: &str) -> u64 {
            let object = self.object(name);
            self.store.put(&self.kind.storage, object).revision
        }

        fn remove(&mut self, name: &str) -> u64 {
            let object = self.object(name);
            self.store.remove(&self.kind.storage, object).revision
        }

        fn at(&self, revision: u64) -> Result<Vec<(String, u64)>, Forgotten> {
            let objects = self.store.range_at(&self.kind.storage, Some("d"), None, revision)?;
            Ok(objects.iter().map(|o| (o.key.name.clone(), o.revision)).collect())
        }
    }

    #[test]
    fn the_past_can_be_listed_as_it_was() {
        let mut f = Fixture::new(10);
        let a = f.put("a");
        let b = f.put("b");
        let a2 = f.put("a");
        let gone = f.remove("b");
        let named =
            |list: &[(&str, u64)]| list.iter().map(|(n, r)| ((*n).to_owned(), *r)).collect::<Vec<_>>();
        assert_eq!(f.at(100).unwrap(), []);
        assert_eq!(f.at(a).unwrap(), named(&[("a", a)]));
        assert_eq!(f.at(b).unwrap(), named(&[("a", a), ("b", b)]));
        assert_eq!(f.at(a2).unwrap(), named(&[("a", a2), ("b", b)]));
        assert_eq!(f.at(gone).unwrap(), named(&[("a", a2)]));
    }

    #[test]
    fn history_is_bounded_and_says_how_far_it_reaches() {
        let mut f = Fixture::new(2);
        let first = f.put("a");
        f.put("a");
        f.put("a");
        assert_eq!(f.at(first - 1), Err(Forgotten { oldest: first }));
        assert!(f.at(first).is_ok());
        assert!(f.store.next_change(&f.kind.storage, first - 1).is_err());
        assert!(f.store.next_change(&f.kind.storage, first).unwrap().is_some());
    }

    #[test]
    fn compaction_spares_a_cursor_that_has_seen_everything() {
        let mut f = Fixture::new(10);
        let seen = f.put("a");
        // Another resource moves on; this one is quiet.
        f.store.revision += 5;
        f.store.compact();
        assert_eq!(f.store.oldest(&f.kind.storage), seen + 5);
        assert!(f.store.next_change(&f.kind.storage, seen).unwrap().is_none());
        assert!(f.store.next_change(&f.kind.storage, seen - 1).is_err());
    }

    #[test]
    fn a_range_keeps_to_its_namespace_and_starts_after_the_key() {
        let mut f = Fixture::new(10);
        for name in ["a", "b", "c"] {
            f.put(name);
        }
        let names = |namespace, after: Option<&Key>| -> Vec<_> {
            f.store.range(&f.kind.storage, namespace, after).map(|o| o.key.name.clone()).collect()
        };
        assert_eq!(names(Some("d"), Some(&Key::new("d", "a"))), ["b", "c"]);
        assert_eq!(names(Some("e"), None), Vec::<String>::new());
        assert_eq!(names(None, None), ["a", "b", "c"]);
    }

    #[test]
    fn built_in_objects_can_be_cut_after_kind_and_version() {
        let value = json!({"apiVersion": "v1", "kind": "X", "data": 1, "metadata": {}});
        let (bytes, head) = encode(false, &value);
        assert_eq!(bytes, r#"{"kind":"X","apiVersion":"v1","metadata":{},"data":1}"#);
        assert_eq!(&bytes[head..], br#""metadata":{},"data":1}"#);
    }
}
