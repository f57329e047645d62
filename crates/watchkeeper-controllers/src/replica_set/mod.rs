//! The ReplicaSet controller: keeps as many Pods as a ReplicaSet asks for.

// `plan.rs` decides, and this file reads and writes.

mod plan;

use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube_core::SelectorExt;
use watchkeeper::controller::{
    Action, Context, Controller, Error, IndexKey, Manager, SetupError, View, Watch, WriteError,
};
use watchkeeper::record::EventType;
use watchkeeper::wire::Class;
use watchkeeper::{Kind, Object, ObjectName};

use self::plan::{Failure, Scale, Status};
use crate::family::{Family, claim_all, selector};
use crate::now;
use crate::pods::template::new_pod;

const NAMESPACE: IndexKey<ReplicaSet> = IndexKey::field("in-namespace", "metadata.namespace");
/// The number of ReplicaSets that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the ReplicaSet controller with `manager`.
///
/// It creates and deletes Pods until as many are active as the ReplicaSet asks for, adopts those that its selector matches and
/// nothing controls, releases those that it does not match any more, and writes the status.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = Family::of(manager);
    Controller::<ReplicaSet>::new(manager)
        .component("replicaset-controller")
        .index(&NAMESPACE)
        .owns(Watch::<Pod>::new())
        .watches(Watch::<Pod>::new(), adopters)
        .workers(WORKERS)
        .reconcile(move |set, cx| reconcile(set, cx, pods.clone()))
}

/// The sets that may adopt a Pod that nothing controls.
fn adopters(pod: &Object<Pod>, sets: &View<'_, ReplicaSet>) -> Vec<ObjectName> {
    if pod.controller().is_some() {
        return Vec::new();
    }
    let Some(namespace) = pod.namespace() else { return Vec::new() };
    let labels = pod.labels().to_map();
    let selects = |key: &ObjectName| {
        let set = sets.get(key).and_then(|set| set.get().ok());
        let selector = set.as_ref().and_then(|set| selector(&set.spec.as_ref()?.selector));
        selector.is_some_and(|selector| selector.matches(&labels))
    };
    let mut keys = sets.keys_in(&NAMESPACE, Some(namespace), namespace);
    keys.retain(selects);
    keys
}

async fn reconcile(
    set: Arc<ReplicaSet>,
    cx: Context<ReplicaSet>,
    pods: Family<Pod>,
) -> Result<Action, Error> {
    let Some(spec) = &set.spec else { return Ok(Action::done()) };
    let Some(selector) = selector(&spec.selector) else { return Ok(Action::done()) };
    let mut pods = claim_all::<ReplicaSet, Pod>(&cx, &set.metadata, &selector, &pods).await?;
    let now = now(&cx);
    let managed = match plan::scale(&set, &pods, now) {
        Scale::Keep => Ok(()),
        Scale::Create(count) => {
            let prefix = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
            let template = spec.template.clone().unwrap_or_default();
            create_pods(&cx, &template, &prefix, count, &mut pods).await
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

/// A failure for the status, and what becomes of the reconcile.
type Failed = (Failure, Error);

/// Creates Pods in batches that grow as long as the server accepts them; stops at the first batch with a failure.
async fn create_pods<K: Kind>(
    cx: &Context<K>,
    template: &PodTemplateSpec,
    prefix: &str,
    count: usize,
    pods: &mut Vec<Arc<Pod>>,
) -> Result<(), Failed> {
    let (mut left, mut batch) = (count, 1);
    while left > 0 {
        let size = batch.min(left);
        let made = join_all((0..size).map(|_| {
            let pod = new_pod(template, prefix, &cx.env().generator);
            async move { cx.create(&pod).await }
        }));
        let mut failed = None;
        for result in made.await {
            match result {
                Ok(pod) => {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    cx.event(EventType::Normal, "SuccessfulCreate", &format!("Created pod: {name}"));
                    pods.push(pod);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(failure(cx, "FailedCreate", "creating", error));
        }
        (left, batch) = (left - size, batch * 2);
    }
    Ok(())
}

/// Deletes Pods, and takes them out of `pods`.
async fn delete_pods<K: Kind>(
    cx: &Context<K>,
    surplus: &[Arc<Pod>],
    pods: &mut Vec<Arc<Pod>>,
) -> Result<(), Failed> {
    let names = surplus.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default());
    let deleted = join_all(names.map(|name| async move {
        let outcome = cx.delete::<Pod>(&name).await;
        (name, outcome)
    }));
    let mut failed = None;
    for (name, outcome) in deleted.await {
        match outcome {
            Ok(was_there) => {
                if was_there {
                    cx.event(EventType::Normal, "SuccessfulDelete", &format!("Deleted pod: {name}"));
                }
                pods.retain(|pod| pod.metadata.name.as_deref() != Some(&name));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) => Err(failure(cx, "FailedDelete", "deleting", error)),
        None => Ok(()),
    }
}

fn failure<K: Kind>(cx: &Context<K>, reason: &'static str, doing: &str, error: WriteError) -> Failed {
    let message = match &error {
        WriteError::Api { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    // A name that is taken, and a lost answer, say nothing about what the user asked for.
    let is_news = !matches!(&error, WriteError::Api { source, .. }
        if matches!(source.class(), Class::AlreadyExists | Class::Conflict));
    if is_news {
        cx.event(EventType::Warning, reason, &format!("Error {doing}: {message}"));
    }
    (Failure { reason, message }, error.into())
}

async fn write_status(
    cx: &Context<ReplicaSet>,
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> Result<Action, Error> {
    let mut wake = None;
    cx.status_as::<Status>(|status| {
        let (written, next) = plan::status(set, pods, status, failure, now);
        (*status, wake) = (written, next);
    })
    .await?;
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}
