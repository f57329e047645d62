//! How are deltas kept in the order of the stream? In one line, with a whole list as a single entry.

use std::collections::VecDeque;

use super::{Delta, KnownObjects, Popped, Queue};
use crate::object::{Object, ResourceVersion};

/// The in-order queue: changes are applied in the order of the watch stream, and a list replaces the store in one step.
#[derive(Debug)]
pub struct OrderedFifo<K> {
    line: VecDeque<Delta<K>>,
    /// A list or a change has come.
    populated: bool,
    /// Entries at the head that belong to the first state.
    initial: usize,
    /// Entries popped and not yet processed.
    in_flight: usize,
}

/// Deltas that go to the store together at most: one publication of the store for all of them.
const BATCH: usize = 1000;

impl<K> Default for OrderedFifo<K> {
    fn default() -> Self {
        Self { line: VecDeque::new(), populated: false, initial: 0, in_flight: 0 }
    }
}

impl<K> OrderedFifo<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<K: Send + Sync> Queue<K> for OrderedFifo<K> {
    fn push(&mut self, delta: Delta<K>, _known: &dyn KnownObjects<K>) {
        self.populated |= !matches!(delta, Delta::Bookmark(_));
        self.line.push_back(delta);
    }

    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion, _known: &dyn KnownObjects<K>) {
        self.line.push_back(Delta::ReplacedAll { items, version });
        if !self.populated {
            self.populated = true;
            self.initial = self.line.len();
        }
    }

    fn resync(&mut self, _known: &dyn KnownObjects<K>) {
        self.line.push_back(Delta::SyncAll);
    }

    fn pop(&mut self) -> Option<Popped<K>> {
        // A batch holds initial entries only, or none.
        let most = if self.initial > 0 { self.initial } else { BATCH };
        let alone = |delta: &Delta<K>| matches!(delta, Delta::ReplacedAll { .. } | Delta::SyncAll);
        let take = match self.line.front()? {
            head if alone(head) => 1,
            _ => self.line.iter().take(most.min(BATCH)).take_while(|delta| !alone(delta)).count(),
        };
        let in_initial_list = !self.has_synced();
        let deltas: Vec<_> = self.line.drain(..take).collect();
        let version = deltas.iter().rev().find_map(Delta::version).cloned();
        self.in_flight = take;
        Some(Popped { deltas, in_initial_list, version })
    }

    fn processed(&mut self) {
        self.initial = self.initial.saturating_sub(std::mem::take(&mut self.in_flight));
    }

    fn has_synced(&self) -> bool {
        self.populated && self.initial == 0
    }

    fn len(&self) -> usize {
        self.line.len()
    }
}
