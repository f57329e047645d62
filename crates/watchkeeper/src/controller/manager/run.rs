//! The order in which a manager starts and stops its parts.
//!
//! Start: admin server, definitions, caches, election, controllers and runnables; beside it, permissions are checked. Stop: no key is
//! started any more, reconciles under way finish, events are written, the lease is released, informers stop, the admin server stops
//! last. If a part dies, everything stops in that order, and the error names the part. If leadership is lost, nothing finishes:
//! everything ends at once.

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::{BoxFuture, try_join, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, TryFutureExt, join};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio_util::sync::CancellationToken;

use super::super::crd::{self, CrdError};
use super::leading::{Leading, Tokens};
use super::preflight::{MissingAccess, Preflight};
use super::{Manager, Registered, Runnable};
use crate::env::Env;
use crate::explain::ProgramPhase;
use crate::informer::{CachesBehind, InformerPanicked, NotSynced, SharedInformerFactory};
use crate::leader::{LeaderElection, LeaderElectionLost};
#[cfg(feature = "admin")]
use crate::process::AdminError;
#[cfg(feature = "admin")]
use crate::report::WithCauses;
use crate::report::panic_message;
use crate::source::Client;

/// How long events may take to be written after the workers have ended.
const EVENTS: Duration = Duration::from_secs(3);

