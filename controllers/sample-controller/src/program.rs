//! The controller with its informers, event sink and metrics, started and stopped in order.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{MissingAccess, Preflight};
use watchkeeper::explain::{Explain, ProgramPhase};
use watchkeeper::informer::{CachesBehind, InformerPanicked, InformerStopped, NotSynced};
use watchkeeper::leader::{ElectionError, LeaderElection, LeaderElectionLost};
use watchkeeper::process::metrics::{
    InformerCollector, QueueCollector, register_credentials, register_election, register_events,
    register_process, register_reports,
};
use watchkeeper::process::{AdminArgs, AdminError, Pages};
use watchkeeper::record::EventSink;
use watchkeeper::source::Scope;
use watchkeeper::{Client, ObjectName, RateLimitingQueue, SharedInformerFactory, record};

use crate::COMPONENT;
use crate::controller::Controller;
use crate::options::Options;
use crate::role;

/// Why the controller did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Some caches did not sync.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// An informer panicked.
    #[error(transparent)]
    Panicked(#[from] InformerPanicked),
    /// A handler could not be added.
    #[error(transparent)]
    Stopped(#[from] InformerStopped),
    /// The admin pages could not be served.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The leader election could not be held.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// The namespace of the leader election is not known.
    #[error(
        "the namespace of the leader election is not known, as this is no pod: set --leader-election-namespace"
    )]
    NoNamespace,
    /// Leadership was lost.
    #[error(transparent)]
    Lost(#[from] LeaderElectionLost),
    /// The caches lack what the leader before has written.
    #[error(transparent)]
    Behind(#[from] CachesBehind),
    /// Permissions are missing.
    #[error(transparent)]
    Access(#[from] MissingAccess),
}

const RESYNC: Duration = Duration::from_secs(30);

/// How long the caches may take to catch up when this replica takes over.
const CATCH_UP: Duration = Duration::from_secs(120);

/// How long events may take to be written after the workers have ended.
const EVENTS: Duration = Duration::from_secs(3);

/// The controller with its dependencies, ready to run.
#[derive(Debug)]
pub struct Program {
    factory: SharedInformerFactory,
    controller: Arc<Controller>,
    sink: EventSink,
    workers: usize,
    election: Option<LeaderElection>,
    explain: Explain,
    preflight: Preflight,
}

impl Program {
    /// Assembles the program; registers its metrics and readiness checks with `pages`.
    pub fn new(client: &Client, options: &Options, pages: &mut Pages) -> Result<Self, RunError> {
        let (recorder, sink) = record::recorder(COMPONENT, client);
        register_process(&mut pages.metrics);
        register_reports(&mut pages.metrics, &client.env().reporter);
        register_credentials(&mut pages.metrics, client);
        register_events(&mut pages.metrics, &recorder);
        let informers = InformerCollector::register(&mut pages.metrics);
        let factory = SharedInformerFactory::builder(client)
            .resync(RESYNC)
            .queue(options.queue)
            .name(COMPONENT)
            .metrics(Arc::new(informers))
            .build();
        let mut preflight = Preflight::new(COMPONENT, options.access_check, client)
            .needs(Scope::Cluster, &role::controller());
        let election = match options.election() {
            Some(namespace) => {
                let namespace = namespace.ok_or(RunError::NoNamespace)?;
                preflight = preflight.needs(Scope::Namespace(namespace.clone()), &role::election());
                Some(LeaderElection::builder(client, &namespace, COMPONENT).recorder(&recorder).build()?)
            }
            None => None,
        };
        let mut client = client.clone();
        if let Some(election) = &election {
            // The controller's writes are refused while this replica does not lead.
            client = election.guard(&client);
            register_election(&mut pages.metrics, election.status());
            pages.live.election(election.status());
            pages.ready.standby(election.status());
        }
        let explain = Explain::new(COMPONENT, client.env());
        explain.events(&recorder);
        let controller = Controller::new(&client, &factory, recorder)?;
        QueueCollector::register(&mut pages.metrics).add(controller.queue());
        explain.informers(&factory);
        if let Some(election) = &election {
            explain.leader(election.status());
        }
        explain.add(controller.explained(&factory).workers(options.workers.get()));
        pages.explain = Some(Arc::new(explain.clone()));
        pages.ready.caches(&factory);
        pages.live.informers(&factory);
        Ok(Self { factory, controller, sink, workers: options.workers.get(), election, explain, preflight })
    }

    /// Adds to the check of permissions those of a server that asks who may read its pages.
    #[must_use]
    pub fn with_protected_pages(mut self) -> Self {
        self.preflight = self.preflight.needs(Scope::Cluster, &role::pages());
        self
    }

    /// The queue of Foos to reconcile.
    pub fn queue(&self) -> &RateLimitingQueue<ObjectName> {
        self.controller.queue()
    }

    /// Runs until `stop`, or until a part panics, which the error names. Returns when all tasks have ended; dropping the future ends them
    /// too.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let Self { factory, controller, sink, workers, election, explain, preflight } = self;
        tracing::info!("starting the Foo controller");
        // Whichever part ends first stops the others.
        let stop = &stop.child_token();
        factory.start(stop);
        // The sink stops after the workers, so that their last events are written.
        let worked = CancellationToken::new();
        let work = async {
            let (_worked, _stop) = (worked.clone().drop_guard(), stop.clone().drop_guard());
            tracing::info!("waiting for informer caches to sync");
            let permitted = async { Ok::<_, RunError>(preflight.require().await?) };
            let synced = async { Ok::<_, RunError>(factory.wait_for_sync(stop).await?) };
            tokio::try_join!(permitted, synced)?;
            let Some(election) = election else {
                explain.set_phase(ProgramPhase::Running);
                controller.run(workers, stop.clone()).await;
                return Ok(());
            };
            let led = election.run(stop.clone(), |_| async {
                if let Some(caught_up) = stop.run_until_cancelled(factory.catch_up(CATCH_UP)).await {
                    caught_up?;
                    explain.set_phase(ProgramPhase::Running);
                    controller.run(workers, stop.clone()).await;
                }
                Ok(())
            });
            led.await?.unwrap_or(Ok(()))
        };
        let warn = worked.run_until_cancelled(preflight.warn());
        let (result, (), _) = tokio::join!(work, sink.grace(EVENTS).run(worked.clone()), warn);
        // If an informer panicked, that is the root cause.
        factory.join().await?;
        result
    }
}

/// Runs the controller until `stop`, without metrics; see [`Program::run`].
pub async fn run(client: &Client, options: &Options, stop: CancellationToken) -> Result<(), RunError> {
    Program::new(client, options, &mut Pages::default())?.run(stop).await
}

/// Runs the controller until `stop`, and serves its metrics and health checks.
pub async fn serve(
    client: &Client,
    options: &Options,
    admin: &AdminArgs,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let mut pages = Pages::default();
    let mut program = Program::new(client, options, &mut pages)?;
    if admin.is_secure() {
        program = program.with_protected_pages();
    }
    let admin = admin.bind(pages, client).await?;
    // Whichever ends first stops the other.
    let stop = stop.child_token();
    let controller = async {
        let _stop = stop.clone().drop_guard();
        program.run(stop.clone()).await
    };
    let (controller, ()) = tokio::join!(controller, admin.run(stop.clone()));
    controller
}
