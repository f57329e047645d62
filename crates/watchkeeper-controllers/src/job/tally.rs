//! The Pods of a Job that have ended: each is counted once, however often the controller restarts.

// A Pod keeps the tracking finalizer until its uid is in the status. It is counted when its finalizer is gone, and only then leaves
// the list of uids: at any moment, each ended Pod has its finalizer, or its uid is listed, or it is counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;

use super::indexes::Indexes;
use super::per_index;
use super::policy::{Failure, judge};
use crate::pods::phase;

/// The finalizer of Pods that are not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The label and annotation with the index of a Pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The most Pods that are listed as uncounted at a time.
const MOST_UNCOUNTED: usize = 500;

/// What the Pods of a Job amount to, counted or not.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// The indexes that have succeeded.
    pub(super) completed: Indexes,
    /// The indexes that have failed for good.
    pub(super) failed_indexes: Indexes,
    /// Why a failed Pod makes the Job fail, in words.
    pub(super) fail_job: Option<String>,
}

impl Tally {
    pub(super) fn of(job: &Job, pods: &[Arc<Pod>]) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let listed = Listed::of(&status);
        let is_new = |pod: &&Arc<Pod>| is_tracked(pod) && !listed.has(uid(pod));
        let succeeded = pods.iter().filter(|pod| phase(pod) == "Succeeded");
        let mut tally = Self {
            failed: status.failed.unwrap_or_default() + count(listed.failed.len()),
            completed: completed(job, &status),
            failed_indexes: per_index::failed(job, &status, pods),
            ..Self::default()
        };
        if is_indexed(job) {
            let indexes = succeeded.filter(|pod| is_tracked(pod)).filter_map(|pod| valid_index(job, pod));
            tally.completed = tally.completed.with(indexes);
            tally.succeeded = tally.completed.count();
        } else {
            let counted = status.succeeded.unwrap_or_default() + count(listed.succeeded.len());
            tally.succeeded = counted + count(succeeded.filter(is_new).count());
        }
        for pod in pods.iter().filter(is_new).filter(|pod| is_failed(job, pod)) {
            match judge(job, pod) {
                Failure::Ignore => {}
                Failure::Count | Failure::FailIndex => tally.failed += 1,
                Failure::FailJob(why) => {
                    tally.failed += 1;
                    tally.fail_job = tally.fail_job.or(Some(why));
                }
            }
        }
        tally
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn completed(job: &Job, status: &JobStatus) -> Indexes {
    let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or_default();
    Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions)
}

/// The uids that a status lists as uncounted.
struct Listed {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Listed {
    fn of(status: &JobStatus) -> Self {
        let listed = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let set = |uids: Option<Vec<String>>| uids.unwrap_or_default().into_iter().collect();
        Self { succeeded: set(listed.succeeded), failed: set(listed.failed) }
    }

    fn has(&self, uid: &str) -> bool {
        self.succeeded.contains(uid) || self.failed.contains(uid)
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether a Pod has the tracking finalizer.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

/// Whether each Pod of a Job has an index.
pub(super) fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.completion_mode.as_deref() == Some("Indexed"))
}

/// The index of a Pod; none if it has none, or one that its Job does not have.
pub(super) fn valid_index(job: &Job, pod: &Pod) -> Option<i32> {
    let completions = job.spec.as_ref()?.completions?;
    let index: i32 = pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()?;
    (0..completions).contains(&index).then_some(index)
}

/// Whether only Pods that have ended are replaced, and not those that are being deleted.
pub(super) fn replaces_ended_only(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| {
        spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
    })
}

/// Whether a Pod counts as failed.
pub(super) fn is_failed(job: &Job, pod: &Pod) -> bool {
    let is_going = pod.metadata.deletion_timestamp.is_some() && phase(pod) != "Succeeded";
    phase(pod) == "Failed" || (is_going && !replaces_ended_only(job))
}

/// How the rest of the Pods is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The Job goes on, and so do they.
    GoesOn,
    /// The Job fails: they count as failed.
    Fails,
    /// The Job is going, or has succeeded: they are let go uncounted.
    IsLetGo,
}

/// Lists ended Pods in `status`. Returns the Pods that may lose their finalizer when that is written.
pub(super) fn list(job: &Job, pods: &[Arc<Pod>], rest: Rest, status: &mut JobStatus) -> Vec<Arc<Pod>> {
    let there: BTreeSet<_> = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
    count_where(status, |uid| !there.contains(uid));
    let mut listed = Listed::of(status);
    let (mut completed, mut release) = (completed(job, status), Vec::new());
    let held = if rest == Rest::GoesOn { per_index::held(job, pods) } else { BTreeSet::new() };
    for pod in pods.iter().filter(|pod| is_tracked(pod) && !held.contains(uid(pod))) {
        let ended = phase(pod) == "Succeeded" || is_failed(job, pod);
        if listed.has(uid(pod)) {
            release.push(pod.clone());
        } else if !ended && rest == Rest::GoesOn {
        } else if listed.succeeded.len() + listed.failed.len() >= MOST_UNCOUNTED {
            break;
        } else {
            release.push(pod.clone());
            let index = valid_index(job, pod);
            let is_counted = !is_indexed(job) || index.is_some();
            if phase(pod) == "Succeeded" {
                match is_indexed(job) {
                    true => completed = completed.with(index),
                    false => drop(listed.succeeded.insert(uid(pod).to_owned())),
                }
            } else if is_counted && (ended || rest == Rest::Fails) && judge(job, pod) != Failure::Ignore {
                listed.failed.insert(uid(pod).to_owned());
            }
        }
    }
    if is_indexed(job) {
        status.completed_indexes = completed.shown();
        status.succeeded = shown(completed.count());
    }
    show(status, &listed);
    release
}

/// Counts the listed Pods that have lost their finalizer.
pub(super) fn count_released(status: &mut JobStatus, released: &[Arc<Pod>]) {
    let uids: BTreeSet<_> = released.iter().map(|pod| uid(pod)).collect();
    count_where(status, |uid| uids.contains(uid));
}

fn count_where(status: &mut JobStatus, is_counted: impl Fn(&str) -> bool) {
    let mut listed = Listed::of(status);
    let take = |uids: &mut BTreeSet<String>| {
        let before = uids.len();
        uids.retain(|uid| !is_counted(uid));
        count(before - uids.len())
    };
    let (succeeded, failed) = (take(&mut listed.succeeded), take(&mut listed.failed));
    status.succeeded = shown(status.succeeded.unwrap_or_default() + succeeded);
    status.failed = shown(status.failed.unwrap_or_default() + failed);
    show(status, &listed);
}

fn show(status: &mut JobStatus, listed: &Listed) {
    let uids = |uids: &BTreeSet<String>| (!uids.is_empty()).then(|| uids.iter().cloned().collect());
    let (succeeded, failed) = (uids(&listed.succeeded), uids(&listed.failed));
    status.uncounted_terminated_pods = Some(UncountedTerminatedPods { failed, succeeded });
}

/// Whether no Pod waits to be counted.
pub(super) fn is_settled(status: &JobStatus) -> bool {
    let listed = Listed::of(status);
    listed.succeeded.is_empty() && listed.failed.is_empty()
}

/// A count in a status, which leaves out zeros.
pub(super) fn shown(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
