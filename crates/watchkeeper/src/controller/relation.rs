//! Relations: the handlers that turn changes of cached objects into keys to reconcile.

use std::sync::Arc;

use super::caches::{KindCaches, View};
use super::predicate::Predicates;
use crate::informer::{Change, Handler};
use crate::object::{Kind, Object, ObjectName, ResourceVersion};
use crate::queue::Deleted;
use crate::workqueue::{ObjectRef, Priority, RateLimitingQueue, Reason, Relation, Trigger};

/// Maps an object to the keys that depend on it.
pub(super) type Map<W, K> = dyn Fn(&Object<W>, &View<'_, K>) -> Vec<ObjectName> + Send + Sync;

/// Enqueues the main objects themselves.
pub(super) struct Itself<K> {
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) predicates: Predicates<K>,
}

impl<K> Itself<K> {
    fn enqueue(&self, key: ObjectName, change: &Change<'_, K>) {
        let version = change.last_known().map_or(&ResourceVersion::UNSET, Object::version);
        let trigger = Trigger::itself(Reason::of(change), version);
        self.queue.add_because(key, Priority::of(change), trigger);
    }
}

impl<K> Clone for Itself<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), predicates: self.predicates.clone() }
    }
}

impl<K: 'static> Handler<K> for Itself<K> {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        self.enqueue(object.key(), &Change::Added { object, in_initial_list });
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        if self.predicates.pass(old, new) {
            self.enqueue(new.key(), &Change::Updated { old, new });
        }
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        self.enqueue(deleted.key(), &Change::Deleted(deleted));
    }
}

/// Enqueues the main objects to which a related object maps.
pub(super) struct Related<W, K: Kind> {
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) predicates: Predicates<W>,
    pub(super) map: Arc<Map<W, K>>,
    pub(super) mains: Arc<KindCaches<K>>,
    /// The name of the related kind, for triggers.
    pub(super) kind: Arc<str>,
    pub(super) relation: Relation,
}

impl<W, K: Kind> Related<W, K> {
    fn keys(&self, state: &Object<W>) -> Vec<ObjectName> {
        (self.map)(state, &View(&self.mains))
    }

    /// Enqueues the keys of an object that was last seen in `state`.
    fn enqueue(&self, keys: Vec<ObjectName>, state: &Object<W>, priority: Priority, reason: Reason) {
        if keys.is_empty() {
            return;
        }
        let object = ObjectRef::new(self.kind.clone(), state.key());
        let trigger = Trigger::related(self.relation, object, reason, state.version());
        for key in keys {
            self.queue.add_because(key, priority, trigger.clone());
        }
    }
}

impl<W: 'static, K: Kind> Handler<W> for Related<W, K> {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<W>, in_initial_list: bool) {
        let change = Change::Added { object, in_initial_list };
        self.enqueue(self.keys(object), object, Priority::of(&change), Reason::of(&change));
    }

    /// Both states count: where an object goes from one owner to the next, both are reconciled.
    fn update(&mut self, old: &Object<W>, new: &Object<W>) {
        if !self.predicates.pass(old, new) {
            return;
        }
        let change = Change::Updated { old, new };
        let mut keys = self.keys(new);
        if !change.is_resync() {
            let before = self.keys(old);
            if before != keys {
                keys.extend(before);
            }
        }
        self.enqueue(keys, new, Priority::of(&change), Reason::of(&change));
    }

    fn delete(&mut self, deleted: &Deleted<W>) {
        if let Some(state) = deleted.last_known() {
            let change = Change::Deleted(deleted);
            self.enqueue(self.keys(state), state, Priority::of(&change), Reason::of(&change));
        }
    }

    fn superseded(&mut self, last_cached: &Object<W>) {
        self.enqueue(self.keys(last_cached), last_cached, Priority::Normal, Reason::Changed);
    }
}

impl<W, K: Kind> Clone for Related<W, K> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            predicates: self.predicates.clone(),
            map: self.map.clone(),
            mains: self.mains.clone(),
            kind: self.kind.clone(),
            relation: self.relation,
        }
    }
}
