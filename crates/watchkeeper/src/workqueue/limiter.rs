//! How long must a key wait before it is tried again? Longer with each failure, and not faster than the queue as a whole may go.

use std::time::Duration;

pub use super::bucket::TokenBucket;
use crate::clock::Instant;

/// Decides how long a key waits before its next try.
///
/// The queue counts the failures of its keys itself, so a limiter need not remember keys: nothing is kept of one that succeeded. A queue
/// calls its limiter while it holds its lock: an implementation must neither block nor panic, nor use the queue.
///
/// ```
/// use std::time::Duration;
/// use watchkeeper::workqueue::{RateLimiter, RateLimitingQueue, limiter};
/// use watchkeeper::{Env, ObjectName};
///
/// /// Waits ten times as long for the keys of one namespace.
/// struct Patient<L>(L);
///
/// impl<L: RateLimiter<ObjectName>> RateLimiter<ObjectName> for Patient<L> {
///     fn when(&mut self, item: &ObjectName, failures: u32, now: tokio::time::Instant) -> Duration {
///         let factor = if item.namespace() == Some("batch") { 10 } else { 1 };
///         self.0.when(item, failures, now) * factor
///     }
/// }
/// let queue = RateLimitingQueue::new("foos", Patient(limiter::default_item_based()), &Env::system());
/// # queue.add(ObjectName::cluster("x"));
/// ```
pub trait RateLimiter<T>: Send + 'static {
    /// How long `item` must wait from `now` on, after it had failed `failures` times before this failure.
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration;
}

impl<T: 'static> RateLimiter<T> for Box<dyn RateLimiter<T>> {
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration {
        (**self).when(item, failures, now)
    }
}

/// The limiter for controllers: 5 ms doubling up to 1000 s per key, and 10 retries a second with bursts of 100 for all keys.
pub fn default_controller() -> MaxOf<ItemExponential, TokenBucket> {
    MaxOf::new(controller_backoff(), TokenBucket::new(10.0, 100))
}

/// As [`default_controller`], with 50 retries a second and bursts of 300.
pub fn sample_controller() -> MaxOf<ItemExponential, TokenBucket> {
    MaxOf::new(controller_backoff(), TokenBucket::new(50.0, 300))
}

/// 1 ms doubling up to 1000 s per key, whatever the others do.
pub fn default_item_based() -> ItemExponential {
    ItemExponential::new(Duration::from_millis(1), Duration::from_secs(1000))
}

fn controller_backoff() -> ItemExponential {
    ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// `base`, doubled with each failure of the key, at most `max`.
#[derive(Clone, Debug)]
pub struct ItemExponential {
    base: Duration,
    max: Duration,
}

impl ItemExponential {
    /// The first failure waits for `base`. A zero `base` never waits.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }
}

impl<T> RateLimiter<T> for ItemExponential {
    fn when(&mut self, _item: &T, failures: u32, _now: Instant) -> Duration {
        let base = u64::try_from(self.base.as_nanos()).unwrap_or(u64::MAX);
        // 64 doublings take even a nanosecond beyond every `Duration` in nanoseconds; a product of two u64 fits a u128.
        let grown = u128::from(base) * (1_u128 << failures.min(64));
        u64::try_from(grown).map_or(self.max, |nanos| Duration::from_nanos(nanos).min(self.max))
    }
}

/// A short wait for the first failures of a key, a long one from then on.
#[derive(Clone, Debug)]
pub struct FastSlow {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl FastSlow {
    /// `fast` for the first `fast_attempts` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { fast, slow, fast_attempts }
    }
}

impl<T> RateLimiter<T> for FastSlow {
    fn when(&mut self, _item: &T, failures: u32, _now: Instant) -> Duration {
        if failures < self.fast_attempts { self.fast } else { self.slow }
    }
}

/// The longer of two waits. Nest it for more than two.
///
/// Both limiters are asked each time: a token is used up even where the other wait is longer.
#[derive(Clone, Debug)]
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
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration {
        self.first.when(item, failures, now).max(self.second.when(item, failures, now))
    }
}

/// What another limiter says, but never longer than a bound.
#[derive(Clone, Debug)]
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
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration {
        self.inner.when(item, failures, now).min(self.max)
    }
}

#[cfg(test)]
mod tests;
