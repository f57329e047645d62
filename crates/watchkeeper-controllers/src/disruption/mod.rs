//! The controller of PodDisruptionBudgets: how many Pods may be evicted.

// `plan.rs` decides, and this file reads and writes.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube_core::{Selector, SelectorExt};
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, View, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Kind, Object, ObjectName};

use self::plan::Status;
use crate::family::{controller, in_namespace};
use crate::{deployment, now, replica_set};

/// Registers the controller of PodDisruptionBudgets with `manager`.
///
/// It counts the Pods that a budget selects and writes how many of them may be evicted, which the eviction API of the server reads.
/// How many Pods there should be comes from the replicas of the workloads that control them.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<PodDisruptionBudget>::new(manager)
        .component("controllermanager")
        .index(&in_namespace())
        .watches(Watch::<Pod>::new(), budgets_of)
        .watches(Watch::<Deployment>::new().when(|_, _| false), none)
        .watches(Watch::<ReplicaSet>::new().when(|_, _| false), none)
        .watches(Watch::<StatefulSet>::new().when(|_, _| false), none)
        .watches(Watch::<ReplicationController>::new().when(|_, _| false), none)
        .reconcile(reconcile)
}

/// Workloads are read, but their Pods say when they matter.
fn none<W: Kind>(_: &Object<W>, _: &View<'_, PodDisruptionBudget>) -> Vec<ObjectName> {
    Vec::new()
}

/// The selector of a budget; none if it selects nothing. An empty one selects all Pods.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let of: &LabelSelector = budget.spec.as_ref()?.selector.as_ref()?;
    Selector::try_from(of.clone()).ok()
}

fn budgets_of(pod: &Object<Pod>, budgets: &View<'_, PodDisruptionBudget>) -> Vec<ObjectName> {
    let Some(namespace) = pod.namespace() else { return Vec::new() };
    let mut keys = budgets.keys_in(&in_namespace(), Some(namespace), namespace);
    if keys.is_empty() {
        return keys;
    }
    let labels = pod.labels().to_map();
    keys.retain(|key| {
        let budget = budgets.get(key).and_then(|budget| budget.get().ok());
        budget.and_then(|budget| selector(&budget)).is_some_and(|selector| selector.matches(&labels))
    });
    keys
}

async fn reconcile(
    budget: Arc<PodDisruptionBudget>,
    cx: Context<PodDisruptionBudget>,
) -> Result<Action, Error> {
    let pods = match selector(&budget) {
        Some(selector) => cx.list::<Pod>(cx.key().namespace(), &selector)?.complete()?,
        None => Vec::new(),
    };
    if pods.is_empty() {
        cx.event(EventType::Normal, "NoPods", "No matching pods found");
    }
    let scale = scale(&cx, &pods)?;
    let (mut wake, now) = (None, now(&cx));
    cx.status_as::<Status>(|known| (*known, wake) = plan::status(&budget, &pods, scale, known, now)).await?;
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

/// The Pods that the workloads of these Pods ask for; a Pod whose workload is unknown counts for itself.
fn scale(cx: &Context<PodDisruptionBudget>, pods: &[Arc<Pod>]) -> Result<i32, Error> {
    let mut workloads = BTreeMap::<String, i32>::new();
    for pod in pods {
        let (uid, replicas) = match controller(&pod.metadata) {
            Some(owner) => replicas(cx, owner)?,
            None => (pod.metadata.uid.clone().unwrap_or_default(), None),
        };
        match replicas {
            Some(replicas) => drop(workloads.insert(uid, replicas)),
            None => *workloads.entry(uid).or_default() += 1,
        }
    }
    Ok(workloads.values().sum())
}

/// The workload behind a Pod, and its replicas.
fn replicas(
    cx: &Context<PodDisruptionBudget>,
    owner: &OwnerReference,
) -> Result<(String, Option<i32>), Error> {
    let uid = owner.uid.clone();
    let key = cx.key().sibling(&owner.name);
    let found = match owner.kind.as_str() {
        "ReplicaSet" => match cx.get_at::<ReplicaSet>(&key)? {
            Some(set) => match controller(&set.metadata).filter(|owner| owner.kind == "Deployment") {
                Some(owner) => {
                    let deployment = cx.get_at::<Deployment>(&cx.key().sibling(&owner.name))?;
                    let replicas =
                        deployment.and_then(|it| deployment::spec(&it).and_then(|spec| spec.replicas));
                    return Ok((owner.uid.clone(), replicas));
                }
                None => replica_set::spec(&set).and_then(|spec| spec.replicas),
            },
            None => None,
        },
        "StatefulSet" => {
            let set = cx.get_at::<StatefulSet>(&key)?;
            set.and_then(|set| crate::stateful_set::replicas(&set))
        }
        "ReplicationController" => {
            let of = cx.get_at::<ReplicationController>(&key)?;
            of.and_then(|of| of.spec.as_ref().and_then(|spec| spec.replicas))
        }
        _ => None,
    };
    Ok((uid, found))
}
