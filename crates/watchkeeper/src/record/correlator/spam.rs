//! A token bucket that limits the events about one object.

use std::time::Duration;

use crate::clock::Instant;

/// The events that may still pass. Unlike the limiter of a work queue it has no debt: an event that finds no token is
/// gone.
#[derive(Debug)]
pub(super) struct Bucket {
    tokens: f64,
    last: Instant,
}

impl Bucket {
    pub(super) fn full(burst: u32, now: Instant) -> Self {
        Self { tokens: f64::from(burst), last: now }
    }

    /// Takes a token, if there is one. Another is added after each `refill`, up to `burst`; at once if that is zero.
    pub(super) fn take(&mut self, burst: u32, refill: Duration, now: Instant) -> bool {
        if refill.is_zero() {
            return burst > 0;
        }
        let passed = now.saturating_duration_since(self.last);
        self.last = self.last.max(now);
        self.tokens = (self.tokens + passed.div_duration_f64(refill)).min(f64::from(burst));
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_bucket_gives_its_burst_and_then_one_token_per_refill() {
        let start = Clock::system().now();
        let mut bucket = Bucket::full(2, start);
        let mut take = |minutes: f64| bucket.take(2, MINUTE, start + MINUTE.mul_f64(minutes));
        assert_eq!([take(0.0), take(0.0), take(0.0)], [true, true, false]);
        assert_eq!([take(0.5), take(0.75), take(1.0), take(1.5)], [false, false, true, false]);
        // At most a burst is saved up, and a clock that goes backwards adds nothing.
        assert_eq!(
            [take(60.0), take(60.0), take(60.0), take(0.0), take(60.0)],
            [true, true, false, false, false]
        );
        assert!(take(61.0));
    }

    #[test]
    fn without_a_refill_time_everything_passes_and_without_a_burst_nothing() {
        let now = Clock::system().now();
        let mut bucket = Bucket::full(1, now);
        assert!((0..100).all(|_| bucket.take(1, Duration::ZERO, now)));
        assert!(!Bucket::full(0, now).take(0, Duration::ZERO, now));
        assert!(!Bucket::full(0, now).take(0, MINUTE, now + 100 * MINUTE));
    }
}
