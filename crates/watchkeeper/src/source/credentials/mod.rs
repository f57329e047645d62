//! The credentials of a client: they are read again while it runs, before they expire and after they were refused.
//!
//! Requests and open watches see to this. Files that are due are read on the spot. What takes a while, running a plugin or asking a
//! provider, is one task for all that use the credentials, which they own (`renewal.rs`): nobody waits for it as long as the last
//! credentials are valid. A watch ends when they have changed, so that the next one is opened with the new ones.

mod oidc;
mod outside;
mod plugin;
mod problem;
mod renewal;
mod sources;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube_client::client::AuthError;
use kube_client::{Config, Error};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustls::ClientConfig;
use tokio::sync::Notify;

pub(super) use self::outside::Machine;
pub(crate) use self::outside::Outside;
pub(super) use self::problem::Problem;
use self::renewal::{Outcome, Renewal};
use self::sources::{Asked, Reading, Sources};
use crate::clock::{Clock, Instant};
use crate::report::WithCauses;

/// The time after which files are read again.
const FRESH: Duration = Duration::from_secs(30);
/// Credentials are renewed so long before they expire, or a fifth of their remaining life before if that is less.
const MARGIN: Duration = Duration::from_secs(60);
/// The time before another attempt after a failed one, and between runs of a program that gives nothing new.
const RETRY: Duration = Duration::from_secs(10);
/// Between looks at files that another reads.
const PAUSE: Duration = Duration::from_secs(1);

/// The credentials of a client. Clones share them.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<Shared>);

struct Shared {
    core: Arc<Core>,
    /// The last renewal, which may be over. It is dropped with the credentials.
    renewal: Mutex<Option<Renewal>>,
}

/// What a renewal works on.
struct Core {
    sources: Sources,
    outside: Arc<dyn Outside>,
    clock: Clock,
    current: RwLock<Arc<Presented>>,
    status: Mutex<Status>,
    /// Held while files are read, so that what was read later is used later.
    reading: Mutex<()>,
    renewed: Notify,
}

/// What a client presents to its server, and the authorities that it trusts, at one time.
pub(super) struct Presented {
    /// Counts the changes.
    pub(super) number: u64,
    pub(super) tls: Option<Arc<ClientConfig>>,
    reading: Reading,
}

struct Status {
    /// When the current credentials were read for the first time.
    since: Instant,
    /// When files are to be read again, if there are any.
    files_due: Option<Instant>,
    /// When the credentials are to be renewed as they will expire, if they do.
    expiry_due: Option<Instant>,
    /// When they were read last, successfully or not.
    tried: Instant,
    /// When a plugin ran, or a provider was asked, in vain: with a failure, or after a refusal without a change.
    vain: Option<Instant>,
    reloads: u64,
    failures: u64,
    /// The problem of the last attempt.
    problem: Option<String>,
}

/// Why a plugin is run, or a provider is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The credentials are about to expire.
    Expiry,
    /// A server has refused them.
    Refused,
}

/// The state of a client's credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CredentialStatus {
    /// The time since the current credentials were read for the first time.
    pub age: Duration,
    /// How often new credentials replaced others.
    pub reloads: u64,
    /// How often they could not be read again. The last ones stay in use.
    pub failures: u64,
    /// Why the last attempt failed, if it did.
    pub problem: Option<String>,
    /// When the current credentials expire, if that is known: a credential program says so, and tokens that are JWTs do.
    pub expires: Option<Timestamp>,
}

impl Status {
    fn due(&self) -> Option<Instant> {
        self.files_due.into_iter().chain(self.expiry_due).min()
    }
}

impl Presented {
    /// Returns the value of the header `Authorization`.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.reading.authorization.as_ref()
    }
}

