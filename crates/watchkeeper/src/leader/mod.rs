//! Leader election: of several replicas of a program, one works, and the others wait to take over.
//!
//! The replicas compete for a Lease, as client-go's do: both can compete for the same one. [`LeaderElection::run`] waits until this
//! process leads and then runs its work; a [guarded client](LeaderElection::guard) refuses writes as soon as it does not lead any
//! more.
//!
//! # Why there are never two leaders
//!
//! Let D be the lease duration (15 s) and R the renew deadline (10 s).
//!
//! 1. A leader leads until R after it *sent* the last renewal that succeeded. The server stored that renewal later than it was sent.
//! 2. Another candidate replaces a record only after it has seen it unchanged for D. It first saw it later than the server stored it.
//!    The write names the version that was seen, and the server refuses it if there was a renewal since.
//! 3. So between the end of the old leadership and the start of the next lie at least D − R, less what clocks disagree about: as long
//!    as no candidate's clock runs D/R = 1.5 times as fast as the leader's, the old leader stops first. Offsets do not matter, as nobody
//!    compares the times in a Lease with their own clock. The clock is one that goes on while a machine is suspended.
//! 4. No write starts after the end of the leadership, and none is waited for beyond it. What was sent before may reach the server
//!    late: the difference of D and R is its time. There is no fencing on the server.
//!
//! A Lease that somebody deletes by hand is created again by its leader; a candidate that has seen it waits for D after it has seen
//! it gone. Beyond this are a Lease that is emptied by hand, and a candidate that starts, or misses everything, while the Lease is gone:
//! the leader learns of the other at its next renewal, and stops.
//!
//! `elector.rs` decides, as a pure function of what was seen and when; `keeper.rs` is the task that acts; `record.rs` and `lock.rs` are
//! the Lease.

mod elector;
mod follow;
mod keeper;
mod leadership;
mod lock;
mod record;
mod status;
mod times;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::elector::Elector;
pub use self::elector::Loss;
use self::keeper::Keeper;
pub use self::leadership::Leadership;
use self::lock::LeaseLock;
pub use self::record::LeaderRecord;
pub use self::status::LeaderStatus;
pub use self::times::{LeaseTimes, TimesError};
use crate::env::Env;
use crate::object::ObjectName;
use crate::record::EventRecorder;
use crate::source::{Client, Scope, WriteGate};

/// How much longer than the lease duration a leader may go without a renewal before it counts as unhealthy, as in Kubernetes'
/// components.
const TOLERANCE: Duration = Duration::from_secs(20);

/// How long the release of the lease may take.
const RELEASE: Duration = Duration::from_secs(2);

/// A candidate for a Lease.
///
/// ```no_run
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::Client;
/// use watchkeeper::leader::LeaderElection;
///
/// # async fn work(client: &Client, stop: CancellationToken) {}
/// # async fn run(client: Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let election = LeaderElection::builder(&client, "default", "map-operator").build()?;
/// let guarded = election.guard(&client);
/// // Informers are started before: a standby keeps its caches warm.
/// election.run(stop.clone(), |_| async move { work(&guarded, stop).await }).await?;
/// # Ok(()) }
/// ```
pub struct LeaderElection {
    client: Client,
    env: Env,
    lease: ObjectName,
    labels: BTreeMap<String, String>,
    times: LeaseTimes,
    releases: bool,
    leadership: Leadership,
}

/// Settings of a [`LeaderElection`].
#[derive(Debug)]
#[must_use = "an election is built with build"]
pub struct LeaderElectionBuilder {
    client: Client,
    lease: ObjectName,
    labels: BTreeMap<String, String>,
    times: LeaseTimes,
    identity: Option<String>,
    name: Option<String>,
    recorder: Option<EventRecorder>,
    tolerance: Duration,
    releases: bool,
}

/// Why an election cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The Lease has no name or no namespace.
    #[error("a leader election needs the name and the namespace of a Lease")]
    NoLease,
    /// The identity is empty, which stands for nobody.
    #[error("lock identity is empty")]
    NoIdentity,
    /// The times do not fit together.
    #[error(transparent)]
    Times(#[from] TimesError),
}

/// The error of a process that led and does not any more. It must end: its work was dropped where it stood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election lost: {lease}: {loss}")]
pub struct LeaderElectionLost {
    /// Namespace and name of the Lease.
    pub lease: ObjectName,
    /// Why.
    pub loss: Loss,
}

impl LeaderElectionBuilder {
    /// Sets the identity, which no other candidate may have; `<hostname>_<uuid>` by default.
    pub fn identity(mut self, identity: &str) -> Self {
        self.identity = Some(identity.to_owned());
        self
    }

    /// Sets the name of the election in metrics and health checks; that of the Lease by default.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets how much longer than the lease duration a leader may go without a renewal, and a standby without a look at the Lease,
    /// before [`LeaderStatus::check`] and [`LeaderStatus::check_standby`] fail; 20 s by default.
    pub fn health_tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets whether the lease is released when the work has ended, so that another replica takes over at once; true by default.
    /// Otherwise it expires, which gives what the work has left behind, such as other processes, the lease duration to end.
    pub fn release_on_cancel(mut self, releases: bool) -> Self {
        self.releases = releases;
        self
    }

    /// Sets lease duration, renew deadline and retry period; 15, 10 and 2 s by default.
    pub fn times(mut self, times: LeaseTimes) -> Self {
        self.times = times;
        self
    }

    /// Adds a label that the Lease has after each write.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Records on the Lease when this candidate starts and stops leading.
    pub fn recorder(mut self, recorder: &EventRecorder) -> Self {
        self.recorder = Some(recorder.clone());
        self
    }

