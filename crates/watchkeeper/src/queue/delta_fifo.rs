//! The queue that collects the deltas of each key and returns them together.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::{Deleted, Delta, KnownObjects, Popped, Queue};
use crate::clock::Generator;
use crate::object::{Object, ObjectName, ResourceVersion};

/// The queue that most documents about client-go describe: a list of deltas per key, oldest first.
///
/// It works with the objects that its consumer knows, or without by passing [`NoKnown`](super::NoKnown). Changes of
/// different objects may overtake each other, so the store has a version only when the queue is empty.
///
/// ```
/// use watchkeeper::queue::{Delta, DeltaFifo, NoKnown, Queue};
/// use watchkeeper::{Env, Object};
///
/// let mut queue = DeltaFifo::<()>::new(&Env::simulated(1).generator);
/// for json in [r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"b"}}"#, r#"{"metadata":{"name":"a"}}"#] {
///     queue.push(Delta::Updated(Object::from_json(json.as_bytes())?), &NoKnown);
/// }
/// assert_eq!(queue.pop().map(|popped| popped.deltas.len()), Some(2)); // both changes of a
/// assert_eq!(queue.len(), 1);
/// # Ok::<(), watchkeeper::object::IdentityError>(())
/// ```
#[derive(Debug)]
pub struct DeltaFifo<K> {
    /// Exactly the keys in `line` have deltas here.
    deltas: HashMap<ObjectName, Vec<Delta<K>>, FixedState>,
    /// The first `initial` keys are those of the initial list, one less while `initial_in_flight`.
    line: VecDeque<ObjectName>,
    /// The sum over `deltas`.
    bytes: usize,
    /// The key popped last, until it is processed: it still counts as pending, with the state it will have.
    in_flight: Option<(ObjectName, Option<Object<K>>)>,
    populated: bool,
    /// Pops and processings of the initial list still to come.
    initial: usize,
    /// Whether the pop in flight was one of them.
    initial_in_flight: bool,
    emit: Emit,
    /// The version of the last input; `None` before there was any.
    newest: Option<ResourceVersion>,
    /// The newest version returned with a pop.
    returned: Option<ResourceVersion>,
    closed: bool,
}

/// The type of the deltas that a list brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Emit {
    /// [`Delta::Replaced`].
    #[default]
    Replaced,
    /// [`Delta::Sync`], as old clients expect.
    Sync,
}

impl<K> DeltaFifo<K> {
    /// Returns an empty queue, whose hash seed comes from `generator`.
    pub fn new(generator: &Generator) -> Self {
        Self {
            deltas: HashMap::with_hasher(generator.hasher()),
            line: VecDeque::new(),
            bytes: 0,
            in_flight: None,
            populated: false,
            initial: 0,
            initial_in_flight: false,
            emit: Emit::default(),
            newest: None,
            returned: None,
            closed: false,
        }
    }

    /// Sets the type of the deltas of a list.
    #[must_use]
    pub fn emit(mut self, emit: Emit) -> Self {
        self.emit = emit;
        self
    }

    fn append(&mut self, key: ObjectName, delta: Delta<K>) {
        let pending = self.deltas.entry_ref(&key).or_default();
        if pending.is_empty() {
            self.line.push_back(key);
        }
        self.bytes += delta.bytes();
        pending.push(delta);
        // Two deletes in a row are merged into the one that has the final state.
        if let [.., first, second] = pending.as_slice()
            && first.is_delete()
            && second.is_delete()
        {
            let older_is_tombstone = matches!(first, Delta::Deleted(Deleted::Unknown { .. }));
            let drop_at = pending.len() - if older_is_tombstone { 2 } else { 1 };
            self.bytes -= pending.remove(drop_at).bytes();
        }
    }

    fn is_in_flight(&self, key: &ObjectName) -> bool {
        self.in_flight.as_ref().is_some_and(|(popped, _)| popped == key)
    }

    fn is_pending(&self, key: &ObjectName) -> bool {
        self.deltas.contains_key(key) || self.is_in_flight(key)
    }
}

