//! The manager: owns what controllers share, and the order in which everything starts and stops.
//!
//! `builder.rs` has its settings, `run.rs` that order, `leading.rs` what happens while it leads, `args.rs` the flags of a program,
//! `role.rs` the permissions that it needs, `preflight.rs` the check whether it has them, `metrics.rs` what Prometheus learns.

#[cfg(all(feature = "admin", feature = "clap", feature = "logging"))]
mod args;
mod builder;
mod handle;
mod leading;
#[cfg(all(feature = "admin", feature = "prometheus"))]
mod metrics;
mod preflight;
mod role;
mod run;

use std::collections::{BTreeMap, BTreeSet};
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
pub use self::builder::ManagerBuilder;
pub use self::handle::ManagerHandle;
pub use self::preflight::{AccessCheck, MissingAccess, Preflight};
pub(super) use self::role::Verb;
pub use self::role::{Role, Rule};
pub use self::run::ManagerError;
use super::caches::Caches;
use super::figures::Figures;
use super::running::Run;
use super::stale::{Pause, Staleness};
use super::watch::Watch;
use crate::env::Env;
use crate::explain::Explain;
use crate::informer::{SharedInformer, SharedInformerFactory};
use crate::latch::Latch;
use crate::leader::LeaderElection;
use crate::object::{Kind, ObjectName};
#[cfg(feature = "admin")]
use crate::process::{AdminArgs, Pages};
use crate::record::{EventRecorder, EventSink};
use crate::source::{Client, Scope};
use crate::workqueue::RateLimitingQueue;

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
    /// Where the permissions on a kind, by group and plural, are needed.
    places: BTreeMap<(String, String), BTreeSet<Scope>>,
    access: AccessCheck,
    sync_timeout: Duration,
    drain: Duration,
    staleness: Staleness,
    /// Set when the controllers have started.
    running: Arc<Latch>,
    explain: Explain,
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
    args: AdminArgs,
}

impl Manager {
    /// A manager called `name`, which is also the field manager of its controllers' writes and the component of their events.
    pub fn builder(name: &str, client: &Client) -> ManagerBuilder {
        ManagerBuilder::new(name, client)
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
    /// events, [definitions](Self::crd), the Lease of an election and [protected metrics](ManagerBuilder::admin), of the status of
    /// the kinds they reconcile if such a definition has the subresource, and those added to [`role_mut`](Self::role_mut).
    pub fn role(&self) -> Role {
        let mut role = Role::default();
        self.needed().values().for_each(|needed| role.extend(needed));
        role
    }

    /// The permissions that are needed in each namespace, and cluster-wide.
    fn needed(&self) -> BTreeMap<Scope, Role> {
        let mut needed = BTreeMap::<Scope, Role>::new();
        for Rule { group, resource, name, verbs } in self.with_status().rules() {
            let plural = resource.split('/').next().unwrap_or_default();
            let places = self.places.get(&(group.clone(), plural.to_owned()));
            let places =
                places.map_or_else(|| self.scopes.clone(), |places| places.iter().cloned().collect());
            for place in places {
                let role = needed.entry(place).or_default();
                verbs.iter().for_each(|verb| role.insert(&group, &resource, name.as_deref(), verb));
            }
        }
        for scope in &self.scopes {
            needed.entry(scope.clone()).or_default().allow_events();
        }
        if let Some(election) = &self.election {
            let role = needed.entry(election.scope()).or_default();
            role.allow_lease(election.lease().name());
            role.allow_events();
        }
        if !self.crds.is_empty() {
            needed.entry(Scope::Cluster).or_default().allow_crds();
        }
        #[cfg(feature = "admin")]
        if self.admin.args.is_secure() {
            needed.entry(Scope::Cluster).or_default().allow_reviews();
        }
        needed
    }

    /// The role of the controllers, with the status of the kinds they reconcile.
    fn with_status(&self) -> Role {
        let mut role = self.role.clone();
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

    /// What the controllers, their keys and caches can be asked about; the admin server serves it under `/debug`. It keeps
    /// the caches alive.
    pub fn explain(&self) -> &Explain {
        &self.explain
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
    pub(super) fn reconciles<K: Kind>(&mut self, main: &Watch<K>, verbs: &[Verb]) {
        self.mains.push((K::group(&main.kind).into_owned(), K::plural(&main.kind).into_owned()));
        self.needs(main, verbs);
    }

    /// Notes that controllers need `verbs` on the kind of a watch, where it watches.
    pub(super) fn needs<W: Kind>(&mut self, watch: &Watch<W>, verbs: &[Verb]) {
        let (group, plural) = (W::group(&watch.kind).into_owned(), W::plural(&watch.kind).into_owned());
        self.role.allow(&group, &plural, verbs);
        self.places.entry((group, plural)).or_default().extend(watch.scopes(&self.scopes));
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
