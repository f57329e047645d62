//! Deltas between the reflector and the store, in one of two queues.
//!
//! [`OrderedFifo`], the default, keeps the order of the watch stream and replaces the store in one step. [`DeltaFifo`] gathers the deltas of
//! each key, as the documents about client-go describe it. Both are pure; a [`DeltaQueue`] adds the lock, the wake-ups and a bound.

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

/// The objects that the consumer of a queue holds already.
pub trait KnownObjects<K> {
    /// The object of that key.
    fn known(&self, key: &ObjectName) -> Option<Object<K>>;

    /// Calls `each` with every object.
    fn each_known(&self, each: &mut dyn FnMut(&Object<K>));

    /// The known copy of `object`, where it is in the same state: a relist then does not hold that state twice.
    fn unchanged(&self, object: &Object<K>) -> Option<Object<K>> {
        self.known(&object.key()).filter(|known| known.same_state(object))
    }

    /// The consumer has stopped: it will not change these objects any more.
    fn ended(&self) {}
}

/// Nothing is known: for a queue whose consumer holds no objects.
///
/// Then only what is queued counts when a list shows deletions, and a resync of a [`DeltaFifo`] tells nothing.
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
/// One consumer calls [`Queue::pop`], applies what it got, and calls [`Queue::processed`], or gives it back with
/// [`Queue::add_if_not_present`]; until then what was popped counts as pending. A pop without either ends the one before.
///
/// No method fails: client-go's `KeyError` cannot happen here, since an [`Object`] always has a key. What has none is refused where objects
/// are made ([`IdentityError`](crate::object::IdentityError), [`KeyError`](crate::object::KeyError)), before it comes near a queue.
pub trait Queue<K>: Send {
    /// Adds one change of the watch stream. A [`Delta::ReplacedAll`] is a [`Queue::replace`], and a [`Delta::SyncAll`] a [`Queue::resync`].
    fn push(&mut self, delta: Delta<K>, known: &dyn KnownObjects<K>);

    /// Adds a whole new state, as a list gave it: what is known and not in `items` is deleted.
    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion, known: &dyn KnownObjects<K>);

    /// Adds every known object again, so that handlers hear of it.
    fn resync(&mut self, known: &dyn KnownObjects<K>);

    /// The next deltas to apply; `None` while there are none. What waits when the queue is closed can still be popped.
    fn pop(&mut self) -> Option<Popped<K>>;

    /// Tells that what was popped last has been applied.
    fn processed(&mut self);

    /// Gives back what was popped last and could not be applied, to be popped again.
    ///
    /// By a queue that gathers by key it is dropped where newer deltas of that key have come: they tell what became of the object. A queue
    /// in order puts it back in front. On a queue that has had no list and no change yet it counts as a change.
    fn add_if_not_present(&mut self, popped: Popped<K>);

    /// Whether the first state has been popped and applied, or a change came before any.
    fn has_synced(&self) -> bool;

    /// Marks the end: whoever drives the queue lets waiting consumers go once it is empty. Producers are not refused.
    fn close(&mut self);

    /// Whether [`Queue::close`] was called.
    fn is_closed(&self) -> bool;

    /// Bytes that the waiting deltas keep in memory, an object counted as often as it waits.
    fn bytes(&self) -> usize;

    /// How many entries wait.
    fn len(&self) -> usize;

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Deltas to apply together, oldest first.
#[derive(Debug)]
pub struct Popped<K> {
    /// What to apply.
    pub deltas: Vec<Delta<K>>,
    /// Whether they belong to the first state.
    pub in_initial_list: bool,
    /// The version that the store has reached once they are applied, where that is known.
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
