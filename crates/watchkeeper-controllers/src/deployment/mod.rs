//! The Deployment controller: rolls out templates by scaling one ReplicaSet per template.

// `limits.rs`, `template.rs` and `sets.rs` say what there is, `rolling.rs`, `status.rs` and `plan.rs` decide, and this file reads and
// writes.

mod limits;
mod plan;
mod rolling;
mod sets;
mod status;
mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube_core::Selector;
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::controller::{
    Action, Context, Controller, Error, Manager, SetupError, View, Watch, WriteError,
};
use watchkeeper::record::EventType;
use watchkeeper::wire::Class;
use watchkeeper::{Object, ObjectName, SharedInformer};

use self::plan::{Plan, World, plan};
use self::sets::Set;
use self::status::Status;
use crate::family::{Family, Selecting, adopters, claim_all, controller, in_namespace, selector};
use crate::now;
use crate::pods::has_ended;
use crate::replica_set;

/// The number of Deployments that are reconciled at the same time.
const WORKERS: usize = 5;

/// The spec of a Deployment. It is not optional in all versions of the API.
pub(crate) fn spec(deployment: &Deployment) -> Option<&DeploymentSpec> {
    Option::<&DeploymentSpec>::from(&deployment.spec)
}

/// Registers the Deployment controller with `manager`.
///
/// It keeps a ReplicaSet for each template that a Deployment has had, within its `revisionHistoryLimit`, and scales them so that
/// the Pods of the current template replace the others. It needs a ReplicaSet controller, such as [`replica_set`].
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let sets = Family::of(manager);
    let pods = Family::of(manager);
    let informer = manager.factory().informer::<ReplicaSet>();
    Controller::<Deployment>::new(manager)
        .component("deployment-controller")
        .index(&in_namespace())
        .owns(Watch::<ReplicaSet>::new())
        .watches(Watch::<ReplicaSet>::new(), adopters)
        // Updates of Pods show in the status of their set.
        .watches(Watch::<Pod>::new().when(|_, _| false), move |pod, deployments| {
            recreating(pod, &informer, deployments)
        })
        .workers(WORKERS)
        .reconcile(move |deployment, cx| reconcile(deployment, cx, sets.clone(), pods.clone()))
}

impl Selecting for Deployment {
    fn selector(&self) -> Option<Selector> {
        selector(&spec(self)?.selector)
    }
}

/// The Deployment that waits until its old Pods have gone, if the Pod is one of its.
fn recreating(
    pod: &Object<Pod>,
    sets: &SharedInformer<ReplicaSet>,
    deployments: &View<'_, Deployment>,
) -> Vec<ObjectName> {
    let owner = pod.controller_of::<ReplicaSet>().and_then(|set| sets.indexer().get(&set));
    let Some(key) = owner.and_then(|set| set.controller_of::<Deployment>()) else { return Vec::new() };
    let deployment = deployments.get(&key).and_then(|deployment| deployment.get().ok());
    let is_recreate = deployment.is_some_and(|deployment| limits::Limits::of(&deployment).is_recreate);
    if is_recreate { vec![key] } else { Vec::new() }
}

async fn reconcile(
    deployment: Arc<Deployment>,
    cx: Context<Deployment>,
    sets: Family<ReplicaSet>,
    pods: Family<Pod>,
) -> Result<Action, Error> {
    if spec(&deployment).is_none() {
        return Ok(Action::done());
    }
    let Some(selector) = deployment.selector() else {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        return Err(Error::terminal("SelectingAll", message));
    };
    let sets = claim_all::<Deployment, ReplicaSet>(&cx, &deployment.metadata, &selector, &sets).await?;
    let sets: Vec<_> = sets.into_iter().map(Set::new).collect();
    let runs = |set: &Set| {
        let uid = set.object.metadata.uid.as_deref().unwrap_or_default();
        !set.is_of(&deployment) && pods.children(uid).iter().any(|pod| !has_ended(pod))
    };
    let old_pods_run = sets.iter().any(runs);
    let status = status_of(&deployment)?;
    let world = World { deployment: &deployment, sets, old_pods_run, status, now: now(&cx) };
    carry_out(&cx, &deployment, plan(world)).await
}

fn status_of(deployment: &Deployment) -> Result<Status, Error> {
    let status = deployment.status.as_ref().map(serde_json::to_value).transpose()?;
    Ok(status.map(serde_json::from_value).transpose()?.unwrap_or_default())
}

async fn carry_out(cx: &Context<Deployment>, deployment: &Deployment, plan: Plan) -> Result<Action, Error> {
    let Plan { create, change, delete, revision, status, wake } = plan;
    if let Some(set) = create {
        create_set(cx, deployment, &set).await?;
    }
    for set in change {
        change_set(cx, &set).await?;
    }
    for name in delete {
        cx.delete::<ReplicaSet>(&name).await?;
    }
    cx.status_as::<Status>(|current| *current = status).await?;
    if let Some(revision) = revision {
        let patch = json!({"metadata": {"annotations": {plan::revision_annotation(): revision}}});
        let name = cx.key().name().to_owned();
        cx.patch::<Deployment, _>(&name, &Patch::Merge(patch)).await?;
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

async fn create_set(
    cx: &Context<Deployment>,
    deployment: &Deployment,
    set: &ReplicaSet,
) -> Result<(), Error> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let error = match cx.create(set).await {
        Ok(made) => {
            let replicas = replica_set::spec(&made).and_then(|spec| spec.replicas).unwrap_or_default();
            if replicas > 0 {
                let message = format!("Scaled up replica set {name} from 0 to {replicas}");
                cx.event(EventType::Normal, "ScalingReplicaSet", &message);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    let WriteError::Api { source, .. } = &error else { return Err(error.into()) };
    if source.class() == Class::AlreadyExists {
        let key = cx.key().sibling(name);
        let other = cx.live().get::<ReplicaSet>(&key).await?;
        let uid = deployment.metadata.uid.as_deref();
        let is_ours = |other: &ReplicaSet| {
            controller(&other.metadata).map(|owner| owner.uid.as_str()) == uid
                && Set::new(Arc::new(other.clone())).is_of(deployment)
        };
        if other.is_some_and(|other| !is_ours(&other)) {
            cx.status_as::<Status>(plan::after_collision).await?;
        }
    } else if matches!(source.class(), Class::Forbidden | Class::Invalid) {
        let message = source.to_string();
        let now = now(cx);
        cx.status_as::<Status>(|status| plan::after_failed_create(status, name, &message, now)).await?;
        let message = format!("Failed to create new replica set \"{name}\": {message}");
        cx.event(EventType::Warning, "ReplicaSetCreateError", &message);
    }
    Err(error.into())
}

async fn change_set(cx: &Context<Deployment>, set: &Set) -> Result<(), Error> {
    let (name, before) = (set.name(), set.replicas_before());
    let patch = json!({
        "metadata": {
            "resourceVersion": set.object.metadata.resource_version,
            "annotations": set.annotations,
        },
        "spec": {"replicas": set.replicas, "minReadySeconds": set.min_ready_seconds},
    });
    cx.patch::<ReplicaSet, _>(name, &Patch::Merge(patch)).await?;
    let after = set.replicas;
    let way = if after > before { "up" } else { "down" };
    if after != before {
        let message = format!("Scaled {way} replica set {name} from {before} to {after}");
        cx.event(EventType::Normal, "ScalingReplicaSet", &message);
    }
    Ok(())
}
