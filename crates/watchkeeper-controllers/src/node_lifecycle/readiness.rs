//! Pods on a node that is not ready: they are not ready either, so that nothing is sent to them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Object, ObjectName};

use super::{node_of, pods_on};
use crate::nodes::Readiness;
use crate::now;
use crate::pods::{is_ready, node_name};

/// Registers the controller that takes Pods of nodes in trouble for not ready. The kubelet reports them ready again.
pub(super) fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let on_node = pods_on(manager);
    Controller::<Pod>::new(manager)
        .named("node-lifecycle-pods")
        .component("node-controller")
        .when(|old, new| node_of(old) != node_of(new) || ready(old) != ready(new))
        .watches(Watch::<Node>::new().when(|old, new| is_in_trouble(old) != is_in_trouble(new)), on_node)
        .reconcile(reconcile)
}

fn ready(pod: &Object<Pod>) -> bool {
    pod.get().is_ok_and(|pod| is_ready(&pod))
}

fn is_in_trouble(node: &Object<Node>) -> bool {
    node.get().is_ok_and(|node| Readiness::of(&node).is_in_trouble())
}

async fn reconcile(pod: Arc<Pod>, cx: Context<Pod>) -> Result<Action, Error> {
    if !is_ready(&pod) || node_name(&pod).is_empty() {
        return Ok(Action::done());
    }
    let node = cx.get_at::<Node>(&ObjectName::cluster(node_name(&pod)))?;
    if !node.is_some_and(|node| Readiness::of(&node).is_in_trouble()) {
        return Ok(Action::done());
    }
    let at = Time(now(&cx));
    cx.status_as::<PodStatus>(|status| {
        for condition in status.conditions.iter_mut().flatten().filter(|it| it.type_ == "Ready") {
            condition.status = "False".to_owned();
            condition.last_transition_time = Some(at.clone());
        }
    })
    .await?;
    cx.event(EventType::Warning, "NodeNotReady", "Node is not ready");
    Ok(Action::done())
}
