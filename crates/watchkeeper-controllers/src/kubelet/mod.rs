//! The kubelet of fake nodes: Pods that are bound to them pretend to run.

// `script.rs` reads how a Pod behaves, `plan.rs` and `conditions.rs` decide, and this file reads and writes.

mod conditions;
mod plan;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube_core::params::DeleteParams;
use watchkeeper::controller::{
    Action, Context, Controller, Error, IndexKey, Manager, SetupError, View, Watch,
};
use watchkeeper::{Object, ObjectName, SharedInformer};

use self::plan::{Addresses, Decision, decide};
pub use self::script::{EXIT_AFTER, EXIT_CODE, IMAGE_PULL_ERROR, READY_DELAY, START_DELAY, STOP_DELAY};
use crate::nodes::{Readiness, is_running};
use crate::pods::node_name;

const NODE: IndexKey<Pod> = IndexKey::field("node", "spec.nodeName");
const ADDRESS: IndexKey<Pod> = IndexKey::field("pod-ip", "status.podIP");
/// The number of Pods that are moved on at the same time.
const WORKERS: usize = 8;

/// Registers the kubelet of fake nodes with `manager`.
///
/// A Pod on a fake node starts at once, gets addresses, is ready, and runs until it is deleted; the annotations of this module
/// change that. A container whose command is `sleep N`, `true`, `false` or `exit N`, also in a shell, exits as that does. A Pod of a
/// Job that says nothing else completes at once; one that pauses does not. Nothing happens on a node that is not ready, except that
/// deleted Pods go.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = manager.factory().informer::<Pod>();
    let network = Arc::new(Network { pods, next: AtomicU32::new(0) });
    Controller::<Pod>::new(manager)
        .named("kubelet")
        .component("kubelet")
        .index(&NODE)
        .index(&ADDRESS)
        .watches(Watch::<Node>::new().when(is_other), on_node)
        .workers(WORKERS)
        .reconcile(move |pod, cx| reconcile(pod, cx, network.clone()))
}

fn is_other(old: &Object<Node>, new: &Object<Node>) -> bool {
    let state = |node: &Object<Node>| node.get().ok().map(|node| (is_running(&node), Readiness::of(&node)));
    state(old) != state(new)
}

fn on_node(node: &Object<Node>, pods: &View<'_, Pod>) -> Vec<ObjectName> {
    pods.keys_in(&NODE, None, node.name())
}

/// The addresses of Pods.
struct Network {
    pods: SharedInformer<Pod>,
    next: AtomicU32,
}

impl Network {
    /// An address of 10.244.0.0/14 that no Pod has.
    fn free_address(&self) -> String {
        let pods = self.pods.indexer().snapshot();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed) + 2;
            let (b, c, d) = (244 + ((number >> 16) & 3), (number >> 8) & 255, number & 255);
            let address = format!("10.{b}.{c}.{d}");
            if pods.index_keys(ADDRESS.name(), &address).is_ok_and(|holders| holders.is_empty()) {
                return address;
            }
        }
    }
}

async fn reconcile(pod: Arc<Pod>, cx: Context<Pod>, network: Arc<Network>) -> Result<Action, Error> {
    let name = node_name(&pod);
    if name.is_empty() {
        return Ok(Action::done());
    }
    let Some(node) = cx.get_at::<Node>(&ObjectName::cluster(name))? else { return Ok(Action::done()) };
    let is_held = match Readiness::of(&node) {
        Readiness::Unset | Readiness::Ready => false,
        // Its Pods were taken for not ready, and stay so until the node reports that it is ready.
        Readiness::NotReady => pod.metadata.deletion_timestamp.is_none(),
        Readiness::Lost => true,
    };
    if is_held || !is_running(&node) {
        return Ok(Action::done());
    }
    let addresses = || Addresses { host: host_address(&node), pod: network.free_address() };
    let Decision { status, remove, events, wake } = decide(&pod, addresses, cx.env().clock.wall());
    if let Some(status) = status {
        cx.status_as::<PodStatus>(|current| *current = status).await?;
    }
    for (of, reason, message) in events {
        cx.event(of, reason, &message);
    }
    if remove {
        let name = cx.key().name().to_owned();
        cx.delete_with::<Pod>(&name, DeleteParams::default().grace_period(0)).await?;
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

fn host_address(node: &Node) -> String {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.into_iter().find(|address| address.type_ == "InternalIP");
    internal.map_or_else(|| "172.18.0.1".to_owned(), |address| address.address.clone())
}
