//! Who leads, for health checks, metrics and other tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{BootTime, Clock};
use crate::latch::Latch;

/// How much longer than the lease duration a leader may go without a renewal before it counts as unhealthy, as in Kubernetes'
/// components.
const TOLERANCE: Duration = Duration::from_secs(20);

/// What an election has come to so far. Clones share it.
///
/// ```
/// # use watchkeeper::leader::LeaderElection;
/// # fn show(election: &LeaderElection) {
/// let status = election.status();
/// println!("{} leads; that is me: {}", status.leader(), status.is_leader());
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderStatus(Arc<Shared>);

struct Shared {
    clock: Clock,
    name: String,
    identity: String,
    lease_duration: Duration,
    state: Mutex<State>,
    slow_paths: AtomicU64,
    won: Latch,
}

#[derive(Default)]
struct State {
    leader: String,
    /// When the last renewal was sent, while this candidate leads.
    renewed: Option<BootTime>,
}

impl LeaderStatus {
    pub(super) fn new(clock: &Clock, name: &str, identity: &str, lease_duration: Duration) -> Self {
        Self(Arc::new(Shared {
            clock: clock.clone(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration,
            state: Mutex::default(),
            slow_paths: AtomicU64::new(0),
            won: Latch::default(),
        }))
    }

    /// Returns the name of the election in metrics: by default, that of the Lease.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the identity of this candidate.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Returns the identity of the leader as this candidate last saw it; empty if there was none.
    pub fn leader(&self) -> String {
        self.0.state.lock().leader.clone()
    }

    /// Returns whether this candidate leads. It may have stopped when the caller looks at the answer: only a [guarded
    /// client](super::LeaderElection::guard) is sure.
    pub fn is_leader(&self) -> bool {
        self.0.state.lock().renewed.is_some()
    }

    /// Returns how many renewals needed more than one write, as others had changed the Lease or the server had failed.
    pub fn slow_paths(&self) -> u64 {
        self.0.slow_paths.load(Ordering::Relaxed)
    }

    /// Checks the health of the election: it is an error if this candidate leads and has not renewed for 20 s more than the lease
    /// duration, so that its process hangs.
    ///
    /// # Errors
    ///
    /// A text for a health check.
    pub fn check(&self) -> Result<(), String> {
        let renewed = self.0.state.lock().renewed;
        let is_late =
            |renewed: BootTime| self.0.clock.boot().since(renewed) > self.0.lease_duration + TOLERANCE;
        if renewed.is_some_and(is_late) {
            return Err(format!("failed election to renew leadership on lease {}", self.0.name));
        }
        Ok(())
    }

    /// Waits until this candidate has led. Cancel-safe.
    pub(super) async fn won(&self) {
        self.0.won.wait().await;
    }

    /// Enters who leads; returns whether that has changed.
    pub(super) fn set_leader(&self, leader: &str) -> bool {
        let mut state = self.0.state.lock();
        let has_changed = state.leader != leader;
        if has_changed {
            leader.clone_into(&mut state.leader);
        }
        has_changed
    }

    /// Enters the last renewal; returns whether it is the first.
    pub(super) fn renewed(&self, sent: BootTime, slow_paths: u64) -> bool {
        self.0.slow_paths.store(slow_paths, Ordering::Relaxed);
        self.0.state.lock().renewed.replace(sent).is_none()
    }

    pub(super) fn set_won(&self) {
        self.0.won.set();
    }

    /// Returns whether this candidate leads or has led.
    pub(super) fn has_led(&self) -> bool {
        self.0.won.is_set()
    }

    /// Enters that this candidate does not lead; returns whether it did.
    pub(super) fn stopped(&self) -> bool {
        self.0.state.lock().renewed.take().is_some()
    }
}

impl fmt::Debug for LeaderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderStatus")
            .field("name", &self.0.name)
            .field("identity", &self.0.identity)
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::env::Env;

    // client-go: TestLeaderElectionHealthChecker, TestCheckMethodRace
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_has_not_renewed_for_long_is_unhealthy_and_nobody_else_is() {
        let clock = Env::simulated(1).clock;
        let status = LeaderStatus::new(&clock, "foo", "me", Duration::from_secs(15));
        assert_eq!(status.check(), Ok(()), "nobody has been elected");
        status.set_leader("other");
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(status.check(), Ok(()), "another leads");
        assert!(status.renewed(clock.boot(), 0) && status.is_leader());
        assert_eq!(status.check(), Ok(()));
        clock.sleep(Duration::from_secs(35)).await;
        assert_eq!(status.check(), Ok(()), "expired within the tolerance");
        clock.sleep(Duration::from_millis(10)).await;
        assert_eq!(status.check(), Err("failed election to renew leadership on lease foo".to_owned()));
        assert!(!status.renewed(clock.boot(), 2), "it led already");
        assert_eq!((status.check(), status.slow_paths()), (Ok(()), 2));
        clock.sleep(Duration::from_secs(60)).await;
        assert!(status.stopped() && !status.stopped() && !status.is_leader());
        assert_eq!(status.check(), Ok(()));
    }

    #[test]
    fn a_change_of_leaders_is_noticed_once() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(15));
        assert!(!status.set_leader(""));
        assert!(status.set_leader("a") && !status.set_leader("a"));
        assert_eq!(status.leader(), "a");
        assert!(status.set_leader(""));
        assert_eq!(status.leader(), "");
    }

    #[test]
    fn a_candidate_has_won_for_good_once_it_has_led() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(15));
        assert!(!status.has_led() && status.won().now_or_never().is_none());
        status.set_won();
        assert!(status.has_led() && status.won().now_or_never().is_some());
        status.stopped();
        assert!(status.has_led());
    }

    #[test]
    fn a_status_names_the_election_the_candidate_and_the_leader() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(15));
        status.set_leader("other");
        assert_eq!((status.name(), status.identity()), ("foo", "me"));
        let text = r#"LeaderStatus { name: "foo", identity: "me", leader: "other", .. }"#;
        assert_eq!(format!("{status:?}"), text);
    }
}
