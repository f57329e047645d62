//! How long to wait before trying again? Longer each time, by a random factor, and short again after a quiet time.

use std::time::Duration;

use crate::clock::{FAR, Generator, Instant};

/// Exponential delays with jitter: 0.8 s, doubling to 30 s, plus up to as much again; short again two minutes after the last one.
#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    cap: Duration,
    quiet: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Delays from `initial`, doubling up to `cap`.
    pub fn new(initial: Duration, cap: Duration) -> Self {
        let (initial, cap) = (initial.min(FAR), cap.min(FAR));
        Self { initial, cap, quiet: Duration::from_secs(120), next: initial, last: None }
    }

    /// The next delay.
    pub(crate) fn draw(&mut self, now: Instant, generator: &Generator) -> Duration {
        let since = self.last.map(|last| now.saturating_duration_since(last));
        // The delay itself is not quiet time: the try comes after it.
        if since.is_some_and(|since| since > self.quiet + self.next) {
            self.next = self.initial;
        }
        self.last = Some(now);
        let delay = self.next;
        self.next = (self.next * 2).min(self.cap);
        generator.jitter(delay, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn delays_double_up_to_the_cap_with_jitter_and_start_again_after_a_quiet_time() {
        let (mut backoff, generator) = (Backoff::default(), Generator::seeded(1));
        let mut now = Clock::system().now();
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let delay = backoff.draw(now, &generator).as_secs_f64();
            assert!(delay >= base && delay < 2.0 * base, "{delay} for {base}");
            now += Duration::from_secs_f64(delay);
        }
        now += Duration::from_secs(100);
        assert!(backoff.draw(now, &generator) >= Duration::from_secs(30));
        // Two minutes behind the longest delay are not yet more than two minutes.
        now += Duration::from_secs(150);
        assert!(backoff.draw(now, &generator) >= Duration::from_secs(30));
        now += Duration::from_secs(151);
        assert!(backoff.draw(now, &generator) < Duration::from_millis(1600));
    }
}
