//! Pods that wait to be counted by a Job that does not exist any more.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::{Object, ObjectName};

use super::release;
use super::tally::{TRACKING, is_tracked};
use crate::family::{Family, controller};

/// The kind by which Pods name their Job.
const JOB: &str = "Job";

/// Registers the controller that takes the tracking finalizer off Pods whose Job is gone.
pub(super) fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = Family::<Pod>::of(manager);
    Controller::<Pod>::new(manager)
        .named("job-tracking")
        .component("job-controller")
        .when(|_, new| is_waiting(new))
        .watches(Watch::<Job>::new().when(|_, _| false), move |job, _| tracked(job, &pods))
        .reconcile(reconcile)
}

fn is_waiting(pod: &Object<Pod>) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == TRACKING)
}

/// The Pods of a Job that wait to be counted.
fn tracked(job: &Object<Job>, pods: &Family<Pod>) -> Vec<ObjectName> {
    let pods = pods.children(job.uid());
    let waiting = pods.iter().filter(|pod| is_tracked(pod));
    waiting.filter_map(|pod| Some(job.key().sibling(pod.metadata.name.as_deref()?))).collect()
}

async fn reconcile(pod: Arc<Pod>, cx: Context<Pod>) -> Result<Action, Error> {
    if !is_tracked(&pod) {
        return Ok(Action::done());
    }
    if let Some(owner) = controller(&pod.metadata).filter(|owner| owner.kind == JOB) {
        let key = cx.key().sibling(&owner.name);
        let is_it = |job: &Job| job.metadata.uid.as_ref() == Some(&owner.uid);
        // The cache of Jobs may not have one that is as new as its Pod.
        if cx.get_at::<Job>(&key)?.is_some_and(|job| is_it(&job))
            || cx.live().get::<Job>(&key).await?.is_some_and(|job| is_it(&job))
        {
            return Ok(Action::done());
        }
    }
    release(&cx, &[pod]).await?;
    Ok(Action::done())
}
