//! The Pod garbage collector: removes Pods that no kubelet will remove.

// `plan.rs` decides, and this file reads and writes.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_core::params::DeleteParams;
use parking_lot::Mutex;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch, WriteError};
use watchkeeper::store::Index;
use watchkeeper::{Object, ObjectName, SharedInformer};

use self::plan::{QUARANTINE, Verdict, surplus, verdict};
use crate::now;
use crate::pods::{has_ended, node_name};

/// The index of Pods by their node.
const BOUND_TO: &str = "bound-to";
/// The index of Pods by their phase.
const PHASE: &str = "phase";
/// The most Pods that have ended and are kept.
const THRESHOLD: usize = 12_500;
/// The number of Pods that are removed at the same time.
const WORKERS: usize = 5;

/// The nodes that are missing, and since when.
type Missing = Arc<Mutex<BTreeMap<String, Timestamp>>>;

/// Registers the Pod garbage collector with `manager`.
///
/// It deletes Pods whose node has been gone for 40 s, Pods that are being deleted and were never bound to a node, and the oldest of the
/// Pods that have ended, if there are more than 12,500. A Pod that has not ended is marked as failed before.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = manager.factory().informer::<Pod>();
    let bound = Index::new(BOUND_TO, |pod: &Object<Pod>| {
        let pod = pod.get().ok()?;
        Some(node_name(&pod).to_owned()).filter(|node| !node.is_empty())
    });
    let phase =
        Index::new(PHASE, |pod: &Object<Pod>| pod.get().ok().map(|pod| crate::pods::phase(&pod).to_owned()));
    let _added = pods.indexer().add_indexes([bound, phase]);
    let (on_node, ended) = (pods.clone(), pods.clone());
    let missing = Missing::default();
    Controller::<Pod>::new(manager)
        .named("pod-garbage-collector")
        .component("pod-garbage-collector")
        .when(|old, new| state(old) != state(new))
        .watches(Watch::<Node>::new().when(|_, _| false), move |node, _| {
            on_node.indexer().snapshot().index_keys(BOUND_TO, node.name()).unwrap_or_default()
        })
        .watches(
            Watch::<Pod>::new().when(|old, new| has_ended_now(old) != has_ended_now(new)),
            move |pod, _| {
                if has_ended_now(pod) { oldest(&ended) } else { Vec::new() }
            },
        )
        .workers(WORKERS)
        .reconcile(move |pod, cx| reconcile(pod, cx, pods.clone(), missing.clone()))
}

fn state(pod: &Object<Pod>) -> (Option<String>, bool) {
    (pod.get().ok().map(|pod| node_name(&pod).to_owned()), pod.is_deleting())
}

fn has_ended_now(pod: &Object<Pod>) -> bool {
    pod.get().is_ok_and(|pod| has_ended(&pod))
}

/// The oldest of the Pods that have ended, if they are too many.
fn oldest(pods: &SharedInformer<Pod>) -> Vec<ObjectName> {
    let snapshot = pods.indexer().snapshot();
    let ended = ["Failed", "Succeeded"].into_iter().filter_map(|phase| snapshot.by_index(PHASE, phase).ok());
    surplus(ended.flatten(), THRESHOLD)
}

async fn reconcile(
    pod: Arc<Pod>,
    cx: Context<Pod>,
    pods: SharedInformer<Pod>,
    missing: Missing,
) -> Result<Action, Error> {
    let now = now(&cx);
    let node = node_name(&pod).to_owned();
    let since = if node.is_empty() || cx.get_at::<Node>(&ObjectName::cluster(&node))?.is_some() {
        missing.lock().remove(&node);
        None
    } else {
        Some(*missing.lock().entry(node.clone()).or_insert(now))
    };
    match verdict(&pod, since, now) {
        Verdict::Wait(left) => return Ok(Action::requeue_after(left)),
        Verdict::Orphaned => {
            // The cache of nodes may lag behind.
            if cx.live().get::<Node>(&ObjectName::cluster(&node)).await?.is_some() {
                missing.lock().remove(&node);
                return Ok(Action::requeue_after(QUARANTINE));
            }
            remove(&cx, &pod, Some("PodGC: node no longer exists"), now).await?;
        }
        Verdict::NeverBound => remove(&cx, &pod, None, now).await?,
        Verdict::Keep if has_ended(&pod) && oldest(&pods).contains(cx.key()) => {
            remove(&cx, &pod, None, now).await?;
        }
        Verdict::Keep => {}
    }
    Ok(Action::done())
}

/// Marks a Pod as failed for this reason, if it has not ended, and deletes it at once.
async fn remove(cx: &Context<Pod>, pod: &Pod, why: Option<&str>, now: Timestamp) -> Result<(), WriteError> {
    if !has_ended(pod) {
        cx.status_as(|status| plan::fail(status, why, now)).await?;
    }
    let name = cx.key().name();
    // Finalizers of others hold the Pod: it is deleted at once all the same when they are gone.
    cx.delete_with::<Pod>(name, DeleteParams::default().grace_period(0)).await?;
    Ok(())
}
