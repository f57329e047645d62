//! Relations: the handlers that turn changes of cached objects into keys to reconcile.

use super::caches::View;
use super::predicate::Predicates;
use crate::informer::Handler;
use crate::object::{Object, ObjectName};
use crate::queue::Deleted;

/// Maps an object to the keys that depend on it.
pub(super) type Map<W, K> = dyn Fn(&Object<W>, &View<'_, K>) -> Vec<ObjectName> + Send + Sync;

/// A handler that is not called with the updates that predicates reject.
pub(super) struct Passing<W, H> {
    pub(super) predicates: Predicates<W>,
    pub(super) handler: H,
}

impl<W: 'static, H: Handler<W>> Handler<W> for Passing<W, H> {
    fn sees_every_state(&self) -> bool {
        self.handler.sees_every_state()
    }

    fn add(&mut self, object: &Object<W>, in_initial_list: bool) {
        self.handler.add(object, in_initial_list);
    }

    fn update(&mut self, old: &Object<W>, new: &Object<W>) {
        if self.predicates.pass(old, new) {
            self.handler.update(old, new);
        }
    }

    fn delete(&mut self, deleted: &Deleted<W>) {
        self.handler.delete(deleted);
    }

    fn superseded(&mut self, last_cached: &Object<W>) {
        self.handler.superseded(last_cached);
    }
}

impl<W, H: Clone> Clone for Passing<W, H> {
    fn clone(&self) -> Self {
        Self { predicates: self.predicates.clone(), handler: self.handler.clone() }
    }
}
