//! The StatefulSet controller: Pods with names and claims of their own, made, updated and deleted in order.

// `identity.rs` says what the Pod of an ordinal is, `plan.rs` decides, and this file reads and writes.

mod identity;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube_core::Selector;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch, WriteError};
use watchkeeper::record::EventType;
use watchkeeper::wire::Class;

use self::plan::{Plan, Revisions, plan, spec};
use crate::family::{Family, Selecting, adopters, claim_all, in_namespace, selector};
use crate::now;
use crate::pods::has_ended;
use crate::revisions::{self, Collision};

/// The label of revisions with their hash.
const HASH: &str = "controller.kubernetes.io/hash";
/// The number of StatefulSets that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the StatefulSet controller with `manager`.
///
/// It keeps a Pod for each ordinal, with the claims of its templates, and changes Pods in order or, with the policy `Parallel`, all at
/// once. Templates are kept as ControllerRevisions; updates go from the highest ordinal to the partition.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = Family::of(manager);
    Controller::<StatefulSet>::new(manager)
        .component("statefulset-controller")
        .index(&in_namespace())
        .owns(Watch::<Pod>::new())
        .owns(Watch::<ControllerRevision>::new())
        .watches(Watch::<Pod>::new(), adopters)
        .workers(WORKERS)
        .reconcile(move |set, cx| reconcile(set, cx, pods.clone()))
}

impl Selecting for StatefulSet {
    fn selector(&self) -> Option<Selector> {
        selector(&spec(self)?.selector)
    }
}

/// The number of Pods that a set asks for.
pub(crate) fn replicas(set: &StatefulSet) -> Option<i32> {
    spec(set)?.replicas
}

async fn reconcile(
    set: Arc<StatefulSet>,
    cx: Context<StatefulSet>,
    pods: Family<Pod>,
) -> Result<Action, Error> {
    let (Some(spec), Some(selector)) = (spec(&set), set.selector()) else { return Ok(Action::done()) };
    let mut pods = claim_all::<StatefulSet, Pod>(&cx, &set.metadata, &selector, &pods).await?;
    pods.retain(|pod| identity::ordinal(&set, pod).is_some());
    let history = cx.owned::<ControllerRevision>()?.complete()?;
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let revisions = find_revisions(&cx, &set, spec, &history, collisions.unwrap_or_default()).await?;
    let Plan { create, delete, wake } = plan(&set, &pods, &revisions, now(&cx));
    let managed = manage(&cx, &set, spec, create, &delete, &mut pods).await;
    let status = plan::status(&set, &pods, &revisions, collisions, now(&cx));
    cx.status_as::<StatefulSetStatus>(|current| *current = status).await?;
    managed?;
    let mut used: BTreeSet<_> = pods.iter().map(|pod| identity::revision(pod).to_owned()).collect();
    used.extend([&revisions.current, &revisions.update].map(|revision| revisions::name(revision).to_owned()));
    for name in revisions::surplus(&history, &used, spec.revision_history_limit) {
        cx.delete::<ControllerRevision>(&name).await?;
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

/// The revision of the current template, and that of the Pods before it.
async fn find_revisions(
    cx: &Context<StatefulSet>,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    history: &[Arc<ControllerRevision>],
    collisions: i32,
) -> Result<Revisions, Error> {
    let current = revisions::current(cx.key().name(), &spec.template, history, collisions, HASH);
    let update = match revisions::write(cx, &set.metadata, current).await {
        Ok(update) => update,
        Err(Collision::Other(error)) => return Err(error),
        Err(Collision::NameTaken(error)) => {
            let next = Some(collisions + 1);
            cx.status_as::<StatefulSetStatus>(|status| status.collision_count = next).await?;
            return Err(error);
        }
    };
    let known = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
    let before = history.iter().find(|revision| Some(revisions::name(revision)) == known);
    Ok(Revisions { current: before.cloned().unwrap_or_else(|| update.clone()), update })
}

async fn manage(
    cx: &Context<StatefulSet>,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    create: Vec<(i32, Pod)>,
    delete: &[Arc<Pod>],
    pods: &mut Vec<Arc<Pod>>,
) -> Result<(), Error> {
    let parent = cx.key().name();
    for pod in delete {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if has_ended(pod) {
            let message = format!("StatefulSet {} is recreating failed Pod {name}", cx.key());
            cx.event(EventType::Warning, "RecreatingFailedPod", &message);
        }
        if cx.delete::<Pod>(name).await? {
            let message = format!("Delete Pod {name} in StatefulSet {parent} successful");
            cx.event(EventType::Normal, "SuccessfulDelete", &message);
        }
        pods.retain(|other| !Arc::ptr_eq(other, pod));
    }
    for (ordinal, pod) in create {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        create_claims(cx, set, spec, ordinal, name).await?;
        match cx.create(&pod).await {
            Ok(made) => pods.push(made),
            Err(error) => {
                let message = format!("Create Pod {name} in StatefulSet {parent} failed error: {error}");
                cx.event(EventType::Warning, "FailedCreate", &message);
                return Err(error.into());
            }
        }
        let message = format!("Create Pod {name} in StatefulSet {parent} successful");
        cx.event(EventType::Normal, "SuccessfulCreate", &message);
    }
    Ok(())
}

/// Creates the claims of an ordinal that do not exist. They outlive the set, unless its retention policy says otherwise.
async fn create_claims(
    cx: &Context<StatefulSet>,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    ordinal: i32,
    pod: &str,
) -> Result<(), Error> {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    let goes = policy.is_some_and(|policy| policy.when_deleted.as_deref() == Some("Delete"));
    let writer = if goes { cx.clone() } else { cx.unowned() };
    for (_, claim) in identity::claims(set, spec, ordinal) {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        match writer.create::<PersistentVolumeClaim>(&claim).await {
            Ok(_) => {
                let message =
                    format!("Create Claim {name} Pod {pod} in StatefulSet {} success", cx.key().name());
                cx.event(EventType::Normal, "SuccessfulCreate", &message);
            }
            Err(WriteError::Api { source, .. }) if source.class() == Class::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
