//! The manager: owns what controllers share, and the order in which everything starts and stops.
//!
//! `run.rs` has that order, `leading.rs` what happens while it leads, `args.rs` the flags of a program, `role.rs` the permissions
//! that it needs, `metrics.rs` what Prometheus learns.

#[cfg(all(feature = "admin", feature = "clap", feature = "logging"))]
mod args;
mod handle;
mod leading;
#[cfg(all(feature = "admin", feature = "prometheus"))]
mod metrics;
mod role;
mod run;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube_core::CustomResourceExt;
use tokio_util::sync::CancellationToken;

#[cfg(all(feature = "admin", feature = "clap", feature = "logging"))]
pub use self::args::ManagerArgs;
pub use self::handle::ManagerHandle;
pub(super) use self::role::Verb;
pub use self::role::{Role, Rule};
pub use self::run::ManagerError;
use super::caches::Caches;
use super::figures::Figures;
use super::running::Run;
use super::stale::{OnStale, Pause, Staleness};
use crate::env::Env;
use crate::informer::{SharedInformer, SharedInformerFactory};
use crate::latch::Latch;
use crate::leader::LeaderElection;
use crate::object::{Kind, ObjectName};
#[cfg(feature = "admin")]
use crate::process::{AdminAddress, Pages};
use crate::record::{self, EventRecorder, EventSink};
use crate::source::{Client, Scope};
use crate::workqueue::RateLimitingQueue;

/// How often every object is reconciled again, though nothing has changed.
const RESYNC: Duration = Duration::from_secs(10 * 3600);
/// How long caches may take to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// How long reconciles under way may take to finish after the stop. With what follows, within the 30 s of the kubelet.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs controllers. It owns what they share: client, caches, event recorder and admin server.
///
/// Controllers are registered first, then [`run`](Self::run) starts everything in order. Nothing in it is global: several
/// managers can live in one process.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::Client;
/// use watchkeeper::controller::{Action, Controller, Manager};
///
/// # async fn run(client: Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let mut manager = Manager::builder("map-operator", &client).build();
/// Controller::<ConfigMap>::new(&mut manager).reconcile(|map, cx| async move {
///     println!("reconciling {}", cx.key());
///     Ok(Action::done())
/// })?;
/// manager.run(stop).await?;
/// # Ok(()) }
/// ```
pub struct Manager {
    name: String,
    /// Writes only while the manager leads, if there is an election.
    client: Client,
    /// Writes always.
    free: Client,
    env: Env,
    election: Option<LeaderElection>,
    factory: SharedInformerFactory,
    caches: Arc<Caches>,
    scopes: Vec<Scope>,
    recorder: EventRecorder,
    sink: EventSink,
    controllers: Vec<Registered>,
    /// Those of the leader.
    runnables: Vec<Runnable>,
    /// Those of every replica.
    everywhere: Vec<Runnable>,
    /// With the version that the program uses.
    crds: Vec<(CustomResourceDefinition, String)>,
    /// Group and plural of the kinds that controllers reconcile.
    mains: Vec<(String, String)>,
    role: Role,
    sync_timeout: Duration,
    drain: Duration,
    staleness: Staleness,
    /// Set when the controllers have started.
    running: Arc<Latch>,
    #[cfg(feature = "admin")]
    admin: Admin,
}

/// A controller that was registered.
pub(super) struct Registered {
    pub(super) name: String,
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) figures: Arc<Figures>,
    pub(super) pause: Arc<Pause>,
    pub(super) controller: Box<dyn Run>,
}

/// A task of the author's.
struct Runnable {
    name: String,
    start: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Ended> + Send>,
}

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

impl Runnable {
    fn new<F, Fut, E>(name: &str, runnable: F) -> Self
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let start = move |stop| runnable(stop).map(|result| result.map_err(Into::into)).boxed();
        Self { name: name.to_owned(), start: Box::new(start) }
    }
}

