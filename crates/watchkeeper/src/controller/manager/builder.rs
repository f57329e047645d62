//! The settings of a manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::caches::Caches;
use super::super::stale::{OnStale, Staleness};
#[cfg(feature = "admin")]
use super::Admin;
use super::Manager;
#[cfg(all(feature = "admin", feature = "prometheus"))]
use super::metrics;
use super::preflight::AccessCheck;
use super::role::Role;
use crate::explain::Explain;
use crate::informer::SharedInformerFactory;
use crate::leader::LeaderElection;
#[cfg(feature = "admin")]
use crate::process::{AdminAddress, AdminArgs, Pages};
use crate::record;
use crate::source::{Client, Scope};

/// How often every object is reconciled again, though nothing has changed.
const RESYNC: Duration = Duration::from_secs(10 * 3600);
/// How long caches may take to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// How long reconciles under way may take to finish after the stop. With what follows, within the 30 s of the kubelet.
const DRAIN: Duration = Duration::from_secs(20);

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
    access: AccessCheck,
    #[cfg(feature = "admin")]
    admin: AdminArgs,
}

impl ManagerBuilder {
    pub(super) fn new(name: &str, client: &Client) -> Self {
        Self {
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
            access: AccessCheck::default(),
            #[cfg(feature = "admin")]
            admin: off(),
        }
    }

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

    /// Asks the server at the start whether the program has the permissions of its [role](Manager::role), and says in one message
    /// which are missing, with the role that grants them. Off by default, and on in programs with
    /// [`ManagerArgs`](super::ManagerArgs).
    ///
    /// A server that does not answer is not in the way: the program goes on.
    pub fn preflight(mut self, check: AccessCheck) -> Self {
        self.access = check;
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` at `metrics`, and the latter two at `health`; nowhere by default.
    ///
    /// Elsewhere than on a loopback address, the pages at `metrics` are protected as [`AdminArgs`] says.
    #[cfg(feature = "admin")]
    pub fn admin(mut self, metrics: AdminAddress, health: AdminAddress) -> Self {
        self.admin.metrics_bind_address = metrics;
        self.admin.health_probe_bind_address = Some(health);
        self
    }

    /// Serves the admin pages as flags, or the settings of a program, say.
    #[cfg(feature = "admin")]
    pub fn admin_args(mut self, args: AdminArgs) -> Self {
        self.admin = args;
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
        #[cfg_attr(not(feature = "admin"), expect(unused_mut, reason = "pages are added to it"))]
        let mut admin = Admin { pages: Pages::default(), args: self.admin };
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
            {
                admin.pages.live.election(election.status());
                admin.pages.ready.standby(election.status());
            }
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
        let explain = Explain::new(&self.name, &env);
        explain.informers(&factory);
        explain.events(&recorder);
        if let Some(election) = &self.election {
            explain.leader(election.status());
        }
        #[cfg(feature = "admin")]
        {
            admin.pages.explain = Some(Arc::new(explain.clone()));
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
            places: BTreeMap::new(),
            access: self.access,
            sync_timeout: self.sync_timeout,
            drain: self.drain,
            staleness: Staleness::new(self.on_stale, self.stale_after),
            running: Arc::default(),
            explain,
            #[cfg(feature = "admin")]
            admin,
        }
    }
}

/// No pages are served.
#[cfg(feature = "admin")]
fn off() -> AdminArgs {
    AdminArgs { metrics_bind_address: AdminAddress::Off, ..AdminArgs::default() }
}
