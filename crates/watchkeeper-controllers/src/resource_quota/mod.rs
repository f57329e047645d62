//! The ResourceQuota controller: how much of each quota is used.

// `plan.rs` decides, `census.rs` has the objects that count, and this file reads and writes.

mod census;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Secret, Service,
};
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, View, Watch};
use watchkeeper::{Kind, Object, ObjectName};

use self::census::Census;
use self::plan::{Status, is_same};
use crate::family::in_namespace;
use crate::now;
use crate::pods::has_ended;

/// The delay before objects are counted again that are not cached.
const POLL: Duration = Duration::from_secs(10);
/// The number of quotas that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the ResourceQuota controller with `manager`.
///
/// It writes the status of quotas: the limits that are in force, and what is used of them. The server's admission adds what new objects
/// use; the controller counts again when objects change or go. Objects of kinds that it does not know are counted every 10 s.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let census = Arc::new(Census::of(manager));
    Controller::<ResourceQuota>::new(manager)
        .component("resourcequota-controller")
        .index(&in_namespace())
        .watches(Watch::<Pod>::new().when(changes_usage), quotas_of)
        .watches(Watch::<Service>::new(), quotas_of)
        .watches(Watch::<PersistentVolumeClaim>::new(), quotas_of)
        .watches(counted::<ResourceQuota>(), quotas_of)
        .watches(counted::<ConfigMap>(), quotas_of)
        .watches(counted::<Secret>(), quotas_of)
        .watches(counted::<ReplicationController>(), quotas_of)
        .watches(counted::<Deployment>(), quotas_of)
        .watches(counted::<ReplicaSet>(), quotas_of)
        .watches(counted::<StatefulSet>(), quotas_of)
        .watches(counted::<DaemonSet>(), quotas_of)
        .watches(counted::<Job>(), quotas_of)
        .watches(counted::<CronJob>(), quotas_of)
        .workers(WORKERS)
        .reconcile(move |quota, cx| reconcile(quota, cx, census.clone()))
}

/// A kind of which only the number of objects counts.
fn counted<W: Kind<DynamicType: Default>>() -> Watch<W> {
    Watch::new().when(|_, _| false)
}

fn changes_usage(old: &Object<Pod>, new: &Object<Pod>) -> bool {
    let state =
        |pod: &Object<Pod>| (pod.generation(), pod.is_deleting(), pod.get().is_ok_and(|pod| has_ended(&pod)));
    state(old) != state(new)
}

/// The quotas in the namespace of an object.
fn quotas_of<W: Kind>(object: &Object<W>, quotas: &View<'_, ResourceQuota>) -> Vec<ObjectName> {
    let Some(namespace) = object.namespace() else { return Vec::new() };
    quotas.keys_in(&in_namespace(), Some(namespace), namespace)
}

async fn reconcile(
    quota: Arc<ResourceQuota>,
    cx: Context<ResourceQuota>,
    census: Arc<Census>,
) -> Result<Action, Error> {
    let namespace = cx.key().namespace().unwrap_or_default();
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let is_polled = hard.keys().any(|name| census.is_apart(name));
    let known: Status = serde_json::to_value(&quota.status)
        .and_then(serde_json::from_value::<Option<Status>>)
        .unwrap_or_default()
        .unwrap_or_default();
    let cached = plan::status(&quota, &census.cached(namespace, hard.keys()), now(&cx));
    if is_polled || !is_same(&cached, &known) {
        // The caches may lag behind what admission has added to this version of the quota. The server has all of that, and what it
        // adds later is a conflict.
        let objects = census.live(namespace, hard.keys()).await?;
        let counted = plan::status(&quota, &objects, now(&cx));
        if !is_same(&counted, &known) {
            cx.status_as::<Status>(|status| *status = counted).await?;
        }
    }
    Ok(if is_polled { Action::requeue_after(POLL) } else { Action::done() })
}
