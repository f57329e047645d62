//! Who leads, for health checks, metrics and other tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{Stream, unfold};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{BootTime, Clock};
use crate::latch::Latch;

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
    /// How long a leader may go without a renewal, and another candidate without a look at the Lease.
    patience: Duration,
    leader: watch::Sender<String>,
    state: Mutex<State>,
    slow_paths: AtomicU64,
    won: Latch,
}

#[derive(Default)]
struct State {
    /// When the last renewal was sent, while this candidate leads.
    renewed: Option<BootTime>,
    /// When the Lease was last seen, or at first, when this candidate began to look.
    seen: Option<BootTime>,
    /// Why the last look failed, if it did.
    unseen: Option<String>,
}

impl LeaderStatus {
    pub(super) fn new(clock: &Clock, name: &str, identity: &str, patience: Duration) -> Self {
        Self(Arc::new(Shared {
            clock: clock.clone(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            patience,
            leader: watch::Sender::default(),
            state: Mutex::default(),
            slow_paths: AtomicU64::new(0),
            won: Latch::default(),
        }))
    }

    /// Returns the name of the election in metrics and health checks; see
    /// [`LeaderElectionBuilder::name`](super::LeaderElectionBuilder::name).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the identity of this candidate.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Returns the identity of the leader as this candidate last saw it; empty if there was none.
    pub fn leader(&self) -> String {
        self.0.leader.borrow().clone()
    }

    /// Returns the identities of the leaders: at once that of the current one, if there is one, and then each new one; empty when
    /// nobody leads. Who is slow to take them gets the last one. client-go calls this `OnNewLeader`.
    ///
    /// The stream ends with the election and all clones of its status.
    ///
    /// ```
    /// use futures::StreamExt;
    /// # use watchkeeper::leader::LeaderStatus;
    ///
    /// # async fn log(status: LeaderStatus) {
    /// let mut leaders = std::pin::pin!(status.leaders());
    /// while let Some(leader) = leaders.next().await {
    ///     println!("{leader} leads now");
    /// }
    /// # }
    /// ```
    pub fn leaders(&self) -> impl Stream<Item = String> + Send + use<> {
        let mut receiver = self.0.leader.subscribe();
        if !receiver.borrow().is_empty() {
            receiver.mark_changed();
        }
        unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let leader = receiver.borrow_and_update().clone();
            Some((leader, receiver))
        })
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

    /// Checks the health of the election: it is an error if this candidate leads and has not renewed for 20 s, or the [settable
    /// tolerance](super::LeaderElectionBuilder::health_tolerance), more than the lease duration, so that its process hangs.
    ///
    /// # Errors
    ///
    /// A text for a health check.
    pub fn check(&self) -> Result<(), String> {
        let renewed = self.0.state.lock().renewed;
        if renewed.is_some_and(|renewed| self.is_over(renewed)) {
            return Err(format!("failed election to renew leadership on lease {}", self.0.name));
        }
        Ok(())
    }

    /// Checks whether this candidate could take over: it is an error if it does not lead and has not seen the Lease for as long as in
    /// [`LeaderStatus::check`], since its election runs. That the Lease does not exist counts as seen.
    ///
    /// # Errors
    ///
    /// A text for a readiness check, with the reason.
    pub fn check_standby(&self) -> Result<(), String> {
        let state = self.0.state.lock();
        if state.renewed.is_some() || !state.seen.is_some_and(|seen| self.is_over(seen)) {
            return Ok(());
        }
        let why = state.unseen.as_deref().unwrap_or("no answer");
        Err(format!("cannot read the lease {}: {why}", self.0.name))
    }

    /// Returns whether too much time has passed since then.
    fn is_over(&self, then: BootTime) -> bool {
        self.0.clock.boot().since(then) > self.0.patience
    }

    /// Waits until this candidate has led. Cancel-safe.
    pub(super) async fn won(&self) {
        self.0.won.wait().await;
    }

