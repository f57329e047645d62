//! The workloads of a cluster in one process: controllers, a scheduler, and fake nodes.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::Client;
use watchkeeper::controller::{Manager, SetupError};

use crate::{deployment, kubelet, nodes, replica_set, scheduler};

/// The name of the manager: the field manager of its writes.
const NAME: &str = "kube-controller-manager";
/// The delay before the controllers are started again after a failure.
const RESTART: Duration = Duration::from_secs(1);

/// The parts of the cluster that run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Whether Deployments get ReplicaSets.
    pub deployment: bool,
    /// Whether ReplicaSets get Pods.
    pub replica_set: bool,
    /// Whether Pods are bound to nodes.
    pub scheduler: bool,
    /// Whether Pods on fake nodes pretend to run.
    pub kubelet: bool,
    /// The number of fake nodes.
    pub nodes: usize,
}

impl Default for Options {
    /// Everything, with one node.
    fn default() -> Self {
        Self { deployment: true, replica_set: true, scheduler: true, kubelet: true, nodes: 1 }
    }
}

impl Options {
    /// Nothing.
    pub fn none() -> Self {
        Self { deployment: false, replica_set: false, scheduler: false, kubelet: false, nodes: 0 }
    }
}

/// Registers the controllers that `options` selects with `manager`. The nodes are not among them: see [`nodes::run`].
///
/// # Errors
///
/// The manager has a controller of the same name.
pub fn register(manager: &mut Manager, options: &Options) -> Result<(), SetupError> {
    type Register = fn(&mut Manager) -> Result<(), SetupError>;
    let parts: [(bool, Register); 4] = [
        (options.deployment, deployment::register),
        (options.replica_set, replica_set::register),
        (options.scheduler, scheduler::register),
        (options.kubelet, kubelet::register),
    ];
    parts.into_iter().filter(|(runs, _)| *runs).try_for_each(|(_, register)| register(manager))
}

/// Runs the workloads of a cluster until `stop`. If a part fails, that is reported, and the controllers start again.
///
/// Returns when everything has ended. Dropping the future ends everything too.
pub async fn run(client: &Client, options: &Options, stop: CancellationToken) {
    tokio::join!(controllers(client, options, &stop), nodes::run(client, options.nodes, stop.clone()));
}

async fn controllers(client: &Client, options: &Options, stop: &CancellationToken) {
    let selected = Options { nodes: 0, ..options.clone() };
    while selected != Options::none() && !stop.is_cancelled() {
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
