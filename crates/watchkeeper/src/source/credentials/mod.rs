//! The credentials of a client: they are read again while it runs, before they expire and after they were refused.
//!
//! There is no task for this. A request reads them again if they are due, and so does every open watch, which ends when
//! they have changed, so that the next one is opened with the new ones.

mod oidc;
mod outside;
mod plugin;
mod sources;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube_client::client::AuthError;
use kube_client::{Config, Error};
use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use tokio::sync::Notify;
use tower::BoxError;

pub(super) use self::outside::Machine;
pub(crate) use self::outside::Outside;
use self::sources::{Reading, Sources};
use crate::clock::{Clock, Instant};
use crate::report::WithCauses;

/// The time after which files are read again.
const FRESH: Duration = Duration::from_secs(30);
/// Credentials are renewed so long before they expire, or a fifth of their remaining life before if that is less.
const MARGIN: Duration = Duration::from_secs(60);
/// The time before another attempt after a failed one, and between runs of a program that gives nothing new.
const RETRY: Duration = Duration::from_secs(10);

/// The credentials of a client. Clones share them.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<Shared>);

struct Shared {
    sources: Sources,
    outside: Arc<dyn Outside>,
    clock: Clock,
    current: RwLock<Arc<Presented>>,
    status: Mutex<Status>,
    /// Held during a renewal, so that there is one at a time.
    renewing: tokio::sync::Mutex<()>,
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
    /// When a plugin ran, or a provider was asked, in vain: with a failure, or without a change.
    vain: Option<Instant>,
    reloads: u64,
    failures: u64,
    /// The problem of the last attempt.
    problem: Option<String>,
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
}