impl<K: Send + Sync> Queue<K> for DeltaFifo<K> {
    fn push(&mut self, delta: Delta<K>, known: &dyn KnownObjects<K>) {
        let delta = match delta {
            Delta::ReplacedAll { items, version } => return self.replace(items, version, known),
            Delta::SyncAll => return self.resync(known),
            delta => delta,
        };
        if let Some(version) = delta.version() {
            self.newest = Some(version.clone());
        }
        let Some(key) = delta.key() else { return };
        self.populated = true;
        // A delete of an unknown object is ignored.
        if delta.is_delete() && !self.is_pending(&key) && known.known(&key).is_none() {
            return;
        }
        self.append(key, delta);
    }

    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion, known: &dyn KnownObjects<K>) {
        let mut listed = HashSet::with_capacity_and_hasher(items.len(), self.deltas.hasher().clone());
        for object in items {
            let key = object.key();
            listed.insert(key.clone());
            let delta = match self.emit {
                Emit::Replaced => Delta::Replaced(object),
                Emit::Sync => Delta::Sync(object),
            };
            self.append(key, delta);
        }
        // The listed objects are pending by now; all others that are pending or known are deleted.
        let mut gone: Vec<(ObjectName, Option<Object<K>>)> = Vec::new();
        for key in self.line.iter().filter(|key| !listed.contains(*key)) {
            let newest = self.deltas.get(key).and_then(|deltas| deltas.last());
            gone.push((key.clone(), newest.and_then(Delta::object).cloned()));
        }
        if let Some((key, last_known)) = &self.in_flight
            && !self.deltas.contains_key(key)
        {
            gone.push((key.clone(), last_known.clone()));
        }
        known.each_known(&mut |object| {
            let key = object.key();
            if !self.is_pending(&key) {
                gone.push((key, Some(object.clone())));
            }
        });
        let deletions = gone.len();
        for (key, last_known) in gone {
            self.append(key.clone(), Delta::Deleted(Deleted::Unknown { key, last_known }));
        }
        if !self.populated {
            self.populated = true;
            self.initial = listed.len() + deletions;
        }
        self.newest = Some(version);
    }

    fn resync(&mut self, known: &dyn KnownObjects<K>) {
        let mut again = Vec::new();
        known.each_known(&mut |object| {
            let key = object.key();
            // Pending states are newer than known ones.
            if !self.is_pending(&key) {
                again.push((key, object.clone()));
            }
        });
        for (key, object) in again {
            self.append(key, Delta::Sync(object));
        }
    }

    fn pop(&mut self) -> Option<Popped<K>> {
        self.processed();
        let in_initial_list = !self.has_synced();
        let deltas = match self.line.pop_front() {
            Some(key) => {
                let deltas = self.deltas.remove(&key).unwrap_or_default();
                self.bytes -= deltas.iter().map(Delta::bytes).sum::<usize>();
                let newest = deltas.last().and_then(Delta::object).cloned();
                self.in_flight = Some((key, newest));
                self.initial_in_flight = self.initial > 0;
                deltas
            }
            None if self.returned == self.newest => return None,
            None => Vec::new(),
        };
        let version = if self.line.is_empty() && self.returned != self.newest {
            self.returned.clone_from(&self.newest);
            self.newest.clone()
        } else {
            None
        };
        Some(Popped { deltas, in_initial_list, version })
    }

    fn processed(&mut self) {
        self.in_flight = None;
        self.initial -= usize::from(std::mem::take(&mut self.initial_in_flight));
    }

    fn add_if_not_present(&mut self, popped: Popped<K>) {
        if popped.version.is_some() {
            // The store has not reached this version, so it is returned again.
            self.returned = None;
        }
        let Some(key) = popped.deltas.last().and_then(Delta::key) else { return };
        self.populated = true;
        let is_return = self.is_in_flight(&key);
        if self.deltas.contains_key(&key) {
            if is_return {
                self.processed();
            }
            return;
        }
        let mut at = self.line.len();
        if is_return {
            self.in_flight = None;
            if std::mem::take(&mut self.initial_in_flight) {
                // Behind the rest of the initial list, ahead of everything that came later.
                at = at.min(self.initial - 1);
            }
        }
        self.bytes += popped.deltas.iter().map(Delta::bytes).sum::<usize>();
        self.line.insert(at, key.clone());
        self.deltas.insert(key, popped.deltas);
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
