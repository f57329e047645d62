//! The queue that keeps deltas in stream order, with a whole list as a single entry.

use std::collections::VecDeque;

use super::{Delta, KnownObjects, Popped, Queue};
use crate::object::{Object, ResourceVersion};

/// The in-order queue: changes are applied in the order of the watch stream, and a list replaces the store in one step.
///
/// ```
/// use watchkeeper::Object;
/// use watchkeeper::queue::{Delta, NoKnown, OrderedFifo, Queue};
///
/// let mut queue = OrderedFifo::<()>::new();
/// queue.replace(vec![Object::from_json(br#"{"metadata":{"name":"a"}}"#)?], 7.into(), &NoKnown);
/// queue.push(Delta::Added(Object::from_json(br#"{"metadata":{"name":"b"}}"#)?), &NoKnown);
/// let list = queue.pop().unwrap();
/// assert!(list.in_initial_list && matches!(list.deltas[..], [Delta::ReplacedAll { .. }]));
/// queue.processed();
/// assert!(queue.has_synced());
/// # Ok::<(), watchkeeper::object::IdentityError>(())
/// ```
#[derive(Debug)]
pub struct OrderedFifo<K> {
    line: VecDeque<Entry<K>>,
    /// The sum of `bytes` in `line`.
    bytes: usize,
    /// Whether there has been a list or a change.
    populated: bool,
    /// Entries that belong to the initial list: those in flight, and at the head of `line`.
    initial: usize,
    /// Entries popped and not yet processed.
    in_flight: usize,
    closed: bool,
}

#[derive(Debug)]
struct Entry<K> {
    delta: Delta<K>,
    /// Computed once, as a list may be long.
    bytes: usize,
}

/// The maximum number of deltas that are applied together, with one publication of the store.
const BATCH: usize = 1000;

impl<K> Default for OrderedFifo<K> {
    fn default() -> Self {
        Self { line: VecDeque::new(), bytes: 0, populated: false, initial: 0, in_flight: 0, closed: false }
    }
}

impl<K> OrderedFifo<K> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    fn entry(&mut self, delta: Delta<K>) -> Entry<K> {
        let bytes = delta.bytes();
        self.bytes += bytes;
        Entry { delta, bytes }
    }

    fn append(&mut self, delta: Delta<K>) {
        let entry = self.entry(delta);
        self.line.push_back(entry);
    }
}

/// Returns whether the entry is applied alone.
fn is_alone<K>(entry: &Entry<K>) -> bool {
    matches!(entry.delta, Delta::ReplacedAll { .. } | Delta::SyncAll)
}

impl<K: Send + Sync> Queue<K> for OrderedFifo<K> {
    fn push(&mut self, delta: Delta<K>, known: &dyn KnownObjects<K>) {
        match delta {
            Delta::ReplacedAll { items, version } => self.replace(items, version, known),
            Delta::SyncAll => self.resync(known),
            delta => {
                self.populated |= delta.key().is_some();
                self.append(delta);
            }
        }
    }

    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion, _known: &dyn KnownObjects<K>) {
        self.append(Delta::ReplacedAll { items, version });
        if !self.populated {
            self.populated = true;
            self.initial = self.in_flight + self.line.len();
        }
    }

    fn resync(&mut self, _known: &dyn KnownObjects<K>) {
        self.append(Delta::SyncAll);
    }

    fn pop(&mut self) -> Option<Popped<K>> {
        self.processed();
        self.line.front()?;
        // A batch is initial as a whole or not at all: the initial list is an entry of its own.
        let take = self.line.iter().take(BATCH).take_while(|entry| !is_alone(entry)).count().max(1);
        let in_initial_list = !self.has_synced();
        let mut deltas = Vec::with_capacity(take);
        for entry in self.line.drain(..take) {
            self.bytes -= entry.bytes;
            deltas.push(entry.delta);
        }
        let version = deltas.iter().rev().find_map(Delta::version).cloned();
        self.in_flight = take;
        Some(Popped { deltas, in_initial_list, version })
    }

    fn processed(&mut self) {
        self.initial = self.initial.saturating_sub(std::mem::take(&mut self.in_flight));
    }

    fn add_if_not_present(&mut self, popped: Popped<K>) {
        let is_return = std::mem::take(&mut self.in_flight) > 0;
        if !is_return && self.initial > 0 {
            self.initial += popped.deltas.len();
        }
        for delta in popped.deltas.into_iter().rev() {
            self.populated |= !matches!(delta, Delta::SyncAll | Delta::Bookmark(_));
            let entry = self.entry(delta);
            self.line.push_front(entry);
        }
    }

    fn has_synced(&self) -> bool {
        self.populated && self.initial == 0
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn len(&self) -> usize {
        self.line.len()
    }
}
