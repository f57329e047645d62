//! One write that a cache may not have seen yet.

use std::any::Any;
use std::sync::{Arc, Weak};

use crate::clock::Instant;
use crate::object::{ObjectName, ResourceVersion};
use crate::store::{Shown, Subscriber, WeakIndexer};

/// A store, whatever is in it, which is not kept alive.
pub(super) trait Cache: Send + Sync {
    /// The same for clones of one store only.
    fn id(&self) -> usize;
    /// The version that the store has reached; `None` where the store is gone, or nobody fills it any more.
    fn version(&self) -> Option<ResourceVersion>;
    /// The answer to the informer's last question for the server's version.
    fn shown(&self) -> Option<Shown>;
    /// The kind of its objects, by the name of their Rust type; empty where that is one for many kinds.
    fn kind(&self) -> &'static str;
    fn contains(&self, name: &ObjectName) -> bool;
    /// Whether the object of that name and uid is there.
    fn has(&self, name: &ObjectName, uid: &str) -> bool;
    /// Whether the object of that name and uid is there, and not being deleted.
    fn is_alive(&self, name: &ObjectName, uid: &str) -> bool;
    fn subscribe(&self, subscriber: Weak<dyn Subscriber>);
}

impl<K: Send + Sync + 'static> Cache for WeakIndexer<K> {
    fn id(&self) -> usize {
        self.address()
    }

    fn version(&self) -> Option<ResourceVersion> {
        let store = self.upgrade()?;
        (!store.has_ended()).then(|| store.version())
    }

    fn shown(&self) -> Option<Shown> {
        self.upgrade().and_then(|store| store.asked().1)
    }

    fn kind(&self) -> &'static str {
        let path = std::any::type_name::<K>();
        let name = path.rsplit("::").next().unwrap_or(path);
        if name.starts_with("Dynamic") { "" } else { name.trim_end_matches('>') }
    }

    fn contains(&self, name: &ObjectName) -> bool {
        self.upgrade().is_some_and(|store| store.get(name).is_some())
    }

    fn has(&self, name: &ObjectName, uid: &str) -> bool {
        let cached = self.upgrade().and_then(|store| store.get(name));
        cached.is_some_and(|object| object.uid() == uid)
    }

    fn is_alive(&self, name: &ObjectName, uid: &str) -> bool {
        let cached = self.upgrade().and_then(|store| store.get(name));
        cached.is_some_and(|object| !object.is_deleting() && (uid.is_empty() || object.uid() == uid))
    }

    fn subscribe(&self, subscriber: Weak<dyn Subscriber>) {
        if let Some(store) = self.upgrade() {
            store.subscribe(subscriber);
        }
    }
}

/// What the server answered to a write: an `Object<K>`, or nothing after a delete.
pub(super) type Answer = Option<Arc<dyn Any + Send + Sync>>;

/// The last write of a key to one object of one cache.
pub(super) struct Write {
    pub(super) cache: Arc<dyn Cache>,
    pub(super) name: ObjectName,
    /// The highest version written; unset where the answers carried none.
    pub(super) version: ResourceVersion,
    pub(super) uid: String,
    pub(super) deleted: bool,
    /// Whether the answer does not match the selectors of the cache's informer.
    pub(super) outside: bool,
    /// The version of the cache when the write was entered. A cache that falls behind it was relisted from an older state, in
    /// which this write may not exist.
    pub(super) base: ResourceVersion,
    /// The questions for the server's version that had begun when the write was entered. A later one shows whether the
    /// server still has the write.
    pub(super) asked: u64,
    pub(super) answer: Answer,
    pub(super) entered: Instant,
    /// Whether the patience of a run has already ended over this write: no further run waits for it.
    pub(super) overdue: bool,
}

impl Write {
    /// Whether the cache reflects the write, or never will: an informer that is gone, stopped or set back, a write that the
    /// server has lost, or versions that cannot be compared.
    pub(super) fn is_seen(&self) -> bool {
        let Some(reached) = self.cache.version() else { return true };
        let wanted = &self.version;
        let is_opaque = !wanted.is_unset() && !reached.is_unset() && reached.partial_cmp(wanted).is_none();
        if is_opaque || self.is_lost_at(&reached) {
            return true;
        }
        let is_fresh = wanted.is_unset() || reached >= *wanted || planted!(SeenTooEarly);
        if self.deleted {
            (is_fresh || self.outside) && !self.is_alive()
        } else {
            is_fresh || (self.outside && !self.cache.contains(&self.name))
        }
    }

    /// Whether the server, whose cache is at `reached`, has lost the write: its history was set back.
    fn is_lost_at(&self, reached: &ResourceVersion) -> bool {
        if !self.base.is_unset() && *reached < self.base {
            return true;
        }
        // The server's newest state, in an answer that is later than that to the write.
        let Some(newest) = self.cache.shown().filter(|shown| shown.question > self.asked) else {
            return false;
        };
        let has_returned = self.deleted && *reached >= newest.version && self.is_alive();
        newest.version < self.version || has_returned
    }

    fn is_alive(&self) -> bool {
        self.cache.is_alive(&self.name, &self.uid)
    }

    /// Whether the write is undone and nobody was notified of that: the server has lost it, or the cache is past it and does not
    /// have the object, which is gone again.
    pub(super) fn has_vanished(&self) -> bool {
        let Some(reached) = self.cache.version() else { return false };
        if self.is_lost_at(&reached) {
            return true;
        }
        reached >= self.version
            && !self.deleted
            && !self.outside
            && !self.version.is_unset()
            && !self.cache.has(&self.name, &self.uid)
    }

    /// The version that the cache must reach before this write can be seen; zero where other changes of the cache may show it.
    pub(super) fn needs(&self) -> u64 {
        if self.deleted || self.outside { 0 } else { self.version.as_number().unwrap_or(0) }
    }

