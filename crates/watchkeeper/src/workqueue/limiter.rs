//! Rate limiters: the delay before a key is retried, by its failures and by the rate of the whole queue.

use std::time::Duration;

pub use super::bucket::TokenBucket;
use crate::clock::Instant;

/// Decides how long a key waits before its next retry.
///
/// The queue counts the failures of its keys itself, so a limiter need not remember keys. A queue calls its limiter
/// while it holds its lock: an implementation must not block, panic, or use the queue.
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
    /// Returns how long `item` waits from `now` on; `failures` is the number of its earlier failures.
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration;

    /// Returns the part of that delay which does not depend on other keys, to explain a delay that is longer; `None`, as by
    /// default, if there is no such part.
    fn own_delay(&self, item: &T, failures: u32) -> Option<Duration> {
        let _ = (item, failures);
        None
    }
}

impl<T: 'static> RateLimiter<T> for Box<dyn RateLimiter<T>> {
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration {
        (**self).when(item, failures, now)
    }

    fn own_delay(&self, item: &T, failures: u32) -> Option<Duration> {
        (**self).own_delay(item, failures)
    }
}

/// Returns the limiter for controllers: 5 ms doubling up to 1000 s per key, and 10 retries per second with bursts of
/// 100 for all keys.
pub fn default_controller() -> MaxOf<ItemExponential, TokenBucket> {
    MaxOf::new(controller_backoff(), TokenBucket::new(10.0, 100))
}

/// Returns the same as [`default_controller`] with 50 retries per second and bursts of 300.
pub fn sample_controller() -> MaxOf<ItemExponential, TokenBucket> {
    MaxOf::new(controller_backoff(), TokenBucket::new(50.0, 300))
}

/// Returns a limiter of 1 ms doubling up to 1000 s per key, independent of other keys.
pub fn default_item_based() -> ItemExponential {
    ItemExponential::new(Duration::from_millis(1), Duration::from_secs(1000))
}

fn controller_backoff() -> ItemExponential {
    ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// Doubles the delay of a key with each failure, from `base` up to `max`.
///
/// ```
/// # use std::time::Duration;
/// # use watchkeeper::{Env, workqueue::{RateLimiter, limiter::ItemExponential}};
/// let now = Env::simulated(1).clock.now();
/// let mut limiter = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000));
/// assert_eq!(limiter.when(&"a", 0, now), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"a", 3, now), Duration::from_millis(40));
/// ```
#[derive(Clone, Debug)]
pub struct ItemExponential {
    base: Duration,
    max: Duration,
}

impl ItemExponential {
    /// Returns a limiter whose first delay is `base`. A `base` of zero never waits.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }
}

impl ItemExponential {
    fn delay(&self, failures: u32) -> Duration {
        let base = u64::try_from(self.base.as_nanos()).unwrap_or(u64::MAX);
        // 64 doublings take even a nanosecond beyond every `Duration` in nanoseconds; a product of two u64 fits a u128.
        let grown = u128::from(base) * (1_u128 << failures.min(64));
        u64::try_from(grown).map_or(self.max, |nanos| Duration::from_nanos(nanos).min(self.max))
    }
}

impl<T> RateLimiter<T> for ItemExponential {
    fn when(&mut self, _item: &T, failures: u32, _now: Instant) -> Duration {
        self.delay(failures)
    }

    fn own_delay(&self, _item: &T, failures: u32) -> Option<Duration> {
        Some(self.delay(failures))
    }
}

/// Delays the first failures of a key shortly, and all later ones for long.
///
/// ```
/// # use std::time::Duration;
/// # use watchkeeper::{Env, workqueue::{RateLimiter, limiter::FastSlow}};
/// let (fast, slow) = (Duration::from_millis(5), Duration::from_secs(10));
/// let (mut limiter, now) = (FastSlow::new(fast, slow, 3), Env::simulated(1).clock.now());
/// assert_eq!((limiter.when(&"a", 2, now), limiter.when(&"a", 3, now)), (fast, slow));
/// ```
#[derive(Clone, Debug)]
pub struct FastSlow {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl FastSlow {
    /// Returns a limiter with the delay `fast` for the first `fast_attempts` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { fast, slow, fast_attempts }
    }
}

impl<T> RateLimiter<T> for FastSlow {
    fn when(&mut self, _item: &T, failures: u32, _now: Instant) -> Duration {
        if failures < self.fast_attempts { self.fast } else { self.slow }
    }

    fn own_delay(&self, _item: &T, failures: u32) -> Option<Duration> {
        Some(if failures < self.fast_attempts { self.fast } else { self.slow })
    }
}

/// The longer delay of two limiters. Nest it for more than two.
///
/// Both limiters are called each time: a token is used up even if the other delay is longer.
///
/// ```
/// # use std::time::Duration;
/// # use watchkeeper::{Env, workqueue::{RateLimiter, limiter::{ItemExponential, MaxOf, TokenBucket}}};
/// let per_key = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000));
/// let mut limiter = MaxOf::new(per_key, TokenBucket::new(10.0, 100));
/// assert_eq!(limiter.when(&"a", 0, Env::simulated(1).clock.now()), Duration::from_millis(5));
/// ```
#[derive(Clone, Debug)]
pub struct MaxOf<A, B> {
    first: A,
    second: B,
}

impl<A, B> MaxOf<A, B> {
    /// Returns a limiter with the longer delay of `first` and `second`.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<T, A: RateLimiter<T>, B: RateLimiter<T>> RateLimiter<T> for MaxOf<A, B> {
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration {
        self.first.when(item, failures, now).max(self.second.when(item, failures, now))
    }

    fn own_delay(&self, item: &T, failures: u32) -> Option<Duration> {
        self.first.own_delay(item, failures).max(self.second.own_delay(item, failures))
    }
}

/// Caps the delay of another limiter.
///
/// ```
/// # use std::time::Duration;
/// # use watchkeeper::{Env, workqueue::{RateLimiter, limiter::{self, MaxWait}}};
/// // As for a controller, but never more than a minute.
/// let mut limiter = MaxWait::new(limiter::default_controller(), Duration::from_secs(60));
/// assert_eq!(limiter.when(&"a", 30, Env::simulated(1).clock.now()), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct MaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> MaxWait<L> {
    /// Returns a limiter with the delay of `inner`, at most `max`.
    pub fn new(inner: L, max: Duration) -> Self {
        Self { inner, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for MaxWait<L> {
    fn when(&mut self, item: &T, failures: u32, now: Instant) -> Duration {
        self.inner.when(item, failures, now).min(self.max)
    }

    fn own_delay(&self, item: &T, failures: u32) -> Option<Duration> {
        self.inner.own_delay(item, failures).map(|delay| delay.min(self.max))
    }
}

#[cfg(test)]
mod tests;
