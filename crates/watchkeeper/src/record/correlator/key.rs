//! Keys by which events count as the same: hashes of fixed size.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::{FixedState, FoldHasher};

use super::super::occurrence::Occurrence;
use crate::clock::Generator;

/// Identifies all events that a correlator treats as one: 128 bits of a seeded hash, so that long messages take no
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey([u64; 2]);

/// Collects the parts of a key. The boundaries count: `("a", "bc")` and `("ab", "c")` are different keys.
#[derive(Clone)]
pub struct KeyHasher([FoldHasher<'static>; 2]);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|half| half.write(bytes));
    }

    fn finish(&self) -> u64 {
        self.0[0].finish()
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher")
    }
}

/// A function that hashes the parts of a key.
pub(in super::super) type Parts = dyn Fn(&Occurrence, &mut KeyHasher) + Send + Sync;

/// Makes keys of events, from two hashes with a seed each.
#[derive(Debug)]
pub(in super::super) struct Keys([FixedState; 2]);

impl Keys {
    pub(in super::super) fn new(generator: &Generator) -> Self {
        Self([(); 2].map(|()| FixedState::with_seed(generator.next_u64())))
    }

    pub(in super::super) fn of(&self, event: &Occurrence, parts: &Parts) -> EventKey {
        let mut hasher = KeyHasher(self.0.each_ref().map(BuildHasher::build_hasher));
        parts(event, &mut hasher);
        EventKey(hasher.0.map(|half| half.finish()))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hash;

    use super::super::super::testing::event;
    use super::*;

    fn key(seed: u64, reason: &str, message: &str) -> EventKey {
        let parts = |event: &Occurrence, key: &mut KeyHasher| (&event.reason, &event.message).hash(key);
        Keys::new(&Generator::seeded(seed)).of(&event(1, reason, message), &parts)
    }

    #[test]
    fn parts_of_a_key_do_not_run_into_each_other() {
        assert_eq!(key(1, "a", "bc"), key(1, "a", "bc"));
        assert_ne!(key(1, "a", "bc"), key(1, "ab", "c"));
        assert_ne!(key(1, "a", "bc"), key(2, "a", "bc"), "the seed counts");
    }

    #[test]
    fn a_key_is_made_of_two_hashes() {
        let [EventKey([a, b]), EventKey([c, d])] = [key(1, "a", "b"), key(1, "a", "c")];
        assert!(a != c && b != d && a != b);
    }

    #[test]
    fn a_hasher_can_be_asked_for_half_of_its_key() {
        let keys = Keys::new(&Generator::seeded(1));
        let half = |text: &str| {
            let mut hasher = KeyHasher(keys.0.each_ref().map(BuildHasher::build_hasher));
            text.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(half("a"), half("a"));
        assert_ne!(half("a"), half("b"));
        let hasher = KeyHasher(keys.0.each_ref().map(BuildHasher::build_hasher));
        assert_eq!(format!("{hasher:?}"), "KeyHasher");
    }
}