impl Credentials {
    /// Reads the credentials of `config` for the first time, which must succeed. Blocks while a plugin runs.
    pub(super) fn new(config: &Config, clock: &Clock, outside: Arc<dyn Outside>) -> Result<Self, Error> {
        let unusable = |problem: Problem| match problem {
            Problem::Tls(error) => error,
            other => Error::Auth(AuthError::AuthExec(WithCauses(&other).to_string())),
        };
        let sources = Sources::new(config).map_err(unusable)?;
        let printed = sources.run_first(&*outside, clock).map_err(unusable)?;
        let reading = sources.read(&*outside, printed, None).map_err(unusable)?;
        let tls = sources.tls(&reading)?;
        let now = clock.now();
        let status = Status {
            since: now,
            files_due: sources.has_files().then(|| now + FRESH),
            expiry_due: reading.expires.map(|at| now + before_expiry(at, clock.wall())),
            tried: now,
            vain: None,
            reloads: 0,
            failures: 0,
            problem: None,
        };
        let current = Arc::new(Presented { number: 0, tls, reading });
        let core = Core {
            sources,
            outside,
            clock: clock.clone(),
            current: RwLock::new(current),
            status: Mutex::new(status),
            reading: Mutex::default(),
            renewed: Notify::new(),
        };
        Ok(Self(Arc::new(Shared { core: Arc::new(core), renewal: Mutex::default() })))
    }

    pub(super) fn current(&self) -> Arc<Presented> {
        self.0.core.current()
    }

    /// Returns whether there may ever be other credentials.
    pub(super) fn can_change(&self) -> bool {
        self.0.core.sources.has_files() || self.0.core.sources.are_slow()
    }

    pub(crate) fn status(&self) -> CredentialStatus {
        let core = &self.0.core;
        let status = core.status.lock();
        CredentialStatus {
            age: core.clock.now().saturating_duration_since(status.since),
            reloads: status.reloads,
            failures: status.failures,
            problem: status.problem.clone(),
            expires: core.current().reading.ends(),
        }
    }

    /// Returns the credentials for a request. Those that are due are renewed, which is waited for only if they have expired. An
    /// error means that they have and could not be renewed.
    pub(super) async fn fresh(&self) -> Result<Arc<Presented>, Arc<Problem>> {
        let renewal = self.renew_if_due();
        if let Some(renewal) = renewal.filter(|_| self.0.core.has_expired())
            && let Err(problem) = renewal.wait().await
            && self.0.core.has_expired()
        {
            return Err(problem);
        }
        Ok(self.current())
    }

    /// Reads the credentials again after a server has refused `refused`. Returns whether there are others now.
    pub(super) async fn after_refusal(&self, refused: &Presented) -> bool {
        let core = &self.0.core;
        if self.current().number == refused.number && self.can_change() {
            // The problem is in the status, and the refusal stands.
            let _reported = match self.under_way() {
                Some(renewal) => renewal.wait().await,
                None if core.sources.are_slow() && !core.was_in_vain() => {
                    self.renew(Cause::Refused).wait().await
                }
                None => core.update(Ok(None)),
            };
        }
        self.current().number != refused.number
    }

    /// Waits until there are other credentials than those of `number`, and renews them meanwhile when they are due.
    /// Cancel-safe.
    pub(super) fn renewal(&self, number: u64) -> impl Future<Output = ()> + Send + use<> {
        let credentials = self.clone();
        async move {
            loop {
                let renewed = credentials.0.core.renewed.notified();
                if credentials.current().number != number {
                    return;
                }
                let renew = async {
                    credentials.0.core.until_due().await;
                    match credentials.renew_if_due() {
                        // The problem is in the status.
                        Some(renewal) => drop(renewal.wait().await),
                        // Another may still be reading the files.
                        None => credentials.0.core.clock.sleep(PAUSE).await,
                    }
                };
                tokio::select! {
                    biased;
                    () = renewed => {}
                    () = renew => {}
                }
            }
        }
    }

    /// Reads files that are due. Returns a renewal if credentials are about to expire, or one is under way.
    fn renew_if_due(&self) -> Option<Renewal> {
        let core = &self.0.core;
        // While one reads files, others use the last credentials.
        if core.is_due(|status| status.files_due)
            && let Some(turn) = core.reading.try_lock()
        {
            // The problem is in the status.
            let _reported = core.update_in_turn(&turn, Ok(None));
        }
        if core.is_due(|status| status.expiry_due) {
            Some(self.renew(Cause::Expiry))
        } else {
            self.under_way()
        }
    }

    fn under_way(&self) -> Option<Renewal> {
        self.0.renewal.lock().clone().filter(|renewal| !renewal.is_over())
    }

