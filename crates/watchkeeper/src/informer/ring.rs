//! The pending notifications of a handler: every change in order up to a bound, then the newest state of each object.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::handler::Notification;
use crate::object::{Object, ObjectName};
use crate::queue::Deleted;

/// The pending notifications of one handler, exact up to a bound.
///
/// Past the bound they are coalesced per object until all are taken: the memory is then bounded by the number of
/// objects, never by that of changes. Objects of the initial list do not count toward the bound, as each of them comes
/// once.
#[derive(Debug)]
pub(super) struct Ring<K> {
    waiting: Waiting<K>,
    bound: usize,
    hasher: FixedState,
    /// The number of pending objects of the initial list.
    initial: usize,
    /// The number of notifications that were merged into others, or cancelled.
    coalesced: u64,
}

#[derive(Debug)]
enum Waiting<K> {
    Exact(VecDeque<Notification<K>>),
    Coalesced(Coalesced<K>),
}

/// The capacity that is kept while nothing is pending.
const SMALL: usize = 64;

impl<K> Ring<K> {
    pub(super) fn new(bound: usize, hasher: FixedState) -> Self {
        Self { waiting: Waiting::Exact(VecDeque::new()), bound, hasher, initial: 0, coalesced: 0 }
    }

    pub(super) fn push(&mut self, notification: Notification<K>) {
        let is_initial = notification.is_initial_add();
        if let Waiting::Exact(exact) = &mut self.waiting {
            if is_initial || exact.len() - self.initial < self.bound {
                self.initial += usize::from(is_initial);
                exact.push_back(notification);
                return;
            }
            let mut coalesced = Coalesced::new(self.hasher.clone());
            exact.drain(..).for_each(|notification| self.coalesced += coalesced.merge(notification));
            self.waiting = Waiting::Coalesced(coalesced);
        }
        if let Waiting::Coalesced(coalesced) = &mut self.waiting {
            self.coalesced += coalesced.merge(notification);
            self.initial = coalesced.initial;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Notification<K>> {
        let popped = match &mut self.waiting {
            Waiting::Exact(exact) => exact.pop_front(),
            Waiting::Coalesced(coalesced) => coalesced.pop(),
        };
        match (&popped, &mut self.waiting) {
            (Some(notification), _) => self.initial -= usize::from(notification.is_initial_add()),
            // The memory of a burst is released at its end.
            (None, Waiting::Exact(exact)) => exact.shrink_to(SMALL),
            (None, Waiting::Coalesced(_)) => self.waiting = Waiting::Exact(VecDeque::new()),
        }
        popped
    }

    /// Clears the pending notifications, and returns them to be dropped elsewhere.
    pub(super) fn clear(&mut self) -> impl Sized + use<K> {
        self.initial = 0;
        std::mem::replace(&mut self.waiting, Waiting::Exact(VecDeque::new()))
    }

    /// Returns the number of pending notifications.
    pub(super) fn len(&self) -> usize {
        match &self.waiting {
            Waiting::Exact(exact) => exact.len(),
            Waiting::Coalesced(coalesced) => coalesced.len,
        }
    }

    /// Returns the number of pending objects of the initial list.
    pub(super) fn initial(&self) -> usize {
        self.initial
    }

    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    pub(super) fn is_coalescing(&self) -> bool {
        matches!(self.waiting, Waiting::Coalesced(_))
    }
}

/// Coalesced notifications: at most a delete and an add, or an update, per object.
#[derive(Debug)]
struct Coalesced<K> {
    /// The pending notifications, in the order of delivery.
    by_turn: BTreeMap<u64, Pending<K>>,
    turns: HashMap<ObjectName, u64, FixedState>,
    next_turn: u64,
    /// The number of pending notifications.
    len: usize,
    /// The number of pending objects of the initial list.
    initial: usize,
}

/// The pending notifications of one object.
#[derive(Debug)]
struct Pending<K> {
    key: ObjectName,
    /// The delete of the object that the handler knows.
    gone: Option<Deleted<K>>,
    now: Now<K>,
    /// Whether it was moved to the end already: an object that changes all the time would never be delivered if each
    /// change moved it again.
    moved: bool,
}

#[derive(Debug)]
enum Now<K> {
    /// No object exists.
    Nothing,
    /// An object exists that the handler does not know.
    New { object: Object<K>, in_initial_list: bool },
    /// An object exists that the handler knows as `old`.
    Known { old: Object<K>, new: Object<K> },
}

impl<K> Coalesced<K> {
    fn new(hasher: FixedState) -> Self {
        let turns = HashMap::with_hasher(hasher);
        Self { by_turn: BTreeMap::new(), turns, next_turn: 0, len: 0, initial: 0 }
    }

    /// Merges a notification, and returns how many fewer are delivered because of it.
    fn merge(&mut self, notification: Notification<K>) -> u64 {
        let before = self.len;
        let key = notification.key();
        let found = self.turns.remove(&key).and_then(|turn| Some((turn, self.take(turn)?)));
        let (turn, pending) = match found {
            None => (self.new_turn(), Pending::first(key, notification)),
            Some((turn, pending)) => {
                let (is_moved, is_resync) = (pending.moved, notification.is_resync());
                let turn = if is_moved || is_resync { turn } else { self.new_turn() };
                (turn, Pending { moved: is_moved || !is_resync, ..pending.merge(notification) })
            }
        };
        self.put(turn, pending);
        (before + 1 - self.len) as u64
    }

    fn pop(&mut self) -> Option<Notification<K>> {
        let turn = *self.by_turn.first_key_value()?.0;
        let mut pending = self.take(turn)?;
        self.turns.remove(&pending.key);
        if let Some(gone) = pending.gone.take() {
            self.put(turn, pending);
            return Some(Notification::Delete(gone));
        }
        match pending.now {
            Now::Nothing => None,
            Now::New { object, in_initial_list } => Some(Notification::Add { object, in_initial_list }),
            Now::Known { old, new } => Some(Notification::Update { old, new }),
        }
    }

    fn new_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    fn take(&mut self, turn: u64) -> Option<Pending<K>> {
        let pending = self.by_turn.remove(&turn)?;
        self.len -= pending.len();
        self.initial -= pending.initial();
        Some(pending)
    }

    /// Adds an entry, unless it has nothing to deliver.
    fn put(&mut self, turn: u64, pending: Pending<K>) {
        if pending.len() > 0 {
            self.len += pending.len();
            self.initial += pending.initial();
            self.turns.insert(pending.key.clone(), turn);
            self.by_turn.insert(turn, pending);
        }
    }
}

impl<K> Pending<K> {
    fn first(key: ObjectName, notification: Notification<K>) -> Self {
        let (gone, now) = match notification {
            Notification::Add { object, in_initial_list } => (None, Now::New { object, in_initial_list }),
            Notification::Update { old, new } => (None, Now::Known { old, new }),
            Notification::Delete(deleted) => (Some(deleted), Now::Nothing),
            Notification::Superseded(_) => (None, Now::Nothing),
        };
        Self { key, gone, now, moved: false }
    }

    /// Returns the remaining notifications after another change.
    fn merge(self, notification: Notification<K>) -> Self {
        let Self { mut gone, now, .. } = self;
        let now = match (now, notification) {
            (Now::Nothing, Notification::Add { object, in_initial_list }) => {
                Now::New { object, in_initial_list }
            }
            (Now::Nothing, Notification::Update { new, .. }) => {
                Now::New { object: new, in_initial_list: false }
            }
            (
                Now::New { in_initial_list, .. },
                Notification::Add { object, .. } | Notification::Update { new: object, .. },
            ) => Now::New { object, in_initial_list },
            (
                Now::Known { old, .. },
                Notification::Add { object: new, .. } | Notification::Update { new, .. },
            ) => Now::Known { old, new },
            (now, Notification::Superseded(_)) => now,
            // The handler is not notified of an object that was added and deleted meanwhile.
            (Now::Nothing | Now::New { .. }, Notification::Delete(_)) => Now::Nothing,
            (Now::Known { .. }, Notification::Delete(deleted)) => {
                gone = Some(deleted);
                Now::Nothing
            }
        };
        Self { gone, now, ..self }
    }

    fn len(&self) -> usize {
        usize::from(self.gone.is_some()) + usize::from(!matches!(self.now, Now::Nothing))
    }

    fn initial(&self) -> usize {
        usize::from(matches!(self.now, Now::New { in_initial_list: true, .. }))
    }
}

#[cfg(test)]
mod tests;
