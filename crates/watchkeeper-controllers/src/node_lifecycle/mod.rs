//! The node lifecycle controller: nodes that do not report are unreachable, and their Pods are not ready and evicted.

// `health.rs` decides about nodes, `readiness.rs` and `eviction.rs` about Pods; this file reads and writes.

mod eviction;
mod health;
mod readiness;

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod};
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, View, Watch};
use watchkeeper::record::EventType;
use watchkeeper::store::Index;
use watchkeeper::{Object, ObjectName};

use self::health::{Health, judge};
use crate::nodes::LEASES;
use crate::now;
use crate::pods::node_name;

/// The index of Pods by their node.
const ON_NODE: &str = "on-node";

/// Registers the node lifecycle controller with `manager`, and the one that evicts Pods by taint.
///
/// A node whose Lease in `kube-node-lease` was not renewed for 50 s gets the conditions `Unknown` and the taints of an unreachable node;
/// one that is not ready, or is cordoned, gets those. Nodes without a Lease are not judged. The Pods of a node that is not ready are not
/// ready. Pods go from a node whose `NoExecute` taints they do not tolerate, or when the time for which they do is over.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<Node>::new(manager)
        .named("node-lifecycle")
        .component("node-controller")
        .watches(Watch::<Lease>::new().namespaces([LEASES]), |lease: &Object<Lease>, _| {
            vec![ObjectName::cluster(lease.name())]
        })
        .reconcile(reconcile)?;
    readiness::register(manager)?;
    eviction::register(manager)
}

/// Maps a node to its Pods, by an index that it adds.
fn pods_on(
    manager: &Manager,
) -> impl Fn(&Object<Node>, &View<'_, Pod>) -> Vec<ObjectName> + Send + Sync + 'static {
    let pods = manager.factory().informer::<Pod>();
    // The second controller finds the index of the first.
    let index = Index::new(ON_NODE, |pod: &Object<Pod>| node_of(pod).filter(|node| !node.is_empty()));
    let _added = pods.indexer().add_indexes([index]);
    move |node, _| pods.indexer().snapshot().index_keys(ON_NODE, node.name()).unwrap_or_default()
}

/// The name of the node of a Pod.
fn node_of(pod: &Object<Pod>) -> Option<String> {
    pod.get().ok().map(|pod| node_name(&pod).to_owned())
}

async fn reconcile(node: Arc<Node>, cx: Context<Node>) -> Result<Action, Error> {
    let name = cx.key().name().to_owned();
    let lease = cx.get_at::<Lease>(&ObjectName::namespaced(LEASES, &name))?;
    let renewed = lease.and_then(|lease| Some(lease.spec.as_ref()?.renew_time.as_ref()?.0));
    let Health { conditions, taints, wake } = judge(&node, renewed, now(&cx));
    if let Some(conditions) = conditions {
        cx.status_as::<NodeStatus>(|status| status.conditions = Some(conditions)).await?;
        let message = format!("Node {name} status is now: NodeNotReady");
        cx.event(EventType::Normal, "NodeNotReady", &message);
        // The taints follow when the cache shows the conditions.
        return Ok(Action::done());
    }
    if let Some(taints) = taints {
        // Taints are replaced as a whole: a change by somebody else in between is a conflict.
        let metadata = json!({ "resourceVersion": node.metadata.resource_version });
        let patch = json!({"metadata": metadata, "spec": {"taints": taints}});
        cx.patch::<Node, _>(&name, &Patch::Merge(patch)).await?;
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}
