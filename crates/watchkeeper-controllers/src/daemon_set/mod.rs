//! The DaemonSet controller: one Pod on each node that it selects.

// `nodes.rs` says where, `plan.rs` decides, and this file reads and writes.

mod nodes;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_core::Selector;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Object, ObjectName, SharedInformer};

use self::plan::{Plan, plan, spec};
use crate::family::{Family, Selecting, adopters, claim_all, in_namespace, selector};
use crate::now;
use crate::pods::change::{create_pods, delete_pods};
use crate::pods::has_ended;
use crate::revisions::{self, Collision, REVISION};

/// The number of DaemonSets that are reconciled at the same time.
const WORKERS: usize = 2;

/// Registers the DaemonSet controller with `manager`.
///
/// It keeps a Pod on each node that the selector and affinity of the template match and whose taints the Pods tolerate; these
/// tolerate the taints of nodes in trouble. Templates are kept as ControllerRevisions. Updates replace Pods within `maxUnavailable` or
/// `maxSurge`, or when they are deleted. It needs a scheduler, such as [`scheduler`](crate::scheduler).
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = Family::of(manager);
    let sets = manager.factory().informer::<DaemonSet>();
    Controller::<DaemonSet>::new(manager)
        .component("daemonset-controller")
        .index(&in_namespace())
        .owns(Watch::<Pod>::new())
        .owns(Watch::<ControllerRevision>::new())
        .watches(Watch::<Pod>::new(), adopters)
        .watches(Watch::<Node>::new().when(is_other_place), move |_, _| all(&sets))
        .workers(WORKERS)
        .reconcile(move |set, cx| reconcile(set, cx, pods.clone()))
}

/// Whether a node has changed in what decides which Pods it takes.
fn is_other_place(old: &Object<Node>, new: &Object<Node>) -> bool {
    let taints = |node: &Object<Node>| node.get().ok().and_then(|node| node.spec.clone()?.taints);
    old.labels().to_map() != new.labels().to_map() || taints(old) != taints(new)
}

fn all(sets: &SharedInformer<DaemonSet>) -> Vec<ObjectName> {
    sets.indexer().snapshot().keys().collect()
}

impl Selecting for DaemonSet {
    fn selector(&self) -> Option<Selector> {
        selector(&spec(self)?.selector)
    }
}

async fn reconcile(set: Arc<DaemonSet>, cx: Context<DaemonSet>, pods: Family<Pod>) -> Result<Action, Error> {
    let (Some(spec), Some(selector)) = (spec(&set), set.selector()) else { return Ok(Action::done()) };
    let mut pods = claim_all::<DaemonSet, Pod>(&cx, &set.metadata, &selector, &pods).await?;
    let history = cx.owned::<ControllerRevision>()?.complete()?;
    let current = find_revision(&cx, &set, &history).await?;
    let hash = nodes::hash(&current);
    let nodes = cx.list::<Node>(None, &Selector::default())?.complete()?;
    let Plan { create, delete, status, wake } = plan(&set, &nodes, &pods, hash, now(&cx));
    cx.status_as::<DaemonSetStatus>(|known| *known = status).await?;
    tell_ended(&cx, &delete);
    let deleted = delete_pods(&cx, &delete, &mut pods).await;
    let new = create.iter().map(|node| nodes::pod_for(&set, spec, hash, node, &cx.env().generator));
    let created = create_pods(&cx, new.collect::<Vec<_>>(), &mut pods).await;
    if let Err((_, error)) = deleted.and(created) {
        return Err(error);
    }
    let mut used: BTreeSet<_> = BTreeSet::from([revisions::name(&current).to_owned()]);
    let labels = pods.iter().filter_map(|pod| pod.metadata.labels.as_ref()?.get(REVISION));
    used.extend(labels.map(|hash| format!("{}-{hash}", cx.key().name())));
    for name in revisions::surplus(&history, &used, spec.revision_history_limit) {
        cx.delete::<ControllerRevision>(&name).await?;
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

/// The revision of the current template.
async fn find_revision(
    cx: &Context<DaemonSet>,
    set: &DaemonSet,
    history: &[Arc<ControllerRevision>],
) -> Result<Arc<ControllerRevision>, Error> {
    let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
    let template = spec(set).map(|spec| spec.template.clone()).unwrap_or_default();
    let current = revisions::current(cx.key().name(), &template, history, collisions, REVISION);
    match revisions::write(cx, &set.metadata, current).await {
        Ok(current) => Ok(current),
        Err(Collision::Other(error)) => Err(error),
        Err(Collision::NameTaken(error)) => {
            let next = Some(collisions + 1);
            cx.status_as::<DaemonSetStatus>(|status| status.collision_count = next).await?;
            Err(error)
        }
    }
}

/// Says which Pods are replaced because they have ended.
fn tell_ended(cx: &Context<DaemonSet>, deleted: &[Arc<Pod>]) {
    for pod in deleted.iter().filter(|pod| has_ended(pod)) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let node = nodes::node_of(pod);
        let (of, reason, what) = match crate::pods::phase(pod) {
            "Failed" => (EventType::Warning, "FailedDaemonPod", "failed"),
            _ => (EventType::Normal, "SucceededDaemonPod", "succeeded"),
        };
        let namespace = cx.key().namespace().unwrap_or_default();
        let message =
            format!("Found {what} daemon pod {namespace}/{name} on node {node}, will try to delete it");
        cx.event(of, reason, &message);
    }
}