    /// Starts a renewal, or joins the one that is under way.
    fn renew(&self, cause: Cause) -> Renewal {
        let mut last = self.0.renewal.lock();
        if let Some(renewal) = last.as_ref().filter(|renewal| !renewal.is_over()) {
            return renewal.clone();
        }
        let core = self.0.core.clone();
        let refused = self.current().number;
        core.status.lock().tried = core.clock.now();
        let renewal = Renewal::start(async move {
            let asked = core.sources.ask(&*core.outside, &core.clock).await;
            let outcome = core.update(asked.map(Some));
            if cause == Cause::Refused && core.current.read().number == refused {
                core.status.lock().vain = Some(core.clock.now());
            }
            outcome
        });
        last.insert(renewal).clone()
    }
}

impl Core {
    fn current(&self) -> Arc<Presented> {
        self.current.read().clone()
    }

    async fn until_due(&self) {
        let next = {
            let status = self.status.lock();
            status.due().map(|due| due.max(status.tried + RETRY))
        };
        match next {
            Some(next) => self.clock.sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    fn is_due(&self, of: impl FnOnce(&Status) -> Option<Instant>) -> bool {
        of(&self.status.lock()).is_some_and(|due| due <= self.clock.now())
    }

    fn has_expired(&self) -> bool {
        self.current().reading.expires.is_some_and(|at| at <= self.clock.wall())
    }

    /// Returns whether a plugin has just run, or a provider was just asked, after a refusal, without giving anything new. What they
    /// gave before the server refused it says nothing.
    fn was_in_vain(&self) -> bool {
        let is_recent = |at: Instant| self.clock.now() < at + RETRY;
        self.status.lock().vain.is_some_and(is_recent)
    }

    /// Reads the files again. Presents the result from now on, with what a renewal has `asked` for, if it has changed.
    fn update(&self, asked: Result<Option<Asked>, Problem>) -> Outcome {
        self.update_in_turn(&self.reading.lock(), asked)
    }

    fn update_in_turn(&self, _turn: &MutexGuard<'_, ()>, asked: Result<Option<Asked>, Problem>) -> Outcome {
        let is_renewal = !matches!(asked, Ok(None));
        let read = asked.and_then(|asked| self.read(asked.unwrap_or_default()));
        let now = self.clock.now();
        let mut status = self.status.lock();
        status.tried = now;
        let (reading, tls) = match read {
            Ok(read) => read,
            Err(problem) => {
                status.failures += 1;
                status.files_due = status.files_due.map(|_| now + RETRY);
                if is_renewal {
                    status.vain = Some(now);
                    status.expiry_due = status.expiry_due.map(|_| now + RETRY);
                }
                let text = WithCauses(&problem).to_string();
                if status.problem.as_ref() != Some(&text) {
                    tracing::warn!(problem = text, "cannot renew the credentials; the last ones stay in use");
                }
                status.problem = Some(text);
                return Err(Arc::new(problem));
            }
        };
        status.problem = None;
        status.files_due = self.sources.has_files().then(|| now + FRESH);
        let mut current = self.current.write();
        let is_same = current.reading.is_same(&reading);
        if is_renewal {
            let wall = self.clock.wall();
            // What is given again although it is about to expire is asked for when it expires, and otherwise not at once.
            let wait = |at| match (is_same, left(at, wall)) {
                (false, _) => before_expiry(at, wall),
                (true, Duration::ZERO) => RETRY,
                (true, left) => before_expiry(at, wall).max(RETRY.min(left)),
            };
            status.expiry_due = reading.expires.map(|at| now + wait(at));
        }
        let number = current.number + u64::from(!is_same);
        let tls = if is_same { current.tls.clone() } else { tls };
        *current = Arc::new(Presented { number, tls, reading });
        drop(current);
        if !is_same {
            status.vain = None;
            status.reloads += 1;
            status.since = now;
            drop(status);
            tracing::info!(number, "the credentials were renewed");
            self.renewed.notify_waiters();
        }
        Ok(())
    }

    fn read(&self, asked: Asked) -> Result<(Reading, Option<Arc<ClientConfig>>), Problem> {
        let reading = self.sources.read(&*self.outside, asked, Some(&self.current().reading))?;
        let tls = self.sources.tls(&reading).map_err(Problem::Tls)?;
        Ok((reading, tls))
    }
}

/// Returns how long credentials that expire at `expires` are used from `now` on.
fn before_expiry(expires: Timestamp, now: Timestamp) -> Duration {
    let left = left(expires, now);
    left - MARGIN.min(left / 5)
}

fn left(expires: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(expires.duration_since(now)).unwrap_or_default().min(crate::clock::FAR)
}

#[cfg(test)]
mod tests;