/// Why a manager did not start, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The definition of a kind could not be installed, or is not there.
    #[error(transparent)]
    Crd(#[from] CrdError),
    /// The admin pages could not be served.
    #[cfg(feature = "admin")]
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Permissions are missing, and the manager was told to end then.
    #[error(transparent)]
    Access(#[from] MissingAccess),
    /// Some caches did not sync in time.
    #[error("not all caches have synced within {timeout:?}")]
    NotSynced {
        /// How long they had.
        timeout: Duration,
        /// Which did not, and why.
        #[source]
        source: NotSynced,
    },
    /// Leadership was lost. The program must end: another replica leads.
    #[error(transparent)]
    LeaderElectionLost(#[from] LeaderElectionLost),
    /// The manager took over from another, and some caches do not reflect what that has written.
    #[error("cannot take over")]
    Behind(#[from] CachesBehind),
    /// An informer panicked: its cache would have been out of date.
    #[error(transparent)]
    Informer(#[from] InformerPanicked),
    /// A cache was out of date for too long, and the manager was told to end then.
    #[error("the cache of {cache} has been out of date for {after:?}: {why}")]
    Stale {
        /// The plural name of the kind.
        cache: String,
        /// The time it had.
        after: Duration,
        /// The last problem.
        why: String,
    },
    /// A task of the author's failed.
    #[error("the runnable {name} failed")]
    Runnable {
        /// Its name.
        name: String,
        /// Why it failed.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A part of the manager panicked.
    #[error("{name} panicked: {message}")]
    Panicked {
        /// The controller, runnable or server.
        name: String,
        /// What the panic said.
        message: String,
    },
    /// A part of the manager ended although nothing had stopped it.
    #[error("{0} ended although nothing had stopped it")]
    Ended(String),
}

/// A part that runs beside the others.
type Part = BoxFuture<'static, Result<(), ManagerError>>;

impl Manager {
    /// Runs until `stop`, or until a part dies, which the error names. Returns when everything has ended; dropping the future ends
    /// everything too, at once. Must be called on a tokio runtime.
    #[cfg(feature = "admin")]
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ManagerError> {
        #[cfg_attr(not(feature = "prometheus"), expect(unused_mut, reason = "metrics are added to it"))]
        let mut pages = std::mem::take(&mut self.admin.pages);
        #[cfg(feature = "prometheus")]
        super::metrics::register_controllers(&mut pages.metrics, &self.handle());
        let (ready, parts) = (pages.ready.gate("manager"), pages.live.alarm("parts"));
        let server = self.admin.args.bind(pages, &self.free).await?;
        for address in server.addresses() {
            tracing::info!(%address, "serving admin pages");
        }
        // The server outlasts everything else. If it panics, the rest stops.
        let (served, stop) = (CancellationToken::new(), stop.child_token());
        let until = served.clone();
        let serve = guarded("the admin server".to_owned(), async move {
            server.run(until).await;
            Ok(())
        });
        let serve = async {
            let _stop = stop.clone().drop_guard();
            serve.await
        };
        let work = async {
            let _served = served.clone().drop_guard();
            let died = |error: &ManagerError| parts.raise(WithCauses(error).to_string());
            self.work(&stop, &|is_ready| if is_ready { ready.open() } else { ready.close() }, &died).await
        };
        let (served, worked) = join!(serve, work);
        served.and(worked)
    }

    /// Runs until `stop`, or until a part dies, which the error names. Returns when everything has ended; dropping the future ends
    /// everything too, at once. Must be called on a tokio runtime.
    #[cfg(not(feature = "admin"))]
    pub async fn run(self, stop: CancellationToken) -> Result<(), ManagerError> {
        self.work(&stop, &|_| {}, &|_| {}).await
    }

    /// Everything but the admin server. `ready` is called when the caches have synced, and when the stop begins; `died` with the
    /// error of a part that has died.
    async fn work(
        self,
        stop: &CancellationToken,
        ready: &(impl Fn(bool) + Sync),
        died: &(dyn Fn(&ManagerError) + Sync),
    ) -> Result<(), ManagerError> {
        let preflight = Preflight::new(&self.name, self.access, &self.free);
        let preflight = self
            .needed()
            .iter()
            .fold(preflight, |preflight, (scope, role)| preflight.needs(scope.clone(), role));
        let Self {
            name,
            free,
            env,
            election,
            factory,
            sink,
            controllers,
            runnables,
            everywhere,
            crds,
            sync_timeout,
            drain,
            staleness,
            running,
            explain,
            ..
        } = self;
        let tokens = Tokens { ending: stop.child_token(), ..Tokens::default() };
        let Tokens { ending, working, recording, recorded, caching } = &tokens;
        let main = async {
            let _recorded = recording.clone().drop_guard();
            let prepare = async {
                try_join_all(crds.iter().map(|(crd, version)| install(&free, &name, crd, version))).await?;
                factory.start(caching);
                sync(&factory, caching, sync_timeout, &env).await
            };
            let permitted = preflight.require().map_err(ManagerError::from);
            match ending.run_until_cancelled(try_join(permitted, prepare)).await {
                Some(prepared) => drop(prepared?),
                None => return Ok(()),
            }
            let mut parts = start(Vec::new(), everywhere, working, drain);
            ready(true);
            let everywhere = async {
                let cause = until_stopped(&mut parts, ending, caching).await.inspect_err(died);
                ready(false);
                explain.set_phase(ProgramPhase::Stopping);
                tracing::info!(manager = name, "stopping");
                ending.cancel();
                working.cancel();
                Ok(cause.and(drain_parts(&mut parts, drain, &env).await))
            };
            let leading = Leading {
                name: &name,
                env: &env,
                factory: &factory,
                controllers,
                runnables,
                staleness,
                sync_timeout,
                drain,
                running: &running,
                explain: &explain,
                tokens: &tokens,
                died,
            };
            // A leader that loses is not drained, nor is anything else.
            let ended = try_join(lead(election, leading, ending), everywhere).await;
            ready(false);
            // Parts may also die while they are drained.
            let outcome = ended.map_err(ManagerError::from).and_then(|(led, everywhere)| led.and(everywhere));
            outcome.inspect_err(died)
        };
        let record = async {
            sink.grace(EVENTS).run(recording.clone()).await;
            recorded.cancel();
        };
        // Ends with `main`, which does not wait for it.
        let warn = recording.run_until_cancelled(preflight.warn());
        let (outcome, (), _) = join!(main, record, warn);
        caching.cancel();
        // An informer that panicked is why anything else ended.
        factory.join().await?;
        outcome
    }
}

/// Waits until the caches have synced.
async fn sync(
    factory: &SharedInformerFactory,
    caching: &CancellationToken,
    timeout: Duration,
    env: &Env,
) -> Result<(), ManagerError> {
    let synced = match env.clock.timeout(timeout, factory.wait_for_sync(caching)).await {
        Ok(synced) => synced,
        Err(_) => {
            // The error of a wait that has been stopped names the caches and their troubles.
            let stopped = CancellationToken::new();
            stopped.cancel();
            factory.wait_for_sync(&stopped).await
        }
    };
    synced.map_err(|source| ManagerError::NotSynced { timeout, source })
}

/// Works once this manager leads: the outer error is that of lost leadership.
async fn lead(
    election: Option<LeaderElection>,
    leading: Leading<'_>,
    ending: &CancellationToken,
) -> Result<Result<(), ManagerError>, LeaderElectionLost> {
    match election {
        None => Ok(leading.run(None).await),
        Some(election) => {
            let led = election.run(ending.clone(), |leadership| leading.run(Some(leadership))).await?;
            Ok(led.unwrap_or(Ok(())))
        }
    }
}

/// Installs or upgrades a definition, or checks it.
///
/// A definition that allows more than the wanted one stays as it is: the program may be an older one, which runs on it.
async fn install(
    client: &Client,
    manager: &str,
    crd: &CustomResourceDefinition,
    version: &str,
) -> Result<(), CrdError> {
    match crd::ensure(client, crd, version, manager, crd::DEADLINE).await {
        Err(error @ CrdError::Narrows { .. }) => {
            tracing::warn!(%error, "a definition stays as it is");
            Ok(())
        }
        outcome => {
            outcome.map(|outcome| tracing::debug!(crd = crd.metadata.name, ?outcome, "a definition is there"))
        }
    }
}

/// Starts controllers and runnables; those are named by what ends them.
pub(super) fn start(
    controllers: Vec<Registered>,
    runnables: Vec<Runnable>,
    working: &CancellationToken,
    drain: Duration,
) -> FuturesUnordered<Part> {
    let parts = FuturesUnordered::new();
    for Registered { name, controller, .. } in controllers {
        let name = format!("controller {name}");
        let (run, stopped, ended) = (controller.run(working.clone(), drain), working.clone(), name.clone());
        parts.push(guarded(name, async move {
            run.await;
            if stopped.is_cancelled() { Ok(()) } else { Err(ManagerError::Ended(ended)) }
        }));
    }
    for Runnable { name, start } in runnables {
        let run = start(working.clone());
        let failed = name.clone();
        parts.push(guarded(format!("the runnable {name}"), async move {
            run.await.map_err(|source| ManagerError::Runnable { name: failed, source })
        }));
    }
    parts
}

/// A panic in `part` becomes an error that names it.
pub(super) fn guarded(
    name: String,
    part: impl Future<Output = Result<(), ManagerError>> + Send + 'static,
) -> Part {
    let guarded = async move {
        match AssertUnwindSafe(part).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(payload) => {
                Err(ManagerError::Panicked { name, message: panic_message(payload.as_ref()).to_owned() })
            }
        }
    };
    guarded.boxed()
}

/// Waits for the stop, or for a part that dies.
pub(super) async fn until_stopped(
    parts: &mut FuturesUnordered<Part>,
    stop: &CancellationToken,
    caching: &CancellationToken,
) -> Result<(), ManagerError> {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = caching.cancelled() => return Ok(()),
            Some(ended) = parts.next() => ended?,
        }
    }
}

/// Waits for all parts, but not for ever: a runnable may ignore its token.
pub(super) async fn drain_parts(
    parts: &mut FuturesUnordered<Part>,
    drain: Duration,
    env: &Env,
) -> Result<(), ManagerError> {
    let mut first = Ok(());
    let all = async {
        while let Some(ended) = parts.next().await {
            first = std::mem::replace(&mut first, Ok(())).and(ended);
        }
    };
    // Workers give up by themselves; what is left after them is not waited for.
    let patience = drain + Duration::from_secs(1);
    if env.clock.timeout(patience, all).await.is_err() {
        tracing::warn!(?patience, "some parts did not end in time, and are dropped");
    }
    first
}
