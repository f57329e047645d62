//! Does the queue hold its promises under real threads? No key with two workers, none lost, whatever becomes of the workers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

const KEYS: usize = 40;
const PRODUCERS: usize = 50;
const ADDS: usize = 400;
const WORKERS: usize = 10;

/// What producers want and workers have seen, per key.
#[derive(Default)]
struct Ledger {
    wanted: [AtomicU32; KEYS.next_power_of_two() / 2],
    seen: [AtomicU32; KEYS.next_power_of_two() / 2],
    held: [AtomicBool; KEYS.next_power_of_two() / 2],
    twice: AtomicU32,
}

/// Marks a key as held for as long as it lives.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
