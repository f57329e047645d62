//! The ReplicaSet controller: keeps as many Pods as a ReplicaSet asks for.

// `plan.rs` decides, and this file reads and writes.

mod plan;

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use kube_core::Selector;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};

use self::plan::{Scale, Status};
use crate::family::{Family, Selecting, adopters, claim_all, in_namespace, selector};
use crate::now;
use crate::pods::change::{Failure, create_pods, delete_pods};
use crate::pods::template::new_pod;

/// The number of ReplicaSets that are reconciled at the same time.
const WORKERS: usize = 5;

/// The spec of a ReplicaSet. It is not optional in all versions of the API.
pub(crate) fn spec(set: &ReplicaSet) -> Option<&ReplicaSetSpec> {
    Option::<&ReplicaSetSpec>::from(&set.spec)
}

/// Registers the ReplicaSet controller with `manager`.
///
/// It creates and deletes Pods until as many are active as the ReplicaSet asks for, adopts those that its selector matches and
/// nothing controls, releases those that it does not match any more, and writes the status.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    register_as::<ReplicaSet>(manager, "replicaset-controller")
}

/// A kind that keeps a number of Pods.
pub(crate) trait Replicated: Selecting {
    /// The object as a ReplicaSet.
    fn as_set(&self) -> Cow<'_, ReplicaSet>;

    /// Whether the status says how many Pods are being deleted.
    const COUNTS_TERMINATING: bool;
}

impl Selecting for ReplicaSet {
    fn selector(&self) -> Option<Selector> {
        selector(&spec(self)?.selector)
    }
}

impl Replicated for ReplicaSet {
    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    const COUNTS_TERMINATING: bool = true;
}

/// Registers a controller for a kind that keeps a number of Pods.
pub(crate) fn register_as<K: Replicated>(manager: &mut Manager, component: &str) -> Result<(), SetupError> {
    let pods = Family::of(manager);
    Controller::<K>::new(manager)
        .component(component)
        .index(&in_namespace())
        .owns(Watch::<Pod>::new())
        .watches(Watch::<Pod>::new(), adopters)
        .workers(WORKERS)
        .reconcile(move |set, cx| reconcile(set, cx, pods.clone()))
}

async fn reconcile<K: Replicated>(of: Arc<K>, cx: Context<K>, pods: Family<Pod>) -> Result<Action, Error> {
    let set = of.as_set();
    let Some(spec) = spec(&set) else { return Ok(Action::done()) };
    let Some(selector) = of.selector() else { return Ok(Action::done()) };
    let mut pods = claim_all::<K, Pod>(&cx, &set.metadata, &selector, &pods).await?;
    let now = now(&cx);
    let managed = match plan::scale(&set, &pods, now) {
        Scale::Keep => Ok(()),
        Scale::Create(count) => {
            let prefix = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
            let template = spec.template.clone().unwrap_or_default();
            let new = (0..count).map(|_| new_pod(&template, &prefix, &cx.env().generator));
            create_pods(&cx, new.collect::<Vec<_>>(), &mut pods).await
        }
        Scale::Delete(surplus) => delete_pods(&cx, &surplus, &mut pods).await,
    };
    let wake =
        write_status(&cx, &set, &pods, managed.as_ref().err().map(|(failure, _)| failure), now).await?;
    if let Err((_, error)) = managed {
        return Err(error);
    }
    Ok(wake)
}

async fn write_status<K: Replicated>(
    cx: &Context<K>,
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> Result<Action, Error> {
    let mut wake = None;
    cx.status_as::<Status>(|status| {
        let (mut written, next) = plan::status(set, pods, status, failure, now);
        if !K::COUNTS_TERMINATING {
            written.terminating_replicas = None;
        }
        (*status, wake) = (written, next);
    })
    .await?;
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}
