//! The scheduler: binds Pods to nodes.

// `fit.rs` decides, `ledger.rs` counts what is in use, and this file reads and writes.

pub(crate) mod fit;
mod ledger;
mod quantity;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::Selector;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::Object;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::record::EventType;
use watchkeeper::source::Requests;
use watchkeeper::store::Index;
use watchkeeper::wire::Class;

use self::ledger::{Ledger, requests};
use crate::now;
use crate::pods::{has_ended, node_name};

/// The index of Pods without a node.
const UNSCHEDULED: &str = "unscheduled";
/// The name by which Pods choose this scheduler.
const NAME: &str = "default-scheduler";

/// How long a Pod waits for one of higher priority that is about to be bound.
const TURN: Duration = Duration::from_millis(20);

/// Registers the scheduler with `manager`.
///
/// It binds Pods of `default-scheduler` without scheduling gates to nodes that their node selector and node affinity match, whose
/// taints they tolerate, and that have room for what they request; among these, to the one with the fewest Pods. A Pod that fits
/// nowhere says why in its condition `PodScheduled`, and is tried again when a node changes or a Pod goes. While a Pod of higher
/// priority fits somewhere and waits, it goes first.
///
/// Pod affinity, topology spread, volumes and preemption are not considered.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = manager.factory().informer::<Pod>();
    let unscheduled = Index::new(UNSCHEDULED, |pod: &Object<Pod>| {
        let is_bound = pod.get().is_ok_and(|pod| !node_name(&pod).is_empty());
        (!is_bound).then(String::new)
    });
    let _added = pods.indexer().add_indexes([unscheduled]);
    let ledger = Arc::<Mutex<Ledger>>::default();
    let entered = ledger.clone();
    pods.add_handler(on_change(move |change: Change<'_, Pod>| enter(&mut entered.lock(), &change)))?;
    let waiting = move || pods.indexer().snapshot().index_keys(UNSCHEDULED, "").unwrap_or_default();
    let (of_nodes, of_pods) = (waiting.clone(), waiting);
    let binder = manager.client().requests().clone().manager("kube-scheduler");
    Controller::<Pod>::new(manager)
        .named("scheduler")
        .component(NAME)
        .watches(Watch::<Node>::new(), move |_, _| of_nodes())
        // A Pod that ends makes room.
        .watches(Watch::<Pod>::new().when(|old, new| ends(old) != ends(new)), move |pod, _| {
            if ends(pod) { of_pods() } else { Vec::new() }
        })
        .reconcile(move |pod, cx| reconcile(pod, cx, ledger.clone(), binder.clone()))
}

/// Whether a Pod is going, or has ended.
fn ends(pod: &Object<Pod>) -> bool {
    pod.is_deleting() || pod.get().is_ok_and(|pod| has_ended(&pod))
}

/// Keeps the ledger in line with the cached Pods.
fn enter(ledger: &mut Ledger, change: &Change<'_, Pod>) {
    match change {
        Change::Added { object, .. } | Change::Updated { new: object, .. } => {
            let Ok(pod) = object.get() else { return };
            ledger.set_waiting(&object.key(), is_waiting(&pod).then(|| priority(&pod)));
            match node_name(&pod) {
                "" => {}
                _ if has_ended(&pod) => ledger.remove(&object.key()),
                node => ledger.enter(&object.key(), node, &requests(&pod)),
            }
        }
        Change::Deleted(deleted) => {
            ledger.remove(&deleted.key());
            ledger.set_waiting(&deleted.key(), None);
        }
    }
}

async fn reconcile(
    pod: Arc<Pod>,
    cx: Context<Pod>,
    ledger: Arc<Mutex<Ledger>>,
    binder: Requests,
) -> Result<Action, Error> {
    if !is_waiting(&pod) {
        return Ok(Action::done());
    }
    let nodes = cx.list::<Node>(None, &Selector::default())?.ignore_unreadable();
    if must_wait(&pod, &cx, &nodes, &ledger)? {
        return Ok(Action::requeue_after(TURN));
    }
    let chosen = {
        let mut ledger = ledger.lock();
        let chosen = fit::choose(&pod, &nodes, |node| ledger.used(node));
        if let Ok(node) = &chosen {
            // The next Pod must not count on the same room.
            ledger.enter(cx.key(), node, &requests(&pod));
        }
        chosen
    };
    let outcome = match chosen {
        Ok(node) => bind(&cx, &pod, &node, &binder).await,
        Err(message) => return refuse(&cx, &message).await,
    };
    if outcome.is_err() {
        let mut ledger = ledger.lock();
        // The answer may be lost and the binding made: then the ledger has it from the watch, or will have it.
        let cached = cx.get_at::<Pod>(cx.key())?;
        if cached.is_none_or(|pod| node_name(&pod).is_empty()) {
            ledger.remove(cx.key());
        }
        // Others do not wait for it until it changes.
        ledger.set_waiting(cx.key(), None);
    }
    outcome
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Whether a Pod of higher priority waits that has room somewhere. It is in the queue as well.
fn must_wait(
    pod: &Pod,
    cx: &Context<Pod>,
    nodes: &[Arc<Node>],
    ledger: &Mutex<Ledger>,
) -> Result<bool, Error> {
    let rivals = ledger.lock().before(priority(pod));
    for rival in rivals {
        let Some(rival) = cx.get_at::<Pod>(&rival)? else { continue };
        let ledger = ledger.lock();
        if is_waiting(&rival) && fit::choose(&rival, nodes, |node| ledger.used(node)).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a Pod waits for this scheduler.
fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_ours = spec.scheduler_name.as_deref().is_none_or(|name| name == NAME);
    let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let is_bound = !node_name(pod).is_empty();
    is_ours && !is_gated && !is_bound && !has_ended(pod) && pod.metadata.deletion_timestamp.is_none()
}

async fn bind(cx: &Context<Pod>, pod: &Pod, node: &str, binder: &Requests) -> Result<Action, Error> {
    let name = cx.key().name();
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": name, "namespace": cx.key().namespace(), "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    match binder.api::<Pod>().create_subresource("binding", cx.key(), &binding).await {
        Ok(()) => {
            let message = format!("Successfully assigned {} to {node}", cx.key());
            cx.event(EventType::Normal, "Scheduled", &message);
            Ok(Action::done())
        }
        // It is bound already, is going, or is gone; the cache will say.
        Err(error) if error.class() == Class::Conflict || error.is_missing_object() => Ok(Action::done()),
        Err(error) => Err(error.into()),
    }
}

/// Says why a Pod cannot be scheduled.
async fn refuse(cx: &Context<Pod>, message: &str) -> Result<Action, Error> {
    let now = now(cx);
    let mut is_new = false;
    cx.status_as::<PodStatus>(|status| is_new = set_unschedulable(status, message, &Time(now))).await?;
    if is_new {
        cx.event(EventType::Warning, "FailedScheduling", message);
    }
    Ok(Action::done())
}

/// Sets the condition `PodScheduled`; returns whether it changed.
fn set_unschedulable(status: &mut PodStatus, message: &str, now: &Time) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter().position(|condition| condition.type_ == "PodScheduled");
    let condition = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    };
    match known {
        None => conditions.push(condition),
        Some(at) if conditions[at].message == condition.message && conditions[at].status == "False" => {
            return false;
        }
        Some(at) => {
            let before = &conditions[at];
            let since = if before.status == "False" { before.last_transition_time.clone() } else { None };
            conditions[at] = PodCondition {
                last_transition_time: since.or(condition.last_transition_time.clone()),
                ..condition
            };
        }
    }
    true
}
