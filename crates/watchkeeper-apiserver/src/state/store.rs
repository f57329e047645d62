//! The store: one revision counter, objects by key, and a bounded log of changes per resource.

mod follow;
mod journal;
mod stored;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use crate::kinds::kind::ResourceId;

pub(crate) use follow::Followed;
pub(crate) use journal::{Batch, Reach};
#[cfg(test)]
pub(crate) use stored::PARSED;
pub(crate) use stored::encodings;
pub(crate) use stored::{Key, Stored, Text, View};

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// The state before; `None` for a created object.
    pub(crate) before: Option<Arc<Stored>>,
    /// The state after; for a removed object its last content, with the revision of the removal.
    pub(crate) after: Arc<Stored>,
    pub(crate) removed: bool,
    /// The state before with the revision of the change, for watches whose selector no longer matches. Encoded on first
    /// use.
    pub(crate) left: Arc<OnceLock<Arc<Stored>>>,
}

impl Change {
    fn new(before: Option<Arc<Stored>>, after: Arc<Stored>, removed: bool) -> Self {
        Self { revision: after.revision, before, after, removed, left: Arc::default() }
    }
}

/// The number of recent changes per resource that keep the encodings of other views. Watches that keep up are never
/// further behind.
const RECENT: usize = 1_000;

/// The requested revision is older than the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The oldest revision that is still available.
    pub(crate) oldest: u64,
}

#[derive(Debug, Default)]
struct Resource {
    objects: BTreeMap<Key, Arc<Stored>>,
    log: VecDeque<Change>,
    /// The total length of the texts in `log`.
    log_bytes: usize,
    /// Revision of the newest change.
    changed: u64,
    /// The revision of the newest change that was dropped from `log`.
    dropped: u64,
    /// The revision at which the kind was registered; 0 for built-in kinds.
    began: u64,
    /// The revision at which the kind was removed.
    closed_at: Option<u64>,
    /// The number of watches of this resource.
    watches: usize,
    wakers: BTreeMap<u64, Waker>,
}

impl Resource {
    fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_values().collect()
    }

    fn changes_after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Change> {
        let first = self.log.partition_point(|change| change.revision <= revision);
        self.log.range(first..)
    }

    fn append(&mut self, change: Change) {
        self.log_bytes += change.after.bytes.len();
        self.log.push_back(change);
    }

    /// Drops the oldest changes beyond `window`.
    fn trim(&mut self, id: &ResourceId, window: Window, mut journal: Option<&mut journal::Journal>) {
        while self.log.len() > window.changes || self.log_bytes > window.bytes {
            let Some(oldest) = self.log.pop_front() else { break };
            self.log_bytes -= oldest.after.bytes.len();
            self.dropped = oldest.revision;
            if let Some(journal) = &mut journal {
                journal.forget(id, &oldest);
            }
        }
    }
}

/// The size of a resource's history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) changes: usize,
    pub(crate) bytes: usize,
}

impl Window {
    /// A window of this many changes, and fewer if they are large.
    pub(crate) fn of(changes: usize) -> Self {
        Self { changes, bytes: 256 << 20 }
    }
}

/// Objects and their history.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// Revisions before this one are compacted, for all resources.
    floor: u64,
    window: Window,
    resources: BTreeMap<ResourceId, Resource>,
    /// Resources whose kind was removed, kept as long as watches follow them.
    closed: Vec<(ResourceId, Resource)>,
    /// Incremented to end every open watch.
    watch_epoch: u64,
    to_wake: Vec<Waker>,
    /// Changes that are not yet durable; `None` for a store without a data directory.
    journal: Option<journal::Journal>,
}

impl Store {
    pub(crate) fn new(revision: u64, window: Window) -> Self {
        Self {
            revision,
            floor: revision,
            window,
            resources: BTreeMap::new(),
            closed: Vec::new(),
            watch_epoch: 0,
            to_wake: Vec::new(),
            journal: None,
        }
    }

    /// The revision of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of the next change.
    pub(crate) fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    /// Leaves so many revisions out.
    pub(crate) fn skip_revisions(&mut self, count: u64) {
        self.revision += count;
    }

    pub(crate) fn get(&self, id: &ResourceId, key: &Key) -> Option<&Arc<Stored>> {
        self.resources.get(id)?.objects.get(key)
    }

