//! The node lifecycle controller: nodes that do not report are unreachable, and their Pods are evicted.

// `health.rs` decides about nodes and `eviction.rs` about Pods; this file reads and writes.

mod eviction;
mod health;

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Object, ObjectName};

use self::health::{Health, judge};
use crate::nodes::LEASES;
use crate::now;

/// Registers the node lifecycle controller with `manager`, and the one that evicts Pods by taint.
///
/// A node whose Lease in `kube-node-lease` was not renewed for 50 s gets the conditions `Unknown` and the taints of an unreachable node;
/// one that is not ready, or is cordoned, gets those. Nodes without a Lease are not judged. Pods go from a node whose `NoExecute` taints
/// they do not tolerate, or when the time for which they do is over.
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
    eviction::register(manager)
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
