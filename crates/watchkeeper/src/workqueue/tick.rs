//! Times of a queue: nanoseconds since its creation, in half the space of an `Instant`, as each key has four of them.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::clock::{FAR, Instant};

/// A time of one queue. An `Option` of it takes no more space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(NonZeroU64);

impl Tick {
    /// The creation of the queue.
    pub(super) const EPOCH: Self = Self(NonZeroU64::MIN);

    /// Returns `time` for a queue created at `epoch`.
    #[inline]
    pub(super) fn at(time: Instant, epoch: Instant) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos(time.saturating_duration_since(epoch))))
    }

    pub(super) fn instant(self, epoch: Instant) -> Instant {
        epoch + Duration::from_nanos(self.0.get() - 1)
    }

    /// Adds a delay; one beyond [`FAR`] is cut to it.
    pub(super) fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(nanos(delay.min(FAR))))
    }

    /// Returns the nanoseconds since `earlier`, or 0 if it is later.
    pub(super) fn since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}

/// In 64 bits, which hold 584 years.
#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_tick_is_the_time_it_was_made_from() {
        let epoch = Clock::system().now();
        let time = epoch + Duration::new(3, 7);
        let tick = Tick::at(time, epoch);
        assert_eq!((tick.instant(epoch), Tick::at(epoch, epoch).instant(epoch)), (time, epoch));
        assert_eq!(tick.since(Tick::at(epoch, epoch)), 3_000_000_007);
        assert_eq!(Tick::at(epoch, time), Tick::at(time, time), "before the epoch is at the epoch");
    }

    #[test]
    fn delays_are_cut_where_timers_end_and_ages_never_negative() {
        let epoch = Clock::system().now();
        let start = Tick::at(epoch, epoch);
        assert_eq!(start.after(Duration::MAX).since(start), 1_000_000_000_000_000_000);
        assert_eq!(start.after(Duration::from_nanos(5)).since(start), 5);
        assert_eq!(start.since(start.after(FAR)), 0);
        assert_eq!(size_of::<Option<Tick>>(), 8);
    }
}