    /// Builds the candidate, which does nothing yet.
    ///
    /// # Errors
    ///
    /// A setting is missing, or does not fit the others.
    pub fn build(self) -> Result<LeaderElection, ElectionError> {
        let Self { client, lease, labels, times, identity, name, recorder, tolerance, releases } = self;
        times.check()?;
        if lease.name().is_empty() || lease.namespace().is_none_or(str::is_empty) {
            return Err(ElectionError::NoLease);
        }
        let env = client.env().fork(&format!("election {lease}"));
        let identity = identity.unwrap_or_else(|| format!("{}_{}", hostname(), env.generator.uuid()));
        if identity.is_empty() {
            return Err(ElectionError::NoIdentity);
        }
        let name = name.as_deref().unwrap_or_else(|| lease.name());
        let patience = times.lease_duration.saturating_add(tolerance);
        let status = LeaderStatus::new(&env.clock, name, &identity, patience);
        let leadership = Leadership::new(WriteGate::new(&env.clock), status, recorder);
        Ok(LeaderElection { client, env, lease, labels, times, releases, leadership })
    }
}

impl LeaderElection {
    /// Returns the builder of a candidate for the Lease of that name.
    pub fn builder(client: &Client, namespace: &str, name: &str) -> LeaderElectionBuilder {
        LeaderElectionBuilder {
            client: client.clone(),
            lease: ObjectName::namespaced(namespace, name),
            labels: BTreeMap::new(),
            times: LeaseTimes::default(),
            identity: None,
            name: None,
            recorder: None,
            tolerance: TOLERANCE,
            releases: true,
        }
    }

    /// Returns a client like `client` whose writes are sent only while this process leads.
    ///
    /// A write at any other time is refused ([`Class::NotLeader`](crate::wire::Class::NotLeader)). One that has no answer when the
    /// leadership ends is given up ([`Class::Timeout`](crate::wire::Class::Timeout)). Reads are not affected, nor are requests that go
    /// past it, through [`Client::kube`]. Clones of the result are guarded too.
    #[must_use]
    pub fn guard(&self, client: &Client) -> Client {
        self.leadership.guard(client)
    }

    /// Returns the name of the Lease.
    pub(crate) fn lease(&self) -> &ObjectName {
        &self.lease
    }

    /// Returns the namespace of the Lease.
    pub(crate) fn scope(&self) -> Scope {
        Scope::Namespace(self.lease.namespace().unwrap_or_default().to_owned())
    }

    /// Records events with `recorder`, if the builder was given none.
    pub(crate) fn record_with(&self, recorder: &EventRecorder) {
        self.leadership.record_with(recorder);
    }

    /// Returns who leads, for metrics and health checks.
    pub fn status(&self) -> &LeaderStatus {
        self.leadership.status()
    }

    /// Waits until this process leads, then runs `work` to its end, and returns its result; `None` if `stop` came first.
    ///
    /// The lease is renewed until `work` has returned, also after the stop, which is for `work` to notice. Then it is released, so
    /// that another replica takes over at once, unless [that is off](LeaderElectionBuilder::release_on_cancel), or a write of a
    /// guarded client has not been answered: then it expires. Must be
    /// called on a tokio runtime, and must not be dropped before its end for the release to happen.
    ///
    /// # Errors
    ///
    /// Leadership was lost. `work` was dropped where it stood, and tasks that it has spawned may still run: the process has to end.
    pub async fn run<T, F, Fut>(
        self,
        stop: CancellationToken,
        work: F,
    ) -> Result<Option<T>, LeaderElectionLost>
    where
        F: FnOnce(Leadership) -> Fut,
        Fut: Future<Output = T>,
    {
        let Self { client, env, lease, labels, times, releases, leadership } = self;
        let requests = client.requests().clone().deadline(times.request_timeout());
        let clock = env.clock.clone();
        let keeper = Keeper {
            elector: Elector::new(leadership.status().identity(), times),
            lock: LeaseLock::new(requests, lease.clone(), labels),
            client,
            lease: lease.clone(),
            env,
            leadership: leadership.clone(),
            memory: times.lease_duration,
            releases,
        };
        // A task of its own: work that blocks its thread does not delay a renewal where there are others.
        let (mut task, resign) = (JoinSet::new(), CancellationToken::new());
        task.spawn(keeper.run(resign.clone()));
        let _closed = CloseOnDrop(leadership.clone());
        let stopped = tokio::select! {
            biased;
            ended = task.join_next() => return lost(ended, lease),
            () = leadership.status().won() => None,
            () = stop.cancelled() => Some(()),
        };
        let result = match stopped {
            Some(()) => None,
            None => tokio::select! {
                biased;
                ended = task.join_next() => return lost(ended, lease),
                result = work(leadership.clone()) => Some(result),
            },
        };
        leadership.step_down();
        resign.cancel();
        // What has not been released by then expires.
        let _late = clock.timeout(RELEASE, task.join_next()).await;
        Ok(result)
    }
}

/// The result of a keeper that ended although nothing had asked it to.
fn lost<T>(
    ended: Option<Result<Result<(), Loss>, tokio::task::JoinError>>,
    lease: ObjectName,
) -> Result<T, LeaderElectionLost> {
    let loss = match ended {
        Some(Ok(Err(loss))) => loss,
        // It panicked, or the runtime shuts down: nobody renews.
        _ => Loss::NotRenewed,
    };
    Err(LeaderElectionLost { lease, loss })
}

/// Ends the writes of guarded clients when the election is dropped.
struct CloseOnDrop(Leadership);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.step_down();
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("lease", &self.lease)
            .field("identity", &self.status().identity())
            .finish_non_exhaustive()
    }
}

fn hostname() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    name
}

#[cfg(test)]
mod tests;