/// The pages of the manager, and where they are served.
#[cfg(feature = "admin")]
struct Admin {
    pages: Pages,
    metrics: AdminAddress,
    health: AdminAddress,
}

/// Settings of a [`Manager`].
#[derive(Debug)]
#[must_use = "a manager is built with build"]
pub struct ManagerBuilder {
    name: String,
    client: Client,
    namespaces: Vec<String>,
    resync: Duration,
    verify_every: Duration,
    sync_timeout: Duration,
    drain: Duration,
    on_stale: OnStale,
    stale_after: Duration,
    election: Option<LeaderElection>,
    #[cfg(feature = "admin")]
    metrics: AdminAddress,
    #[cfg(feature = "admin")]
    health: AdminAddress,
}

impl ManagerBuilder {
    /// Runs controllers only while this replica leads; always by default.
    ///
    /// A standby keeps its caches and queues warm, and is ready. When it takes over, it waits until its caches reflect what the server
    /// has then. A manager that loses leadership ends with an error at once; the program must end, too.
    ///
    /// ```no_run
    /// # use watchkeeper::{Client, Manager};
    /// # use watchkeeper::leader::{ElectionError, LeaderElection};
    /// # fn build(client: &Client) -> Result<Manager, ElectionError> {
    /// let election = LeaderElection::builder(client, "operators", "website-operator").build()?;
    /// Ok(Manager::builder("website-operator", client).leader_election(election).build())
    /// # }
    /// ```
    pub fn leader_election(mut self, election: LeaderElection) -> Self {
        self.election = Some(election);
        self
    }

