//! How long must a key wait before it is tried again? Longer with each failure, and not faster than the queue as a whole may go.

use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

pub use super::bucket::TokenBucket;
use crate::clock::Instant;

/// Decides how long a key waits before its next try.
///
/// A queue calls its limiter while it holds its lock: an implementation must neither block nor panic, nor use the queue.
pub trait RateLimiter<T>: Send + 'static {
    /// How long `item` must wait from `now` on. Each call counts as a failure of the item.
    fn when(&mut self, item: &T, now: Instant) -> Duration;

    /// Forgets the failures of `item`, because it succeeded or was given up. What was never forgotten is kept for ever.
    fn forget(&mut self, item: &T);

    /// How often `item` failed since it was last forgotten.
    fn retries(&self, item: &T) -> u32;
}

impl<T: 'static> RateLimiter<T> for Box<dyn RateLimiter<T>> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        (**self).when(item, now)
    }

    fn forget(&mut self, item: &T) {
        (**self).forget(item);
    }

    fn retries(&self, item: &T) -> u32 {
        (**self).retries(item)
    }
}

/// The limiter for controllers: 5 ms doubling up to 1000 s per key, and 10 retries a second with bursts of 100 for all keys.
pub fn default_controller<T: Hash + Eq + Clone + Send + 'static>() -> MaxOf<ItemExponential<T>, TokenBucket> {
    MaxOf::new(controller_backoff(), TokenBucket::new(10.0, 100))
}

/// As [`default_controller`], with 50 retries a second and bursts of 300.
pub fn sample_controller<T: Hash + Eq + Clone + Send + 'static>() -> MaxOf<ItemExponential<T>, TokenBucket> {
    MaxOf::new(controller_backoff(), TokenBucket::new(50.0, 300))
}

fn controller_backoff<T: Hash + Eq + Clone>() -> ItemExponential<T> {
    ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// How often each key failed. Keys that never failed are not in it.
#[derive(Debug)]
struct Failures<T>(HashMap<T, u32, FixedState>);

impl<T: Hash + Eq + Clone> Failures<T> {
    fn new() -> Self {
        Self(HashMap::with_hasher(FixedState::default()))
    }

    /// Counts one more; returns how many there were before.
    fn count(&mut self, item: &T) -> u32 {
        let Some(failures) = self.0.get_mut(item) else {
            self.0.insert(item.clone(), 1);
            return 0;
        };
        let before = *failures;
        *failures = before.saturating_add(1);
        before
    }

    fn forget(&mut self, item: &T) {
        // Most keys succeed at once: do not hash them for nothing.
        if !self.0.is_empty() {
            self.0.remove(item);
        }
    }

    fn of(&self, item: &T) -> u32 {
        self.0.get(item).copied().unwrap_or(0)
    }
}

/// `base`, doubled with each failure of the key, at most `max`.
#[derive(Debug)]
pub struct ItemExponential<T> {
    failures: Failures<T>,
    base: Duration,
    max: Duration,
}

impl<T: Hash + Eq + Clone> ItemExponential<T> {
    /// The first failure waits for `base`. A zero `base` never waits.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: Failures::new(), base, max }
    }
}

impl<T: Hash + Eq + Clone + Send + 'static> RateLimiter<T> for ItemExponential<T> {
    fn when(&mut self, item: &T, _now: Instant) -> Duration {
        let failures = self.failures.count(item);
        let base = u64::try_from(self.base.as_nanos()).unwrap_or(u64::MAX);
        // 64 doublings take even a nanosecond beyond every `Duration` in nanoseconds; a product of two u64 fits a u128.
        let grown = u128::from(base) * (1_u128 << failures.min(64));
        u64::try_from(grown).map_or(self.max, |nanos| Duration::from_nanos(nanos).min(self.max))
    }

    fn forget(&mut self, item: &T) {
        self.failures.forget(item);
    }

    fn retries(&self, item: &T) -> u32 {
        self.failures.of(item)
    }
}

/// A short wait for the first failures of a key, a long one from then on.
#[derive(Debug)]
pub struct FastSlow<T> {
    failures: Failures<T>,
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl<T: Hash + Eq + Clone> FastSlow<T> {
    /// `fast` for the first `fast_attempts` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { failures: Failures::new(), fast, slow, fast_attempts }
    }
}

impl<T: Hash + Eq + Clone + Send + 'static> RateLimiter<T> for FastSlow<T> {
    fn when(&mut self, item: &T, _now: Instant) -> Duration {
        if self.failures.count(item) < self.fast_attempts { self.fast } else { self.slow }
    }

    fn forget(&mut self, item: &T) {
        self.failures.forget(item);
    }

    fn retries(&self, item: &T) -> u32 {
        self.failures.of(item)
    }
}

/// The longer of two waits. Nest it for more than two.
///
/// Both limiters are asked each time, so both count every failure: a token is used up even where the other wait is longer.
#[derive(Debug)]
pub struct MaxOf<A, B> {
    first: A,
    second: B,
}

impl<A, B> MaxOf<A, B> {
    /// The longer of what `first` and `second` say.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<T, A: RateLimiter<T>, B: RateLimiter<T>> RateLimiter<T> for MaxOf<A, B> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        self.first.when(item, now).max(self.second.when(item, now))
    }

    fn forget(&mut self, item: &T) {
        self.first.forget(item);
        self.second.forget(item);
    }

    fn retries(&self, item: &T) -> u32 {
        self.first.retries(item).max(self.second.retries(item))
    }
}

/// What another limiter says, but never longer than a bound. The other limiter's own counting is not touched.
#[derive(Debug)]
pub struct MaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> MaxWait<L> {
    /// What `inner` says, at most `max`.
    pub fn new(inner: L, max: Duration) -> Self {
        Self { inner, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for MaxWait<L> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        self.inner.when(item, now).min(self.max)
    }

    fn forget(&mut self, item: &T) {
        self.inner.forget(item);
    }

    fn retries(&self, item: &T) -> u32 {
        self.inner.retries(item)
    }
}

#[cfg(test)]
mod tests;
