//! Lifetime of decoded values: they live as long as they are in use, and a bounded number of them longer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The number of decoded values that an informer keeps for later readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// None: each is freed with its last user.
    None,
    /// The most recently decoded ones.
    Latest(usize),
    /// One for each cached object that was decoded.
    All,
}

impl Default for Keep {
    fn default() -> Self {
        Self::Latest(4096)
    }
}

/// The decoded values that one informer keeps, and the count of its decodes.
#[derive(Debug)]
pub(crate) struct Decoded<K> {
    keep: Keep,
    latest: Mutex<VecDeque<Arc<K>>>,
    decodes: AtomicU64,
}

impl<K> Decoded<K> {
    /// Returns an empty cache with the given policy.
    pub(crate) fn new(keep: Keep) -> Arc<Self> {
        Arc::new(Self { keep, latest: Mutex::default(), decodes: AtomicU64::new(0) })
    }

    /// Returns the number of decodes so far.
    pub(crate) fn decodes(&self) -> u64 {
        self.decodes.load(Ordering::Relaxed)
    }

    fn note(&self, value: &Arc<K>) {
        self.decodes.fetch_add(1, Ordering::Relaxed);
        if let Keep::Latest(bound) = self.keep {
            let mut latest = self.latest.lock();
            latest.push_back(value.clone());
            let dropped = if latest.len() > bound { latest.pop_front() } else { None };
            // Outside the lock, as freeing a big value takes time.
            drop(latest);
            drop(dropped);
        }
    }
}

/// The slot of an object through which its decoded value is found again.
#[derive(Debug)]
pub(super) struct Slot<K>(Mutex<State<K>>);

#[derive(Debug)]
enum State<K> {
    Empty,
    Shared(Weak<K>),
    Kept(Arc<K>),
}

impl<K> State<K> {
    fn shared(&self) -> Option<Arc<K>> {
        match self {
            Self::Empty => None,
            Self::Shared(weak) => weak.upgrade(),
            Self::Kept(value) => Some(value.clone()),
        }
    }
}

impl<K> Slot<K> {
    pub(super) fn empty() -> Self {
        Self(Mutex::new(State::Empty))
    }

    /// Returns the decoded value: the one in use, or a new one from `decode`. Two threads that both come first decode
    /// twice and share one result.
    pub(super) fn get<E>(
        &self,
        cache: &Decoded<K>,
        decode: impl FnOnce() -> Result<K, E>,
    ) -> Result<Arc<K>, E> {
        let shared = self.0.lock().shared();
        if let Some(value) = shared {
            return Ok(value);
        }
        let value = Arc::new(decode()?);
        let mut state = self.0.lock();
        if let Some(earlier) = state.shared() {
            return Ok(earlier);
        }
        *state = match cache.keep {
            Keep::All => State::Kept(value.clone()),
            Keep::None | Keep::Latest(_) => State::Shared(Arc::downgrade(&value)),
        };
        drop(state);
        cache.note(&value);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(slot: &Slot<u32>, cache: &Decoded<u32>, value: u32) -> Arc<u32> {
        slot.get(cache, || Ok::<_, ()>(value)).unwrap()
    }

    #[test]
    fn a_value_in_use_is_shared_and_decoded_once() {
        let (slot, cache) = (Slot::empty(), Decoded::new(Keep::None));
        let first = get(&slot, &cache, 1);
        assert!(Arc::ptr_eq(&first, &get(&slot, &cache, 2)));
        drop(first);
        assert_eq!(*get(&slot, &cache, 3), 3);
        assert_eq!(cache.decodes(), 2);
    }

    #[test]
    fn the_latest_values_outlive_their_users() {
        let (a, b, c) = (Slot::empty(), Slot::empty(), Slot::empty());
        let cache = Decoded::new(Keep::Latest(2));
        [&a, &b, &c].iter().for_each(|slot| drop(get(slot, &cache, 1)));
        assert_eq!((*get(&b, &cache, 2), *get(&c, &cache, 2)), (1, 1));
        assert_eq!(*get(&a, &cache, 2), 2);
    }

    #[test]
    fn all_keeps_every_value() {
        let cache = Decoded::new(Keep::All);
        let slots: Vec<_> = (0..5000).map(|_| Slot::empty()).collect();
        slots.iter().for_each(|slot| drop(get(slot, &cache, 1)));
        assert!(slots.iter().all(|slot| *get(slot, &cache, 2) == 1));
    }

    #[test]
    fn a_failed_decode_leaves_the_slot_empty() {
        let (slot, cache) = (Slot::empty(), Decoded::new(Keep::All));
        assert_eq!(slot.get(&cache, || Err::<u32, _>("bad")), Err("bad"));
        assert_eq!(*get(&slot, &cache, 1), 1);
    }
}
