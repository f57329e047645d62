//! The workloads of a cluster in one process: controllers, a scheduler, and fake nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::Client;
use watchkeeper::controller::{Manager, SetupError};

use crate::{
    cron_job, daemon_set, deployment, disruption, endpoint_slice, endpoint_slice_mirroring, endpoints, job,
    kubelet, node_lifecycle, nodes, pod_collector, replica_set, replication_controller, resource_quota,
    scheduler, stateful_set, storage_protection,
};

/// The name of the manager: the field manager of its writes.
const NAME: &str = "kube-controller-manager";
/// The delay before the controllers are started again after a failure.
const RESTART: Duration = Duration::from_secs(1);

type Register = fn(&mut Manager) -> Result<(), SetupError>;

/// The controllers, under the names that kube-controller-manager has for them.
const CONTROLLERS: [(&str, Register); 18] = [
    ("cronjob", cron_job::register),
    ("daemonset", daemon_set::register),
    ("deployment", deployment::register),
    ("disruption", disruption::register),
    ("endpoints", endpoints::register),
    ("endpointslice", endpoint_slice::register),
    ("endpointslicemirroring", endpoint_slice_mirroring::register),
    ("job", job::register),
    ("kubelet", kubelet::register),
    ("node-lifecycle", node_lifecycle::register),
    ("persistentvolume-protection", storage_protection::register_volumes),
    ("persistentvolumeclaim-protection", storage_protection::register_claims),
    ("pod-garbage-collector", pod_collector::register),
    ("replicaset", replica_set::register),
    ("replicationcontroller", replication_controller::register),
    ("resourcequota", resource_quota::register),
    ("scheduler", scheduler::register),
    ("statefulset", stateful_set::register),
];

/// The names of the controllers, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|(name, _)| *name)
}

/// The parts of the cluster that run.
///
/// ```
/// # use watchkeeper_controllers::cluster::Options;
/// let mut options = Options::default();
/// assert!(options.select("deployment", false) && !options.runs("deployment"));
/// assert!(!options.select("typo", true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    controllers: BTreeSet<&'static str>,
    /// The number of fake nodes.
    pub nodes: usize,
}

impl Default for Options {
    /// All controllers, with one node.
    fn default() -> Self {
        Self { controllers: names().collect(), nodes: 1 }
    }
}

impl Options {
    /// No controller, and no node.
    pub fn none() -> Self {
        Self { controllers: BTreeSet::new(), nodes: 0 }
    }

    /// Whether the controller of that name runs.
    pub fn runs(&self, controller: &str) -> bool {
        self.controllers.contains(controller)
    }

    /// Selects whether the controller of that name runs; returns whether there is one.
    pub fn select(&mut self, controller: &str, runs: bool) -> bool {
        let Some(known) = names().find(|name| *name == controller) else { return false };
        match runs {
            true => self.controllers.insert(known),
            false => self.controllers.remove(known),
        };
        true
    }
}

/// Registers the controllers that `options` selects with `manager`. The nodes are not among them: see [`nodes::run`].
///
/// # Errors
///
/// The manager has a controller of the same name.
pub fn register(manager: &mut Manager, options: &Options) -> Result<(), SetupError> {
    let mut selected = CONTROLLERS.iter().filter(|(name, _)| options.runs(name));
    selected.try_for_each(|(_, register)| register(manager))
}

/// Runs the workloads of a cluster until `stop`. If a part fails, that is reported, and the controllers start again.
///
/// Returns when everything has ended. Dropping the future ends everything too.
pub async fn run(client: &Client, options: &Options, stop: CancellationToken) {
    tokio::join!(controllers(client, options, &stop), nodes::run(client, options.nodes, stop.clone()));
}

async fn controllers(client: &Client, options: &Options, stop: &CancellationToken) {
    while !options.controllers.is_empty() && !stop.is_cancelled() {
        let mut manager = Manager::builder(NAME, client).resync(Duration::ZERO).build();
        let failure = match register(&mut manager, options) {
            Ok(()) => manager.run(stop.child_token()).await.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = failure {
            tracing::error!(error, "the built-in controllers failed");
            let _stopped = stop.run_until_cancelled(client.env().clock.sleep(RESTART)).await;
        }
    }
}
