//! The state of each key, in numbered slots that are found by hash and linked into lists.

use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::extra::Extra;
use super::priority::Priority;
use super::tick::Tick;

/// The number of a slot, valid until the slot is removed.
pub(super) type Number = u32;

/// No slot: the end of a list.
const NONE: Number = Number::MAX;

/// The state of one key. There may be a million of them, so every byte counts.
pub(super) struct Slot<T> {
    /// `None` only while the slot is free.
    pub(super) key: Option<T>,
    /// Its neighbours in its list: that of its place, or that of the free slots.
    previous: Number,
    next: Number,
    pub(super) place: Place,

    /// The time since which a run is needed that has not begun: while waiting, or added again during processing.
    pub(super) added: Option<Tick>,
    /// The priority of the waiting run or, if there is none, of the current one.
    pub(super) priority: Priority,
    /// The time since which a worker has it.
    pub(super) started: Option<Tick>,
    /// The number of that worker, or of the last one; 0 if it has none.
    pub(super) worker: u16,

    /// The time at which it is to be added, and the priority.
    pub(super) due: Option<Tick>,
    pub(super) due_priority: Priority,
    /// Whether that time is the end of a backoff.
    pub(super) due_by_retry: bool,
    /// Distinguishes equal due times, in the order in which they were given.
    pub(super) due_order: u32,

    /// The number of failures since it was last forgotten.
    pub(super) failures: u32,
    /// Whether its due time is the backoff of a failure that was not forgotten.
    pub(super) backing_off: bool,
    pub(super) last_success: Option<Tick>,
    /// Whether it was unparked while a worker has it, so that a later park has no effect.
    pub(super) unparked: bool,
    /// The state that only few keys have.
    pub(super) extra: Option<Box<Extra>>,
}

/// The list that a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// None: it is only delayed.
    Nowhere,
    /// Waiting for a worker.
    Ready,
    /// With a worker.
    Working,
    /// None: it needs a run that cannot begin yet.
    Parked,
    /// Nothing is pending; it is kept for its history.
    Idle,
}

/// The slots of a queue, and the index from key to slot.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// One entry per slot in use.
    index: HashTable<Number>,
    /// The first free slot; the others follow by their `next`.
    free: Number,
    hasher: FixedState,
}

impl<T: Hash + Eq> Slots<T> {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { slots: Vec::new(), index: HashTable::new(), free: NONE, hasher }
    }

    pub(super) fn find(&self, key: &T) -> Option<Number> {
        self.find_hashed(self.hasher.hash_one(key), key)
    }

    fn find_hashed(&self, hash: u64, key: &T) -> Option<Number> {
        self.index.find(hash, |&number| self[number].key.as_ref() == Some(key)).copied()
    }

    /// Returns the slot of `key`; a new one is in no list.
    pub(super) fn find_or_insert(&mut self, key: T) -> Number {
        let hash = self.hasher.hash_one(&key);
        if let Some(number) = self.find_hashed(hash, &key) {
            return number;
        }
        let slot = Slot::new(key);
        let number = if self.free == NONE {
            self.slots.push(slot);
            (self.slots.len() - 1) as Number
        } else {
            let number = self.free;
            self.free = self[number].next;
            self[number] = slot;
            number
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |&number: &Number| {
            let key = slots[number as usize].key.as_ref();
            key.map_or(0, |key| hasher.hash_one(key))
        };
        self.index.insert_unique(hash, number, rehash);
        number
    }

    /// Frees a slot that is in no list.
    pub(super) fn remove(&mut self, number: Number) {
        if let Some(key) = &self[number].key {
            let hash = self.hasher.hash_one(key);
            if let Ok(entry) = self.index.find_entry(hash, |&other| other == number) {
                entry.remove();
            }
            let free = self.free;
            let slot = &mut self[number];
            (slot.key, slot.extra, slot.next) = (None, None, free);
            self.free = number;
        }
    }

    /// Returns the number of keys with a slot.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of slots, used and free.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns at most `count` slots from `start` on; free ones have no key.
    pub(super) fn range(&self, start: usize, count: usize) -> &[Slot<T>] {
        let end = self.slots.len().min(start.saturating_add(count));
        self.slots.get(start..end).unwrap_or_default()
    }
}

impl<T> Slot<T> {
    fn new(key: T) -> Self {
        Self {
            key: Some(key),
            previous: NONE,
            next: NONE,
            place: Place::Nowhere,
            added: None,
            priority: Priority::default(),
            started: None,
            worker: 0,
            due: None,
            due_priority: Priority::default(),
            due_by_retry: false,
            due_order: 0,
            failures: 0,
            backing_off: false,
            last_success: None,
            unparked: false,
            extra: None,
        }
    }

    /// Returns the nanoseconds since a worker has it.
    pub(super) fn worked(&self, now: Tick) -> u64 {
        self.started.map_or(0, |started| now.since(started))
    }

    /// Notes that a run ended well.
    pub(super) fn succeeded(&mut self, at: Tick) {
        self.forgive();
        self.last_success = Some(at);
    }

    /// Forgets its failures; a pending backoff no longer counts for the next one.
    pub(super) fn forgive(&mut self) {
        (self.failures, self.backing_off) = (0, false);
    }
}

impl<T> Index<Number> for Slots<T> {
    type Output = Slot<T>;

    fn index(&self, number: Number) -> &Slot<T> {
        &self.slots[number as usize]
    }
}

impl<T> IndexMut<Number> for Slots<T> {
    fn index_mut(&mut self, number: Number) -> &mut Slot<T> {
        &mut self.slots[number as usize]
    }
}

/// A list of slots, which any slot can leave in O(1). A slot is in at most one list.
pub(super) struct List {
    first: Number,
    last: Number,
    len: usize,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn first(&self) -> Option<Number> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn push<T>(&mut self, slots: &mut Slots<T>, number: Number) {
        let slot = &mut slots[number];
        (slot.previous, slot.next) = (self.last, NONE);
        match self.last {
            NONE => self.first = number,
            last => slots[last].next = number,
        }
        self.last = number;
        self.len += 1;
    }

    /// Removes a slot that is in this list.
    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, number: Number) {
        let (previous, next) = (slots[number].previous, slots[number].next);
        match previous {
            NONE => self.first = next,
            previous => slots[previous].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => slots[next].previous = previous,
        }
        self.len -= 1;
    }

    pub(super) fn iter<'a, T>(&self, slots: &'a Slots<T>) -> impl Iterator<Item = &'a Slot<T>> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let slot = (next != NONE).then(|| &slots[next])?;
            #[cfg(test)]
            steps::count();
            next = slot.next;
            Some(slot)
        })
    }
}

/// The steps along lists, which take as long as the list, and happen under the lock of the queue.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::Cell;

    thread_local! { static TAKEN: Cell<usize> = const { Cell::new(0) }; }

    pub(super) fn count() {
        TAKEN.set(TAKEN.get() + 1);
    }

    /// Returns the number of steps of this thread since the last call.
    pub(in super::super) fn taken() -> usize {
        TAKEN.take()
    }
}

#[cfg(test)]
mod tests;
