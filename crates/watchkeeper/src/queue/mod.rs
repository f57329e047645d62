//! What waits between the reflector and the store? Deltas, in one of two queues.
//!
//! [`OrderedFifo`], the default, keeps the order of the watch stream and replaces the store in one step. [`DeltaFifo`] gathers the deltas of
//! each key, as the documents about client-go describe it. Both are pure: the driver around them does the waiting and the locking.

mod delta;
mod delta_fifo;
mod ordered;
#[cfg(test)]
mod tests;

pub use delta::{Deleted, Delta};
pub use delta_fifo::{DeltaFifo, Emit};
pub use ordered::OrderedFifo;

use crate::object::{Object, ObjectName, ResourceVersion};

/// The objects that the consumer of a queue holds already.
pub trait KnownObjects<K> {
    /// The object of that key.
    fn known(&self, key: &ObjectName) -> Option<Object<K>>;

    /// Calls `each` with every object.
    fn each_known(&self, each: &mut dyn FnMut(&Object<K>));
}

/// A queue of deltas between one reflector and one store.
///
/// The consumer calls [`Queue::pop`], applies what it got, and calls [`Queue::processed`]; until then what was popped counts as pending.
pub trait Queue<K>: Send {
    /// Adds one change of the watch stream.
    fn push(&mut self, delta: Delta<K>, known: &dyn KnownObjects<K>);

    /// Adds a whole new state, as a list gave it: what is known and not in `items` is deleted.
    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion, known: &dyn KnownObjects<K>);

    /// Adds every known object again, so that handlers hear of it.
    fn resync(&mut self, known: &dyn KnownObjects<K>);

    /// The next deltas to apply; `None` while there are none.
    fn pop(&mut self) -> Option<Popped<K>>;

    /// Tells that what was popped last has been applied.
    fn processed(&mut self);

    /// Whether the first state has been popped and applied, or a change came before any.
    fn has_synced(&self) -> bool;

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