    /// Stores a new version, created with [`Store::next_revision`].
    pub(crate) fn put(&mut self, id: &ResourceId, stored: Stored) -> Arc<Stored> {
        let after = Arc::new(stored);
        let resource = self.resources.entry(id.clone()).or_default();
        let before = resource.objects.insert(after.key.clone(), after.clone());
        self.record(id, before, after.clone(), false);
        after
    }

    /// Stores an object that was encoded before, as the next revision: its text is copied, not encoded again.
    pub(crate) fn put_encoded(&mut self, id: &ResourceId, encoded: &Stored) -> Arc<Stored> {
        self.put(id, encoded.at(self.next_revision()))
    }

    /// Removes an object; `last` is its final state, created with [`Store::next_revision`].
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
        #[cfg(test)]
        TOUCHED.with(|touched| touched.set(touched.get() + 1));
        let resource = self.resources.entry(id.clone()).or_default();
        resource.changed = after.revision;
        match &mut self.journal {
            // Watches are woken once the change is durable.
            Some(journal) => journal.keep(id, &after, removed),
            None => self.to_wake.append(&mut resource.take_wakers()),
        }
        resource.append(Change::new(before, after, removed));
        if let Some(older) =
            resource.log.len().checked_sub(RECENT + 1).and_then(|at| resource.log.get_mut(at))
        {
            older.after.forget_views();
            older.left = Arc::default();
        }
        resource.trim(id, self.window, self.journal.as_mut());
    }

    /// Replaces the reading of an object within its version, unless it has changed meanwhile. Nothing is written, and
    /// watches see nothing.
    pub(crate) fn renew(&mut self, id: &ResourceId, old: &Arc<Stored>, new: &Arc<Stored>) {
        #[cfg(test)]
        TOUCHED.with(|touched| touched.set(touched.get() + 1));
        let resource = self.resources.get_mut(id);
        if let Some(stored) = resource.and_then(|resource| resource.objects.get_mut(&old.key))
            && Arc::ptr_eq(stored, old)
        {
            *stored = new.clone();
        }
    }

    /// The revision of the newest change of a resource; 0 if it never changed.
    pub(crate) fn changed(&self, id: &ResourceId) -> u64 {
        self.resources.get(id).map_or(0, |resource| resource.changed)
    }

    /// Iterates over the objects of a resource in key order, optionally of one namespace and after a key.
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

    /// The oldest revision from which a watch of this resource can start without a gap.
    pub(crate) fn oldest(&self, id: &ResourceId) -> u64 {
        self.resources.get(id).map_or(0, |resource| resource.dropped).max(self.floor)
    }

    /// Like [`Store::range`], as of `revision`.
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
        // The oldest change after `revision` has the state at `revision`. It is visited last and wins.
        let mut undone: BTreeMap<Key, Option<Arc<Stored>>> = BTreeMap::new();
        let changes =
            self.resources.get(id).into_iter().flat_map(|resource| resource.changes_after(revision));
        for change in changes.rev() {
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

    /// Takes the wakers, to be called after the store is unlocked.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.to_wake)
    }

    pub(crate) fn watch_epoch(&self) -> u64 {
        self.watch_epoch
    }

    /// Ends every open watch.
    pub(crate) fn end_watches(&mut self) {
        self.watch_epoch += 1;
        let closed = self.closed.iter_mut().map(|(_, resource)| resource);
        for resource in self.resources.values_mut().chain(closed) {
            self.to_wake.append(&mut resource.take_wakers());
        }
    }

    /// Returns a copy with the objects of this store, and without its history, watches and journal.
    pub(crate) fn without_history(&self) -> Self {
        let resources = self.resources.iter().map(|(id, resource)| {
            let Resource { objects, changed, began, .. } = resource;
            let (objects, dropped) = (objects.clone(), self.revision);
            (
                id.clone(),
                Resource { objects, changed: *changed, began: *began, dropped, ..Resource::default() },
            )
        });
        let resources = resources.collect();
        Self { resources, floor: self.revision, ..Self::new(self.revision, self.window) }
    }

    /// Returns to the objects and the revision of an earlier state. Every open watch ends.
    pub(crate) fn set_back(&mut self, earlier: &Self) {
        self.end_watches();
        let mut copy = earlier.without_history();
        for (id, resource) in std::mem::take(&mut self.resources) {
            match copy.resources.get_mut(&id) {
                Some(same) if same.began == resource.began => same.watches = resource.watches,
                _ if resource.watches > 0 => {
                    self.closed.push((id, Resource { closed_at: Some(0), ..resource }))
                }
                _ => {}
            }
        }
        (self.revision, self.floor, self.resources) = (copy.revision, copy.floor, copy.resources);
    }

    /// Iterates over all objects, by resource and key.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&ResourceId, &Arc<Stored>)> {
        let resources = self.resources.iter();
        resources.flat_map(|(id, resource)| resource.objects.values().map(move |stored| (id, stored)))
    }

    /// Compacts the history: revisions before the current one are gone.
    pub(crate) fn compact(&mut self) {
        self.floor = self.revision;
        for (id, resource) in &mut self.resources {
            resource.trim(id, Window::of(0), self.journal.as_mut());
        }
        for (id, resource) in &mut self.closed {
            resource.trim(id, Window::of(0), None);
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How many objects this thread has changed so far.
    pub(crate) static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::kind::Kind;
    use crate::kinds::registry::Registry;

    struct Fixture {
        store: Store,
        kind: Arc<Kind>,
    }

    impl Fixture {
        fn new(window: usize) -> Self {
            let kind = Registry::new().find("", "v1", "configmaps").unwrap().clone();
            Self { store: Store::new(100, Window::of(window)), kind }
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
        let followed = f.store.follow(&f.kind.storage, 1);
        assert!(f.store.next_changes(&followed, first - 1, 1).is_err());
        assert!(!f.store.next_changes(&followed, first, 1).unwrap().is_empty());
    }

    #[test]
    fn large_changes_are_remembered_for_a_shorter_time() {
        let mut f = Fixture::new(1_000);
        f.store.window.bytes = 3 * f.object("a").bytes.len();
        let first = f.put("a");
        for _ in 0..3 {
            f.put("a");
        }
        assert_eq!(f.store.oldest(&f.kind.storage), first);
        f.put("a");
        assert_eq!(f.store.oldest(&f.kind.storage), first + 1);
        f.store.compact();
        assert_eq!(f.store.resources[&f.kind.storage].log_bytes, 0);
    }

    #[test]
    fn compaction_spares_a_cursor_that_has_seen_everything() {
        let mut f = Fixture::new(10);
        let seen = f.put("a");
        // Another resource advances the revision; this one is idle.
        f.store.revision += 5;
        f.store.compact();
        assert_eq!(f.store.oldest(&f.kind.storage), seen + 5);
        let followed = f.store.follow(&f.kind.storage, 1);
        assert!(f.store.next_changes(&followed, seen, 1).unwrap().is_empty());
        assert!(f.store.next_changes(&followed, seen - 1, 1).is_err());
    }

    #[test]
    fn nothing_is_left_of_a_resource_that_was_closed() {
        let mut f = Fixture::new(10);
        f.put("a");
        f.remove("a");
        f.store.close(&f.kind.storage);
        assert!(f.store.resources.is_empty() && f.store.closed.is_empty());
    }

    #[test]
    fn a_log_outlives_its_resource_until_the_last_watch_has_left() {
        let mut f = Fixture::new(10);
        let id = f.kind.storage.clone();
        let seen = f.put("a");
        let watches = [1, 2].map(|watch| f.store.follow(&id, watch));
        let gone = f.remove("a");
        f.store.close(&id);
        f.store.begin(&id);
        let again = f.put("a");
        for followed in &watches {
            assert_eq!(f.store.next_changes(followed, seen, 1).unwrap()[0].revision, gone);
            assert!(f.store.next_changes(followed, gone, 1).unwrap().is_empty() && f.store.is_over(followed));
            drop(f.store.leave(followed));
        }
        assert!(f.store.closed.is_empty());
        let followed = f.store.follow(&id, 3);
        assert!(f.store.next_changes(&followed, seen, 1).is_err(), "what was before is not known");
        assert_eq!(f.store.next_changes(&followed, gone, 1).unwrap()[0].revision, again);
        assert!(!f.store.is_over(&followed));
    }

    #[test]
    fn what_was_written_down_of_a_closed_resource_is_forgotten() {
        let mut f = Fixture::new(10);
        let id = f.kind.storage.clone();
        f.store = Store::kept(100, 100, Window::of(10), []);
        f.store.begin(&id);
        for _ in 0..3 {
            f.put("a");
        }
        f.remove("a");
        f.store.close(&id);
        let batch = f.store.take_batch().unwrap();
        let mut left: Vec<_> = batch.versions.iter().map(|(_, stored, _)| stored.revision).collect();
        left.retain(|revision| !batch.forgotten.contains(revision));
        assert_eq!((left, &batch.resources[&id]), (vec![], &Reach::Gone));
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
}
