//! Deltas between the reflector and the store, in one of two queues.
//!
//! [`OrderedFifo`], the default, keeps the order of the watch stream and replaces the store in one step. [`DeltaFifo`]
//! collects the deltas of each key, as the documents about client-go describe it. Both are pure; a [`DeltaQueue`] adds
//! the lock, the wake-ups and a bound.

mod delta;
mod delta_fifo;
mod delta_queue;
mod kind;
mod ordered;
#[cfg(test)]
mod tests;

pub use delta::{Deleted, Delta};
pub use delta_fifo::{DeltaFifo, Emit};
pub(crate) use delta_queue::DEFAULT_BOUND;
pub use delta_queue::{DeltaQueue, ProcessError};
pub use kind::{QueueKind, UnknownQueue};
pub use ordered::OrderedFifo;

use crate::object::{Object, ObjectName, ResourceVersion};

/// The objects that the consumer of a queue already holds.
pub trait KnownObjects<K> {
    /// Returns the object of that key.
    fn known(&self, key: &ObjectName) -> Option<Object<K>>;

    /// Calls `each` with every object.
    fn each_known(&self, each: &mut dyn FnMut(&Object<K>));

    /// Returns the known copy of `object` if it is in the same state, so that a relist does not hold that state twice.
    fn unchanged(&self, object: &Object<K>) -> Option<Object<K>> {
        self.known(&object.key()).filter(|known| known.same_state(object))
    }

    /// Called when the consumer has stopped and will not change these objects any more.
    fn ended(&self) {}

    /// Called before a request whose answer shows the server's newest version: a list, or a question for the version
    /// alone. Returns a number that is higher than all before it.
    fn asking(&self) -> u64 {
        0
    }

    /// Called with the server's version, as the answer to the request of that number showed it. What was written before
    /// [`KnownObjects::asking`], at a higher version, has been lost by the server.
    fn answered(&self, _question: u64, _version: &ResourceVersion) {}
}

/// No known objects, for a queue whose consumer holds none.
///
/// A list then deletes only queued objects, and a resync of a [`DeltaFifo`] does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKnown;

impl<K> KnownObjects<K> for NoKnown {
    fn known(&self, _key: &ObjectName) -> Option<Object<K>> {
        None
    }

    fn each_known(&self, _each: &mut dyn FnMut(&Object<K>)) {}
}

/// A queue of deltas between one reflector and one store.
///
/// One consumer calls [`Queue::pop`], applies the result, and calls [`Queue::processed`], or returns it with
/// [`Queue::add_if_not_present`]; until then the popped deltas count as pending. A pop without either ends the one
/// before.
///
/// No method fails: client-go's `KeyError` cannot happen here, since an [`Object`] always has a key. An object without
/// one is refused where objects are made ([`IdentityError`](crate::object::IdentityError),
/// [`KeyError`](crate::object::KeyError)).
pub trait Queue<K>: Send {
    /// Adds one change of the watch stream. A [`Delta::ReplacedAll`] is a [`Queue::replace`], and a [`Delta::SyncAll`]
    /// a [`Queue::resync`].
    fn push(&mut self, delta: Delta<K>, known: &dyn KnownObjects<K>);

    /// Adds a whole new state from a list: known objects that are not in `items` are deleted.
    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion, known: &dyn KnownObjects<K>);

    /// Adds every known object again, so that handlers are notified of it.
    fn resync(&mut self, known: &dyn KnownObjects<K>);

    /// Returns the next deltas to apply; `None` if there are none. Entries of a closed queue can still be popped.
    fn pop(&mut self) -> Option<Popped<K>>;

    /// Marks what was popped last as applied.
    fn processed(&mut self);

    /// Returns to the queue what was popped last and could not be applied, to be popped again.
    ///
    /// A queue that collects by key drops it if newer deltas of that key have arrived, as they supersede it. A queue in
    /// stream order puts it back in front. On a queue without a list or a change so far it counts as a change.
    fn add_if_not_present(&mut self, popped: Popped<K>);

    /// Returns whether the initial list has been popped and applied, or a change came before any list.
    fn has_synced(&self) -> bool;

    /// Marks the end: waiting consumers return once the queue is empty. Producers are not refused.
    fn close(&mut self);

    /// Returns whether [`Queue::close`] was called.
    fn is_closed(&self) -> bool;

    /// Returns the bytes that the queued deltas keep in memory. An object counts as often as it is queued.
    fn bytes(&self) -> usize;

    /// Returns the number of queued entries.
    fn len(&self) -> usize;

    /// Returns whether the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Deltas to apply together, oldest first.
#[derive(Debug)]
pub struct Popped<K> {
    /// The deltas.
    pub deltas: Vec<Delta<K>>,
    /// Whether they belong to the initial list.
    pub in_initial_list: bool,
    /// The version that the store has reached once they are applied, if it is known.
    pub version: Option<ResourceVersion>,
}

impl<K> Clone for Popped<K> {
    fn clone(&self) -> Self {
        Self {
            deltas: self.deltas.clone(),
            in_initial_list: self.in_initial_list,
            version: self.version.clone(),
        }
    }
}