    /// Enters who leads; returns whether that has changed.
    pub(super) fn set_leader(&self, leader: &str) -> bool {
        self.0.leader.send_if_modified(|last| {
            let has_changed = last.as_str() != leader;
            if has_changed {
                leader.clone_into(last);
            }
            has_changed
        })
    }

    /// Enters that the Lease was seen now, or that looking for it begins.
    pub(super) fn saw(&self) {
        let mut state = self.0.state.lock();
        (state.seen, state.unseen) = (Some(self.0.clock.boot()), None);
    }

    /// Enters why the Lease could not be seen.
    pub(super) fn did_not_see(&self, why: String) {
        self.0.state.lock().unseen = Some(why);
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
    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::env::Env;

    // client-go: TestLeaderElectionHealthChecker, TestCheckMethodRace
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_has_not_renewed_for_long_is_unhealthy_and_nobody_else_is() {
        let clock = Env::simulated(1).clock;
        let status = LeaderStatus::new(&clock, "foo", "me", Duration::from_secs(35));
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

    #[tokio::test(start_paused = true)]
    async fn a_standby_that_has_not_seen_the_lease_for_long_cannot_take_over() {
        let clock = Env::simulated(1).clock;
        let status = LeaderStatus::new(&clock, "foo", "me", Duration::from_secs(35));
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(status.check_standby(), Ok(()), "the election does not run yet");
        status.saw();
        clock.sleep(Duration::from_secs(35)).await;
        status.did_not_see("forbidden".to_owned());
        assert_eq!(status.check_standby(), Ok(()));
        clock.sleep(Duration::from_millis(10)).await;
        assert_eq!(status.check_standby(), Err("cannot read the lease foo: forbidden".to_owned()));
        status.saw();
        assert_eq!(status.check_standby(), Ok(()));
        clock.sleep(Duration::from_secs(36)).await;
        assert_eq!(status.check_standby(), Err("cannot read the lease foo: no answer".to_owned()));
        status.renewed(clock.boot(), 0);
        assert_eq!(status.check_standby(), Ok(()), "it leads");
    }

    // client-go: OnNewLeader
    #[tokio::test]
    async fn each_new_leader_is_told_and_who_is_slow_gets_the_last_one() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(35));
        let (mut early, unheard) = (Box::pin(status.leaders()), status.leaders());
        assert_eq!(early.next().now_or_never(), None, "there is none");
        status.set_leader("a");
        assert_eq!(early.next().await.as_deref(), Some("a"));
        status.set_leader("a");
        assert_eq!(early.next().now_or_never(), None);
        let mut late = Box::pin(status.leaders());
        assert_eq!(late.next().await.as_deref(), Some("a"));
        status.set_leader("");
        assert_eq!(early.next().await.as_deref(), Some(""));
        status.set_leader("b");
        status.set_leader("c");
        assert_eq!(late.next().await.as_deref(), Some("c"));
        drop(status);
        assert_eq!(late.next().await, None);
        assert_eq!(Box::pin(unheard).next().await.as_deref(), Some("c"));
    }

    #[test]
    fn a_change_of_leaders_is_noticed_once() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(35));
        assert!(!status.set_leader(""));
        assert!(status.set_leader("a") && !status.set_leader("a"));
        assert_eq!(status.leader(), "a");
        assert!(status.set_leader(""));
        assert_eq!(status.leader(), "");
    }

    #[test]
    fn a_candidate_has_won_for_good_once_it_has_led() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(35));
        assert!(!status.has_led() && status.won().now_or_never().is_none());
        status.set_won();
        assert!(status.has_led() && status.won().now_or_never().is_some());
        status.stopped();
        assert!(status.has_led());
    }

    #[test]
    fn a_status_names_the_election_the_candidate_and_the_leader() {
        let status = LeaderStatus::new(&Clock::system(), "foo", "me", Duration::from_secs(35));
        status.set_leader("other");
        assert_eq!((status.name(), status.identity()), ("foo", "me"));
        let text = r#"LeaderStatus { name: "foo", identity: "me", leader: "other", .. }"#;
        assert_eq!(format!("{status:?}"), text);
    }
}