/// Why credentials cannot be used. Never contains any.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("cannot use the client certificate: {0}")]
    Pair(&'static str),
    #[error("the token is what no header may hold")]
    NoHeader,
    #[error("cannot start the program")]
    Start(#[source] io::Error),
    #[error("the program failed: {0}")]
    Failed(ExitStatus),
    #[error("the program asks for a terminal, and there is none")]
    NoTerminal,
    #[error("{0}")]
    Printed(&'static str),
    #[error("the program was interrupted")]
    Interrupted,
    #[error("cannot reach the identity provider")]
    Unanswered(#[source] BoxError),
    #[error("cannot use the identity provider: {0}")]
    Provider(&'static str),
    #[error("cannot set up TLS")]
    Tls(#[source] Error),
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
        let reading = sources.read(&*outside, None).map_err(unusable)?;
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
        Ok(Self(Arc::new(Shared {
            sources,
            outside,
            clock: clock.clone(),
            current: RwLock::new(current),
            status: Mutex::new(status),
            renewing: tokio::sync::Mutex::default(),
            renewed: Notify::new(),
        })))
    }

    pub(super) fn current(&self) -> Arc<Presented> {
        self.0.current.read().clone()
    }

    /// Returns whether there may ever be other credentials.
    pub(super) fn can_change(&self) -> bool {
        self.0.sources.has_files() || self.0.sources.are_slow()
    }

    pub(crate) fn status(&self) -> CredentialStatus {
        let status = self.0.status.lock();
        CredentialStatus {
            age: self.0.clock.now().saturating_duration_since(status.since),
            reloads: status.reloads,
            failures: status.failures,
            problem: status.problem.clone(),
        }
    }

    /// Returns the credentials for a request, renewed if they are due. An error means that they have expired and could
    /// not be renewed.
    pub(super) async fn fresh(&self) -> Result<Arc<Presented>, Problem> {
        if !self.is_due() {
            return Ok(self.current());
        }
        // While they are still valid, only one request waits for new ones.
        let turn = if self.has_expired() {
            self.0.renewing.lock().await
        } else {
            match self.0.renewing.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(self.current()),
            }
        };
        let renewed = if self.is_due() { self.renew(self.is_expiring()).await } else { Ok(()) };
        drop(turn);
        match renewed {
            Err(problem) if self.has_expired() => Err(problem),
            _ => Ok(self.current()),
        }
    }

    /// Reads the credentials again after a server has refused `refused`. Returns whether there are others now.
    pub(super) async fn after_refusal(&self, refused: &Presented) -> bool {
        let turn = self.0.renewing.lock().await;
        if self.current().number == refused.number && self.can_change() {
            // The problem is in the status, and the refusal stands.
            let _reported = self.renew(!self.was_in_vain()).await;
        }
        drop(turn);
        self.current().number != refused.number
    }

    /// Waits until there are other credentials than those of `number`, and renews them meanwhile when they are due.
    /// Cancel-safe.
    pub(super) fn renewal(&self, number: u64) -> impl Future<Output = ()> + Send + use<> {
        let credentials = self.clone();
        async move {
            loop {
                let renewed = credentials.0.renewed.notified();
                if credentials.current().number != number {
                    return;
                }
                tokio::select! {
                    biased;
                    () = renewed => {}
                    () = credentials.until_due() => {
                        // The problem is in the status.
                        let _reported = credentials.fresh().await;
                    }
                }
            }
        }
    }

    async fn until_due(&self) {
        let next = {
            let status = self.0.status.lock();
            status.due().map(|due| due.max(status.tried + RETRY))
        };
        match next {
            Some(next) => self.0.clock.sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    fn is_due(&self) -> bool {
        self.0.status.lock().due().is_some_and(|due| due <= self.0.clock.now())
    }

    fn is_expiring(&self) -> bool {
        self.0.status.lock().expiry_due.is_some_and(|due| due <= self.0.clock.now())
    }

    fn has_expired(&self) -> bool {
        self.current().reading.expires.is_some_and(|at| at <= self.0.clock.wall())
    }

    /// Returns whether a plugin has just run, or a provider was just asked, without giving anything new.
    fn was_in_vain(&self) -> bool {
        let is_recent = |at: Instant| self.0.clock.now() < at + RETRY;
        self.0.status.lock().vain.is_some_and(is_recent)
    }

    /// Reads the files again, and if `whole`, runs the plugin or asks the provider. Presents the result from now on if it
    /// has changed. Call it while holding `renewing`.
    async fn renew(&self, whole: bool) -> Result<(), Problem> {
        let read = self.read_again(whole).await;
        let shared = &*self.0;
        let now = shared.clock.now();
        let mut status = shared.status.lock();
        status.tried = now;
        let (reading, tls) = match read {
            Ok(read) => read,
            Err(problem) => {
                status.failures += 1;
                status.files_due = status.files_due.map(|_| now + RETRY);
                if whole {
                    status.vain = Some(now);
                    status.expiry_due = status.expiry_due.map(|_| now + RETRY);
                }
                let text = WithCauses(&problem).to_string();
                if status.problem.as_ref() != Some(&text) {
                    tracing::warn!(problem = text, "cannot renew the credentials; the last ones stay in use");
                }
                status.problem = Some(text);
                return Err(problem);
            }
        };
        status.problem = None;
        status.files_due = shared.sources.has_files().then(|| now + FRESH);
        if whole {
            status.expiry_due = reading.expires.map(|at| now + before_expiry(at, shared.clock.wall()));
        }
        let mut current = shared.current.write();
        let is_same = current.reading.is_same(&reading);
        let number = current.number + u64::from(!is_same);
        let tls = if is_same { current.tls.clone() } else { tls };
        *current = Arc::new(Presented { number, tls, reading });
        drop(current);
        if whole {
            status.vain = is_same.then_some(now);
        }
        if !is_same {
            status.reloads += 1;
            status.since = now;
            drop(status);
            tracing::info!(number, "the credentials were renewed");
            shared.renewed.notify_waiters();
        }
        Ok(())
    }

    async fn read_again(&self, whole: bool) -> Result<(Reading, Option<Arc<ClientConfig>>), Problem> {
        let shared = self.0.clone();
        if whole {
            shared.sources.prepare(&*shared.outside).await?;
        }
        let last = self.current();
        let read = move || {
            let reading = shared.sources.read(&*shared.outside, Some(&last.reading).filter(|_| !whole))?;
            let tls = shared.sources.tls(&reading).map_err(Problem::Tls)?;
            Ok((reading, tls))
        };
        if whole && self.0.sources.are_slow() {
            return tokio::task::spawn_blocking(read).await.map_err(|_| Problem::Interrupted)?;
        }
        read()
    }
}

/// Returns how long credentials that expire at `expires` are used from `now` on.
fn before_expiry(expires: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
    let left = left.min(crate::clock::FAR);
    left - MARGIN.min(left / 5)
}

#[cfg(test)]
mod tests;