    /// Looks only at these namespaces, each with informers of its own; at the whole cluster by default.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        self.namespaces =
            namespaces.into_iter().map(Into::into).filter(|name: &String| !name.is_empty()).collect();
        self
    }

    /// Reconciles every object again after each `period`, though nothing has changed; 10 hours by default, zero for never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = period;
        self
    }

    /// Compares the caches with the server within each `period`, and mends them where the server has lost events; zero, the default,
    /// is never. See [`SharedInformerBuilder::verify_every`](crate::informer::SharedInformerBuilder::verify_every).
    pub fn verify_every(mut self, period: Duration) -> Self {
        self.verify_every = period;
        self
    }

    /// Ends with an error that names the caches that have not synced within `timeout`; 2 minutes by default.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// Lets reconciles under way take so long to finish after the stop; 20 s by default.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Pauses a controller, or ends the manager, when a cache that the controller reads has been out of date for longer than `after`:
    /// the server is away, or a permission was taken. By default controllers go on with the last known state.
    ///
    /// A cache that is polled, or whose kind is not served, is not out of date. Reconciles under way finish. A standby of an
    /// election has nothing to pause, and goes on.
    pub fn on_stale(mut self, after: Duration, policy: OnStale) -> Self {
        (self.stale_after, self.on_stale) = (after, policy);
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` at `metrics`, and the latter two at `health`; nowhere by default.
    #[cfg(feature = "admin")]
    pub fn admin(mut self, metrics: AdminAddress, health: AdminAddress) -> Self {
        (self.metrics, self.health) = (metrics, health);
        self
    }

    /// The manager, without controllers yet.
    pub fn build(self) -> Manager {
        // Events are written by standbys, too, and by a leader that has lost.
        let free = self.client;
        let env = free.env().fork(&format!("manager {}", self.name));
        let (recorder, sink) = record::recorder(&self.name, &free);
        let client = match &self.election {
            Some(election) => election.guard(&free),
            None => free.clone(),
        };
        #[cfg(feature = "admin")]
        #[cfg_attr(
            not(feature = "prometheus"),
            expect(unused_mut, reason = "metrics are added to its pages")
        )]
        let mut admin = Admin { pages: Pages::default(), metrics: self.metrics, health: self.health };
        let factory = SharedInformerFactory::builder(&free)
            .resync(self.resync)
            .verify_every(self.verify_every)
            .name(&self.name);
        #[cfg(all(feature = "admin", feature = "prometheus"))]
        let factory =
            factory.metrics(Arc::new(metrics::register(&mut admin.pages.metrics, &client, &recorder)));
        let factory = factory.build();
        let caches = Arc::<Caches>::default();
        if let Some(election) = &self.election {
            election.record_with(&recorder);
            #[cfg(all(feature = "admin", feature = "prometheus"))]
            crate::process::metrics::register_election(&mut admin.pages.metrics, election.status());
            #[cfg(feature = "admin")]
            admin.pages.live.election(election.status());
        }
        #[cfg(feature = "admin")]
        {
            admin.pages.ready.caches(&factory);
            admin.pages.live.informers(&factory);
            let caches = caches.clone();
            admin.pages.ready.add("reads", move || match caches.mistakes() {
                mistakes if mistakes.is_empty() => Ok(()),
                mistakes => Err(mistakes.join("; ")),
            });
        }
        let scopes = match &self.namespaces[..] {
            [] => vec![Scope::Cluster],
            names => names.iter().map(|name| Scope::Namespace(name.clone())).collect(),
        };
        Manager {
            name: self.name,
            client,
            free,
            env,
            election: self.election,
            factory,
            caches,
            scopes,
            recorder,
            sink,
            controllers: Vec::new(),
            runnables: Vec::new(),
            everywhere: Vec::new(),
            crds: Vec::new(),
            mains: Vec::new(),
            role: Role::default(),
            sync_timeout: self.sync_timeout,
            drain: self.drain,
            staleness: Staleness::new(self.on_stale, self.stale_after),
            running: Arc::default(),
            #[cfg(feature = "admin")]
            admin,
        }
    }
}

impl Manager {
    /// A manager called `name`, which is also the field manager of its controllers' writes and the component of their events.
    pub fn builder(name: &str, client: &Client) -> ManagerBuilder {
        ManagerBuilder {
            name: name.to_owned(),
            client: client.clone(),
            namespaces: Vec::new(),
            resync: RESYNC,
            verify_every: Duration::ZERO,
            sync_timeout: SYNC_TIMEOUT,
            drain: DRAIN,
            on_stale: OnStale::default(),
            stale_after: Duration::ZERO,
            election: None,
            #[cfg(feature = "admin")]
            metrics: AdminAddress::Off,
            #[cfg(feature = "admin")]
            health: AdminAddress::Off,
        }
    }

    /// The manager's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client of all controllers. With leader election, its writes are refused while the manager does not lead: see
    /// [`LeaderElection::guard`].
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The client that the manager was built with, for what runs [on all replicas](Self::add_on_all_replicas): its writes are not
    /// refused by a manager that does not lead.
    pub fn unguarded_client(&self) -> &Client {
        &self.free
    }

    /// The clock, generator and reporter of all controllers.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The recorder of events.
    pub fn recorder(&self) -> &EventRecorder {
        &self.recorder
    }

    /// The informers, for handlers and listers beside the controllers'.
    pub fn factory(&self) -> &SharedInformerFactory {
        &self.factory
    }

    /// The pages of the admin server, for metrics and checks of the author's.
    #[cfg(feature = "admin")]
    pub fn pages(&mut self) -> &mut Pages {
        &mut self.admin.pages
    }

    /// Installs or upgrades the definition of kind `K` at the start where that is allowed, and otherwise checks that it is there.
    /// An upgrade that would invalidate stored objects is refused.
    pub fn crd<K: CustomResourceExt + Kind<DynamicType: Default>>(&mut self) {
        self.role.allow_crds();
        self.crds.push((K::crd(), K::version(&K::DynamicType::default()).into_owned()));
    }

    /// Runs a task of the author's beside the controllers, from when the caches have synced until its token is cancelled.
    ///
    /// It may end early. If it fails or panics, the manager stops with an error that names it. With [leader
    /// election](ManagerBuilder::leader_election) it runs on the leader only, as in controller-runtime; for others see
    /// [`add_on_all_replicas`](Self::add_on_all_replicas).
    ///
    /// ```
    /// # use watchkeeper::controller::Manager;
    /// # fn add(manager: &mut Manager) {
    /// manager.add("cleaner", |stop| async move {
    ///     stop.cancelled().await;
    ///     Ok::<(), std::io::Error>(())
    /// });
    /// # }
    /// ```
    pub fn add<F, Fut, E>(&mut self, name: &str, runnable: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.runnables.push(Runnable::new(name, runnable));
    }

    /// Runs a task of the author's as [`add`](Self::add) does, but on every replica, whether it leads or not: such as a server of
    /// webhooks. Its writes go through the [unguarded client](Self::unguarded_client).
    pub fn add_on_all_replicas<F, Fut, E>(&mut self, name: &str, runnable: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.everywhere.push(Runnable::new(name, runnable));
    }

    /// The permissions that the registered controllers need: those of their informers, of the objects they own, of finalizers,
    /// events, [definitions](Self::crd) and the Lease of an election, of the status of the kinds they reconcile if such a definition has the subresource, and
    /// those added to [`role_mut`](Self::role_mut).
    pub fn role(&self) -> Role {
        let mut role = self.role.clone();
        role.allow_events();
        if self.election.is_some() {
            role.allow_leases();
        }
        for (definition, version) in &self.crds {
            let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
            let is_reconciled = self.mains.iter().any(|main| (&main.0, &main.1) == (group, plural));
            if is_reconciled && has_status(definition, version) {
                role.allow(group, &format!("{plural}/status"), &[Verb::Patch]);
            }
        }
        role
    }

    /// The role to add permissions to that only the code of reconciles knows of.
    ///
    /// ```
    /// # use watchkeeper::controller::Manager;
    /// # fn register(manager: &mut Manager) {
    /// manager.role_mut().add("apps", "deployments/scale", "patch");
    /// # }
    /// ```
    pub fn role_mut(&mut self) -> &mut Role {
        &mut self.role
    }

    /// A handle to ask about the controllers while they run.
    pub fn handle(&self) -> ManagerHandle {
        ManagerHandle::new(&self.controllers, &self.caches, &self.factory, &self.running)
    }

    pub(super) fn caches(&self) -> &Arc<Caches> {
        &self.caches
    }

    pub(super) fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    pub(super) fn has_controller(&self, name: &str) -> bool {
        self.controllers.iter().any(|known| known.name == name)
    }

    pub(super) fn register(&mut self, controller: Registered) {
        self.controllers.push(controller);
    }

    /// Notes that a controller reads the cache of an informer.
    pub(super) fn depends<W: Kind>(&mut self, controller: &str, informer: &SharedInformer<W>) {
        self.staleness.add(controller, informer);
    }

    /// Notes that a controller reconciles a kind, and needs `verbs` on it.
    pub(super) fn reconciles<K: Kind>(&mut self, kind: &K::DynamicType, verbs: &[Verb]) {
        self.mains.push((K::group(kind).into_owned(), K::plural(kind).into_owned()));
        self.needs::<K>(kind, verbs);
    }

    /// Notes that controllers need `verbs` on a kind.
    pub(super) fn needs<W: Kind>(&mut self, kind: &W::DynamicType, verbs: &[Verb]) {
        self.role.allow(&W::group(kind), &W::plural(kind), verbs);
    }
}

/// Whether a version of a kind has the status subresource.
fn has_status(definition: &CustomResourceDefinition, version: &str) -> bool {
    let subresources = |served: &&CustomResourceDefinitionVersion| {
        served.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some())
    };
    definition.spec.versions.iter().filter(subresources).any(|served| served.name == version)
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controllers: Vec<_> = self.controllers.iter().map(|controller| &controller.name).collect();
        f.debug_struct("Manager")
            .field("name", &self.name)
            .field("controllers", &controllers)
            .finish_non_exhaustive()
    }
}
