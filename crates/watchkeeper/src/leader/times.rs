//! The times of an election, and their rules.

use std::time::Duration;

/// The jitter of upstream's retries: the pause between two tries of a candidate is up to 1.2 times longer than the retry period.
pub(super) const JITTER: f64 = 1.2;

/// How long a lease lasts, and how often it is renewed. The defaults are those of Kubernetes' components and controller-runtime: 15,
/// 10 and 2 seconds.
///
/// ```
/// use std::time::Duration;
/// use watchkeeper::leader::LeaseTimes;
///
/// let times = LeaseTimes::default();
/// assert_eq!(times.lease_duration, Duration::from_secs(15));
/// assert!(times.check().is_ok());
/// assert!(LeaseTimes { renew_deadline: Duration::from_secs(15), ..times }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a candidate waits, after it has last seen the Lease change, before it takes over. Written into the Lease in whole
    /// seconds.
    pub lease_duration: Duration,
    /// How long a leader leads after it has sent the last renewal that succeeded. Its ratio to the lease duration is how much faster
    /// the clock of another candidate may run.
    pub renew_deadline: Duration,
    /// The pause between two renewals, and, up to 2.2 times as long, between two tries of a candidate that cannot watch the Lease.
    pub retry_period: Duration,
}

/// Why times do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimesError {
    /// Lease durations are written in whole seconds, and servers refuse zero.
    #[error("the lease duration of {0:?} is too short: it must be at least 1 s")]
    LeaseTooShort(Duration),
    /// A leader would lead for longer than others wait.
    #[error(
        "the renew deadline of {renew:?} must be less than the lease duration, which is {lease:?} in whole seconds"
    )]
    RenewTooLong {
        /// The renew deadline.
        renew: Duration,
        /// The lease duration in whole seconds.
        lease: Duration,
    },
    /// There would be no time for a second try.
    #[error("the renew deadline of {renew:?} must be more than 1.2 times the retry period of {retry:?}")]
    RetryTooLong {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// Renewals would follow each other without a pause.
    #[error("the retry period must not be zero")]
    RetryZero,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTimes {
    /// Checks the rules of upstream's elector, with the lease duration in whole seconds: that is what others wait for.
    ///
    /// # Errors
    ///
    /// Two of the times do not fit together.
    pub fn check(&self) -> Result<(), TimesError> {
        let Self { lease_duration, renew_deadline: renew, retry_period: retry } = *self;
        let lease = self.whole_lease();
        if lease.is_zero() {
            return Err(TimesError::LeaseTooShort(lease_duration));
        }
        if lease <= renew {
            return Err(TimesError::RenewTooLong { renew, lease });
        }
        if retry.is_zero() {
            return Err(TimesError::RetryZero);
        }
        if renew <= retry.mul_f64(JITTER) {
            return Err(TimesError::RetryTooLong { renew, retry });
        }
        Ok(())
    }

    /// Returns the lease duration as it is written.
    pub(super) fn whole_lease(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs().min(i32::MAX as u64))
    }

    /// Returns the time-out of a request about the Lease, as upstream has it.
    pub(super) fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// Returns the pause before the next try of a candidate; `chance` is a number in `[0, 1)`.
    pub(super) fn pause(&self, chance: f64) -> Duration {
        self.retry_period + self.retry_period.mul_f64(JITTER * chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(lease: u64, renew: u64, retry: u64) -> LeaseTimes {
        let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_millis);
        LeaseTimes { lease_duration, renew_deadline, retry_period }
    }

    // client-go: TestLeaderElectionConfigValidation
    #[test]
    fn times_that_do_not_fit_together_are_refused() {
        let check = |lease, renew, retry| times(lease, renew, retry).check();
        assert_eq!(LeaseTimes::default().check(), Ok(()));
        assert_eq!(check(10_000, 8_000, 500), Ok(()));
        let ms = Duration::from_millis;
        assert_eq!(
            check(15_000, 15_000, 2_000),
            Err(TimesError::RenewTooLong { renew: ms(15_000), lease: ms(15_000) })
        );
        assert_eq!(
            check(15_000, 2_400, 2_000),
            Err(TimesError::RetryTooLong { renew: ms(2_400), retry: ms(2_000) })
        );
        assert_eq!(check(15_000, 2_401, 2_000), Ok(()));
        assert_eq!(check(15_000, 10_000, 0), Err(TimesError::RetryZero));
        assert_eq!(check(999, 500, 100), Err(TimesError::LeaseTooShort(ms(999))));
        // Others wait for one second: the fraction is not written.
        assert_eq!(
            check(1_900, 1_500, 100),
            Err(TimesError::RenewTooLong { renew: ms(1_500), lease: ms(1_000) })
        );
    }

    #[test]
    fn tries_of_a_candidate_are_2_to_4_4_seconds_apart_and_requests_end_after_half_the_deadline() {
        let defaults = LeaseTimes::default();
        assert_eq!(defaults.pause(0.0), Duration::from_secs(2));
        assert_eq!(defaults.pause(0.5), Duration::from_millis(3_200));
        assert_eq!(defaults.request_timeout(), Duration::from_secs(5));
        assert_eq!(times(2_000, 1_500, 100).request_timeout(), Duration::from_secs(1));
    }
}