    /// Takes over what a later write to the same object does not say.
    pub(super) fn follow(mut self, earlier: Self) -> Self {
        // A write that changed nothing is answered with the version of an earlier one.
        let is_older = !self.deleted && self.version < earlier.version;
        if is_older {
            return earlier;
        }
        if self.version.is_unset() {
            self.version = earlier.version;
        }
        if self.uid.is_empty() {
            self.uid = earlier.uid;
        }
        if earlier.base > self.base {
            self.base = earlier.base;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::object::Object;
    use crate::queue::KnownObjects;
    use crate::store::Indexer;

    fn store() -> Indexer<()> {
        Indexer::new(&Env::simulated(1), [])
    }

    fn object(uid: &str, deleting: bool) -> Object<()> {
        let deletion = if deleting { r#","deletionTimestamp":"2026-01-01T00:00:00Z""# } else { "" };
        let json = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"{deletion}}}}}"#);
        Object::from_json(json.as_bytes()).unwrap()
    }

    fn write(store: &Indexer<()>, version: ResourceVersion, deleted: bool) -> Write {
        Write {
            cache: Arc::new(store.downgrade()),
            name: ObjectName::cluster("a"),
            version,
            uid: "u".to_owned(),
            deleted,
            outside: false,
            base: store.version(),
            asked: store.asked().0,
            answer: None,
            entered: Env::simulated(1).clock.now(),
            overdue: false,
        }
    }

    fn reach(store: &Indexer<()>, version: u64) {
        store.write(|batch| batch.set_version(version.into()));
    }

    #[test]
    fn a_write_is_seen_when_the_cache_has_reached_its_version() {
        let store = store();
        reach(&store, 3);
        let write = write(&store, 5.into(), false);
        assert!(!write.is_seen());
        reach(&store, 4);
        assert!(!write.is_seen());
        reach(&store, 5);
        assert!(write.is_seen());
    }

    #[test]
    fn a_write_outside_the_selection_is_seen_when_the_cache_has_no_such_object() {
        let store = store();
        let write = Write { outside: true, ..write(&store, 5.into(), false) };
        store.add(object("u", false));
        assert!(!write.is_seen(), "the cache still shows the state before");
        store.delete(&ObjectName::cluster("a"));
        assert!(write.is_seen());
    }

    #[test]
    fn a_delete_is_seen_when_the_object_is_absent_another_or_being_deleted() {
        let store = store();
        let write = write(&store, ResourceVersion::UNSET, true);
        assert!(write.is_seen(), "absent");
        store.add(object("u", false));
        assert!(!write.is_seen());
        store.add(object("u", true));
        assert!(write.is_seen(), "being deleted");
        store.add(object("other", false));
        assert!(write.is_seen(), "another object of that name");
    }

    #[test]
    fn a_delete_of_what_was_just_created_waits_for_the_creation_too() {
        let store = store();
        reach(&store, 4);
        let created = write(&store, 5.into(), false);
        let deleted = write(&store, ResourceVersion::UNSET, true).follow(created);
        assert!(!deleted.is_seen(), "the object is absent because the cache is behind");
        reach(&store, 5);
        assert!(deleted.is_seen());
    }

    #[test]
    fn a_cache_that_was_set_back_or_has_ended_is_not_waited_for() {
        let store = store();
        reach(&store, 9);
        let write = write(&store, 12.into(), false);
        assert!(!write.is_seen());
        reach(&store, 7);
        assert!(write.is_seen(), "the server was set back");
        reach(&store, 10);
        assert!(!write.is_seen());
        store.ended();
        assert!(write.is_seen());
    }

    #[test]
    fn a_later_answer_of_the_server_at_a_lower_version_shows_that_it_has_lost_the_write() {
        let store = store();
        reach(&store, 3);
        let early = store.asking();
        let write = write(&store, 12.into(), false);
        store.answered(early, &7.into());
        assert!(!write.is_seen(), "the answer may be older than the write");
        let late = store.asking();
        store.answered(late, &7.into());
        assert!(write.is_seen() && write.has_vanished());
    }

    #[test]
    fn a_later_answer_of_the_server_at_the_version_of_the_write_proves_nothing() {
        let store = store();
        let write = write(&store, 12.into(), false);
        let question = store.asking();
        store.answered(question, &12.into());
        assert!(!write.is_seen(), "the cache is behind");
    }

    #[test]
    fn a_deleted_object_that_a_later_state_of_the_server_has_was_restored() {
        let store = store();
        store.add(object("u", false));
        reach(&store, 3);
        let write = write(&store, ResourceVersion::UNSET, true);
        let question = store.asking();
        store.answered(question, &5.into());
        assert!(!write.is_seen(), "the cache may be behind the delete");
        reach(&store, 5);
        assert!(write.is_seen() && write.has_vanished());
    }

    #[test]
    fn a_version_that_cannot_be_compared_is_not_waited_for() {
        let store = store();
        reach(&store, 9);
        assert!(write(&store, "opaque".into(), false).is_seen());
        assert!(write(&store, ResourceVersion::UNSET, false).is_seen());
    }

    #[test]
    fn of_two_writes_the_later_version_counts() {
        let store = store();
        let follow = |later: u64, earlier: u64| {
            write(&store, later.into(), false).follow(write(&store, earlier.into(), false)).version
        };
        assert_eq!(follow(6, 5), 6.into());
        assert_eq!(follow(5, 6), 6.into());
    }

    #[test]
    fn a_store_that_is_gone_is_not_kept_alive() {
        let store = store();
        let write = write(&store, 5.into(), false);
        drop(store);
        assert!(write.is_seen() && !write.cache.contains(&ObjectName::cluster("a")));
    }
}
