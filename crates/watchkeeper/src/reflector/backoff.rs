//! Backoff: delays that double with jitter, and start over after a quiet time.

use std::time::Duration;

use crate::clock::{FAR, Generator, Instant};

/// Exponential delays with jitter: 0.8 s, doubling to 30 s, plus up to 100 %; they start over two minutes after the
/// last one.
///
/// No delay is shorter than 10 ms, so that a server that refuses every request is not flooded.
#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    cap: Duration,
    quiet: Duration,
    next: Duration,
    last: Option<Instant>,
}

/// The shortest delay, and the shortest cap.
const SHORTEST: Duration = Duration::from_millis(10);

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Returns delays that start at `initial` and double up to `cap`.
    pub fn new(initial: Duration, cap: Duration) -> Self {
        let cap = cap.clamp(SHORTEST, FAR);
        let initial = initial.clamp(SHORTEST, cap);
        Self { initial, cap, quiet: Duration::from_secs(120), next: initial, last: None }
    }

    /// Returns the next delay.
    pub(crate) fn draw(&mut self, now: Instant, generator: &Generator) -> Duration {
        let since = self.last.map(|last| now.saturating_duration_since(last));
        // The delay itself is not quiet time: the retry comes after it.
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
    fn no_settings_make_a_loop_without_waits() {
        let generator = Generator::seeded(1);
        for (initial, cap) in [(0, 0), (0, 30_000), (30_000, 0), (1, 20)] {
            let mut backoff = Backoff::new(Duration::from_millis(initial), Duration::from_millis(cap));
            let mut now = Clock::system().now();
            let mut last = SHORTEST;
            for _ in 0..20 {
                last = backoff.draw(now, &generator);
                assert!(last >= SHORTEST, "{initial} to {cap}: {last:?}");
                now += last;
            }
            let cap = Duration::from_millis(cap).max(SHORTEST);
            assert!((cap..2 * cap).contains(&last), "{initial} to {cap:?}: {last:?}");
        }
    }

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
        // Two minutes after the longest delay are not yet more than two minutes.
        now += Duration::from_secs(150);
        assert!(backoff.draw(now, &generator) >= Duration::from_secs(30));
        now += Duration::from_secs(151);
        assert!(backoff.draw(now, &generator) < Duration::from_millis(1600));
    }
}
