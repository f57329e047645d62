//! The Job controller: runs Pods until enough of them have succeeded, or too many have failed.

// `tally.rs` counts Pods that have ended, `policy.rs`, `per_index.rs` and `backoff.rs` say what failures lead to, `verdict.rs` says whether
// the Job has ended, `plan.rs` puts it together, and this file reads and writes. `orphans.rs` lets go of Pods whose Job is gone.

mod backoff;
mod indexes;
mod orphans;
mod per_index;
mod plan;
mod policy;
mod tally;
mod template;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube_core::Selector;
use kube_core::params::DeleteParams;
use serde_json::json;
use watchkeeper::Kind;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;

use self::plan::{Plan, plan};
use self::tally::TRACKING;
use self::verdict::{FAILED, Verdict};
use crate::family::{Family, Selecting, adopters, claim_all_with, in_namespace, own, selector};
use crate::now;
use crate::pods::change::{create_pods, delete_pods};

/// The number of Jobs that are reconciled at the same time.
const WORKERS: usize = 5;
/// The controller that a Job names in `managedBy` if it means this one.
const MANAGER: &str = "kubernetes.io/job-controller";

/// Registers the Job controller with `manager`, and one that lets go of Pods whose Job is gone.
///
/// It runs Pods up to the parallelism of a Job, with indexes if asked for, replaces those that fail with backoff and within the
/// limits and policies of the Job, counts each Pod once, and deletes the Job when its time to live is over.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = Family::of(manager);
    Controller::<Job>::new(manager)
        .component("job-controller")
        .index(&in_namespace())
        .owns(Watch::<Pod>::new())
        .watches(Watch::<Pod>::new(), adopters)
        .workers(WORKERS)
        .reconcile(move |job, cx| reconcile(job, cx, pods.clone()))?;
    orphans::register(manager)
}

impl Selecting for Job {
    fn selector(&self) -> Option<Selector> {
        selector(self.spec.as_ref()?.selector.as_ref()?)
    }
}

/// The condition by which a Job has ended; none if it has not.
pub(crate) fn end_of(job: &Job) -> Option<&JobCondition> {
    verdict::ended(job.status.as_ref()?)
}

async fn reconcile(job: Arc<Job>, cx: Context<Job>, pods: Family<Pod>) -> Result<Action, Error> {
    let Some(spec) = &job.spec else { return Ok(Action::done()) };
    if spec.managed_by.as_ref().is_some_and(|manager| manager != MANAGER) {
        return Ok(Action::done());
    }
    if end_of(&job).is_some() {
        return clean_up(&cx, &job).await;
    }
    let Some(selector) = job.selector() else { return Ok(Action::done()) };
    let pods = claim_all_with::<Job, Pod>(&cx, &job.metadata, &selector, &pods, Some(TRACKING)).await?;
    carry_out(&cx, &job, plan(&job, &pods, now(&cx)), pods).await
}

/// Deletes a Job that has ended when its time is over. Its Pods, which it does not count any more, are let go.
async fn clean_up(cx: &Context<Job>, job: &Job) -> Result<Action, Error> {
    let pods = cx.owned::<Pod>()?.complete()?;
    release(cx, &pods.into_iter().filter(|pod| tally::is_tracked(pod)).collect::<Vec<_>>()).await?;
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    match plan::time_to_live(job, now(cx)) {
        None => Ok(Action::done()),
        Some(left) if !left.is_zero() => Ok(Action::requeue_after(left)),
        Some(_) => {
            let name = cx.key().name().to_owned();
            cx.delete_with::<Job>(&name, DeleteParams::foreground()).await?;
            Ok(Action::done())
        }
    }
}

async fn carry_out(cx: &Context<Job>, job: &Job, plan: Plan, pods: Vec<Arc<Pod>>) -> Result<Action, Error> {
    let Plan { create, delete, counts_deleted, verdict, release: counted, mut status, suspended, wake } =
        plan;
    if !counts_deleted {
        release(cx, &delete).await?;
    }
    let (mut left, mut created) = (pods.clone(), Vec::new());
    let deleted = delete_pods(cx, &delete, &mut left).await;
    let new = create.into_iter().map(|new| template::pod_of(job, new, &cx.env().generator));
    let made = create_pods(cx, new.collect::<Vec<_>>(), &mut created).await;
    let is_gone = |pod: &&Arc<Pod>| !left.iter().any(|other| Arc::ptr_eq(pod, other));
    let gone: Vec<_> = pods.iter().filter(is_gone).cloned().collect();
    plan::count_pods(&mut status, &pods, &gone, created.len());
    write(cx, &status).await?;
    note_suspension(cx, suspended);
    if let Err((_, error)) = deleted.and(made) {
        return Err(error);
    }
    release(cx, &counted).await?;
    tally::count_released(&mut status, &counted);
    let ended = verdict.filter(|verdict| plan::end(&mut status, verdict, now(cx)));
    write(cx, &status).await?;
    if let Some(verdict) = ended {
        note_end(cx, &verdict);
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

async fn write(cx: &Context<Job>, status: &JobStatus) -> Result<(), Error> {
    let status = status.clone();
    Ok(cx.status_as::<JobStatus>(|current| *current = status).await?)
}

/// Takes the tracking finalizer off Pods.
async fn release<K: Kind>(cx: &Context<K>, pods: &[Arc<Pod>]) -> Result<(), Error> {
    let released = join_all(pods.iter().filter(|pod| tally::is_tracked(pod)).map(|pod| async move {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let change = json!({"$deleteFromPrimitiveList/finalizers": [TRACKING]});
        own::<K, Pod>(cx, name, &pod.metadata, change).await
    }));
    for result in released.await {
        drop(result?);
    }
    Ok(())
}

fn note_suspension(cx: &Context<Job>, suspended: Option<bool>) {
    match suspended {
        Some(true) => cx.event(EventType::Normal, "Suspended", "Job suspended"),
        Some(false) => cx.event(EventType::Normal, "Resumed", "Job resumed"),
        None => {}
    }
}

fn note_end(cx: &Context<Job>, verdict: &Verdict) {
    if verdict.of == FAILED {
        cx.event(EventType::Warning, &verdict.reason, &verdict.message);
    } else {
        cx.event(EventType::Normal, "Completed", "Job completed");
    }
}
