//! Relations: the handlers that turn changes of cached objects into keys to reconcile.

use std::sync::Arc;

use super::caches::{KindCaches, View};
use super::context::is_cluster_scoped;
use super::predicate::Predicates;
use crate::informer::{Change, Handler};
use crate::object::{Kind, Object, ObjectName};
use crate::queue::Deleted;
use crate::workqueue::{Priority, RateLimitingQueue};

/// Maps an object to the keys that depend on it.
pub(super) type Map<W, K> = dyn Fn(&Object<W>, &View<'_, K>) -> Vec<ObjectName> + Send + Sync;

/// Enqueues the main objects themselves.
pub(super) struct Itself<K> {
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) predicates: Predicates<K>,
}

impl<K> Itself<K> {
    fn enqueue(&self, object: &Object<K>, priority: Priority) {
        self.queue.add_with(object.key(), priority);
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
        self.enqueue(object, Priority::of(&Change::Added { object, in_initial_list }));
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        if self.predicates.pass(old, new) {
            self.enqueue(new, Priority::of(&Change::Updated { old, new }));
        }
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        let priority = Priority::of(&Change::Deleted(deleted));
        match deleted.last_known() {
            Some(object) => self.enqueue(object, priority),
            None => self.queue.add_with(deleted.key(), priority),
        }
    }
}

/// Enqueues the main objects to which a related object maps.
pub(super) struct Related<W, K: Kind> {
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) predicates: Predicates<W>,
    pub(super) map: Arc<Map<W, K>>,
    pub(super) mains: Arc<KindCaches<K>>,
}

impl<W, K: Kind> Related<W, K> {
    pub(super) fn enqueue(&self, state: &Object<W>, priority: Priority) {
        for key in (self.map)(state, &View(&self.mains)) {
            self.queue.add_with(key, priority);
        }
    }
}

impl<W: 'static, K: Kind> Handler<W> for Related<W, K> {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<W>, in_initial_list: bool) {
        self.enqueue(object, Priority::of(&Change::Added { object, in_initial_list }));
    }

    /// Both states count: where an object goes from one owner to the next, both are reconciled.
    fn update(&mut self, old: &Object<W>, new: &Object<W>) {
        if !self.predicates.pass(old, new) {
            return;
        }
        let change = Change::Updated { old, new };
        let priority = Priority::of(&change);
        self.enqueue(new, priority);
        if !change.is_resync() {
            self.enqueue(old, priority);
        }
    }

    fn delete(&mut self, deleted: &Deleted<W>) {
        if let Some(state) = deleted.last_known() {
            self.enqueue(state, Priority::of(&Change::Deleted(deleted)));
        }
    }

    fn superseded(&mut self, last_cached: &Object<W>) {
        self.enqueue(last_cached, Priority::Normal);
    }
}

impl<W, K: Kind> Clone for Related<W, K> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            predicates: self.predicates.clone(),
            map: self.map.clone(),
            mains: self.mains.clone(),
        }
    }
}

/// The key of the object of kind `K` that controls `object`, if one does.
pub(super) fn controller_key<W, K: Kind>(object: &Object<W>, kind: &K::DynamicType) -> Option<ObjectName> {
    let owner = object.controller()?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    if owner.kind != K::kind(kind) || group != K::group(kind) {
        return None;
    }
    // An owner is in the namespace of what it owns, or in none.
    let namespace = if is_cluster_scoped::<K>() { None } else { object.namespace() };
    Some(ObjectName::namespaced(namespace.unwrap_or(""), &owner.name))
}
