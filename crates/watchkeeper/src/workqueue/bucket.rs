//! A token bucket: the rate limit of all keys of a queue together.

use std::time::Duration;

use super::limiter::RateLimiter;
use crate::clock::Instant;

/// The delay if no token will ever come: about 292 years.
const FOREVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// Lets `burst` retries through at once and `rate` per second in the long run, whatever their keys.
///
/// Each retry reserves the next free token and waits until that token is available, so many retries are spread out
/// evenly. The caller passes the time; a clock that goes backwards counts as standing still.
///
/// ```
/// use std::time::Duration;
/// use watchkeeper::Env;
/// use watchkeeper::workqueue::{RateLimiter, limiter::TokenBucket};
///
/// let (mut bucket, now) = (TokenBucket::new(10.0, 1), Env::simulated(1).clock.now());
/// assert_eq!(bucket.when(&"a", 0, now), Duration::ZERO);
/// assert_eq!(bucket.when(&"b", 0, now), Duration::from_millis(100));
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: f64,
    burst: u32,
    /// As of `last`. Negative if tokens are reserved that are not available yet.
    tokens: f64,
    /// The time of the last reservation; none before the first, when the bucket is full.
    last: Option<Instant>,
}

impl TokenBucket {
    /// Returns a full bucket: `rate` tokens per second, at most `burst` saved up.
    ///
    /// With an infinite rate nothing ever waits. With a rate of zero (or less) only the first burst gets through, and
    /// with a burst of zero nothing does.
    pub fn new(rate: f64, burst: u32) -> Self {
        Self { rate, burst, tokens: f64::from(burst), last: None }
    }

    /// Reserves one token; returns the delay until it is available.
    fn reserve(&mut self, now: Instant) -> Duration {
        if self.rate == f64::INFINITY {
            return Duration::ZERO;
        }
        if self.burst < 1 {
            return FOREVER;
        }
        let last = self.last.unwrap_or(now).min(now);
        let dripped = (now - last).as_secs_f64() * self.rate.max(0.0);
        let tokens = (self.tokens + dripped).min(f64::from(self.burst)) - 1.0;
        self.tokens = tokens;
        self.last = self.last.max(Some(now));
        if tokens >= 0.0 {
            return Duration::ZERO;
        }
        // Dividing by a rate of zero gives infinity, which no `Duration` holds.
        let wait = -tokens / self.rate.max(0.0);
        Duration::try_from_secs_f64(wait).map_or(FOREVER, |wait| wait.min(FOREVER))
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&mut self, _item: &T, _failures: u32, now: Instant) -> Duration {
        self.reserve(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const MS: Duration = Duration::from_millis(1);

    fn start() -> Instant {
        Clock::system().now()
    }

    #[test]
    fn after_the_burst_each_try_waits_for_a_token_of_its_own() {
        let (mut bucket, start) = (TokenBucket::new(10.0, 2), start());
        let waits: Vec<_> = (0..5).map(|_| bucket.reserve(start)).collect();
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, 100 * MS, 200 * MS, 300 * MS]);
    }

    #[test]
    fn tokens_come_back_with_time_up_to_the_burst() {
        let (mut bucket, start) = (TokenBucket::new(10.0, 2), start());
        let _ = [bucket.reserve(start), bucket.reserve(start)];
        // Half a token was added: half of one is missing.
        assert_eq!(bucket.reserve(start + 50 * MS), 50 * MS);
        let later = start + 3_600_000 * MS;
        let waits: Vec<_> = (0..3).map(|_| bucket.reserve(later)).collect();
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, 100 * MS]);
    }

    #[test]
    fn a_debt_is_paid_back_before_anyone_goes_unhindered() {
        let (mut bucket, start) = (TokenBucket::new(10.0, 1), start());
        for _ in 0..4 {
            bucket.reserve(start);
        }
        assert_eq!(bucket.reserve(start + 300 * MS), 100 * MS);
        assert_eq!(bucket.reserve(start + 500 * MS), Duration::ZERO);
    }

    #[test]
    fn time_that_goes_backwards_gives_no_tokens() {
        let (mut bucket, start) = (TokenBucket::new(10.0, 1), start());
        let later = start + 1000 * MS;
        assert_eq!(bucket.reserve(later), Duration::ZERO);
        assert_eq!(bucket.reserve(start), 100 * MS);
        assert_eq!(bucket.reserve(later), 200 * MS);
    }

    #[test]
    fn rates_and_bursts_at_the_edges() {
        let now = start();
        let waits = |rate, burst| {
            let mut bucket = TokenBucket::new(rate, burst);
            [bucket.reserve(now), bucket.reserve(now + 3_600_000 * MS)]
        };
        assert_eq!(waits(f64::INFINITY, 0), [Duration::ZERO, Duration::ZERO]);
        assert_eq!(waits(10.0, 0), [FOREVER, FOREVER]);
        assert_eq!(waits(0.0, 1), [Duration::ZERO, FOREVER]);
        assert_eq!(waits(-1.0, 1), [Duration::ZERO, FOREVER]);
        assert_eq!(waits(1e-300, 1), [Duration::ZERO, FOREVER]);
    }

    // client-go: TestRatePrecisionBug
    #[test]
    fn a_rate_just_below_one_a_second_lets_one_through_every_two_seconds() {
        let (mut bucket, start) = (TokenBucket::new(1.0 / 1.031_425, 1), start());
        let waits: Vec<_> = (0..60).map(|round| bucket.reserve(start + round * 2000 * MS)).collect();
        assert_eq!(waits, [Duration::ZERO; 60]);
    }
}
