//! What a Job does next: a pure function of it, its Pods and the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::per_index::{self, Failures};
use super::tally::{self, Rest, Tally, is_indexed, replaces_ended_only, shown, valid_index};
use super::verdict::{FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, Verdict, set, verdict};
use super::{backoff, verdict};
use crate::pods::rank::cheapest;
use crate::pods::{is_active, is_ready, is_terminating, since_then};

/// The most Pods that are created in one pass.
const BURST: usize = 500;

/// A Pod to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewPod {
    /// Its index, in a Job with indexes.
    pub(super) index: Option<i32>,
    /// The failures of its index, if these have a limit.
    pub(super) failures: Option<Failures>,
}

/// What a Job does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<NewPod>,
    /// Active Pods that go.
    pub(super) delete: Vec<Arc<Pod>>,
    /// Whether the Pods that go are counted first.
    pub(super) counts_deleted: bool,
    /// Whether the Job has ended, or is about to.
    pub(super) verdict: Option<Verdict>,
    /// Pods that lose their finalizer when the status is written.
    pub(super) release: Vec<Arc<Pod>>,
    /// The status, if all of this is done.
    pub(super) status: JobStatus,
    /// Whether the Job has just been suspended (true) or resumed (false).
    pub(super) suspended: Option<bool>,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

impl Plan {
    fn wake_after(&mut self, delay: Duration) {
        self.wake = Some(self.wake.map_or(delay, |wake| wake.min(delay)));
    }
}

/// Decides what a Job that has not ended does; `pods` are those that it controls.
pub(super) fn plan(job: &Job, pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let Some(spec) = &job.spec else { return Plan::default() };
    let mut plan = Plan { status: job.status.clone().unwrap_or_default(), ..Plan::default() };
    let is_suspended = spec.suspend == Some(true);
    let is_going = job.metadata.deletion_timestamp.is_some();
    if !is_suspended && plan.status.start_time.is_none() {
        plan.status.start_time = Some(Time(now));
    }
    let tally = Tally::of(job, pods);
    let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    plan.verdict = verdict(job, &plan.status, &tally, &active, now);
    if plan.verdict.is_none()
        && !is_suspended
        && let Some(left) = verdict::time_left(spec, &plan.status, now)
    {
        plan.wake_after(left);
    }
    match &plan.verdict {
        Some(_) => {
            plan.delete.clone_from(&active);
            plan.counts_deleted = true;
        }
        None if is_going => {}
        None if is_suspended => plan.delete.clone_from(&active),
        None => manage(&mut plan, job, spec, pods, &active, &tally, now),
    }
    let left = active.len() - plan.delete.len() + plan.create.len();
    if plan.verdict.is_none() && left == 0 && is_complete(spec, &tally) {
        plan.verdict = Some(Verdict::completions_reached());
    }
    let is_to_suspend = plan.verdict.is_none() && !is_going;
    plan.suspended = is_to_suspend.then(|| note_suspension(&mut plan.status, is_suspended, now)).flatten();
    let rest = match &plan.verdict {
        _ if is_going => Rest::IsLetGo,
        Some(verdict) if verdict.of == FAILED => Rest::Fails,
        Some(_) => Rest::IsLetGo,
        None => Rest::GoesOn,
    };
    plan.release = tally::list(job, pods, rest, &mut plan.status);
    if per_index::limit(job).is_some() {
        plan.status.failed_indexes = Some(tally.failed_indexes.to_string());
    }
    if let Some(verdict) = &plan.verdict {
        let target = if verdict.of == FAILED { FAILURE_TARGET } else { SUCCESS_CRITERIA_MET };
        set(&mut plan.status, target, "True", &verdict.reason, &verdict.message, now);
    }
    plan
}

/// Whether as many Pods have succeeded as were asked for: any one, where no number was.
fn is_complete(spec: &JobSpec, tally: &Tally) -> bool {
    match spec.completions {
        None => tally.succeeded > 0,
        Some(completions) => tally.succeeded >= completions,
    }
}

/// Notes in the conditions whether the Job is suspended; returns that if it is news.
fn note_suspension(status: &mut JobStatus, is_suspended: bool, now: Timestamp) -> Option<bool> {
    let known = verdict::condition(status, "Suspended").map(|condition| condition.status == "True");
    match (is_suspended, known) {
        (true, Some(true)) | (false, None | Some(false)) => return None,
        (true, _) => set(status, "Suspended", "True", "JobSuspended", "Job suspended", now),
        (false, _) => {
            set(status, "Suspended", "False", "JobResumed", "Job resumed", now);
            // The deadline begins anew.
            status.start_time = Some(Time(now));
        }
    }
    Some(is_suspended)
}

/// Brings the number of active Pods to what is wanted.
fn manage(
    plan: &mut Plan,
    job: &Job,
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    active: &[Arc<Pod>],
    tally: &Tally,
    now: Timestamp,
) {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    let wanted = match spec.completions {
        None if tally.succeeded > 0 => count(active.len()).min(parallelism),
        None => parallelism,
        Some(completions) => (completions - tally.succeeded).clamp(0, parallelism),
    };
    let surplus = usize::try_from(count(active.len()) - wanted).unwrap_or_default();
    plan.delete = removable(job, tally, active, surplus, now);
    let left = count(active.len() - plan.delete.len());
    let going = pods.iter().filter(|pod| replaces_ended_only(job) && is_terminating(pod));
    let missing = usize::try_from(wanted - left - count(going.count())).unwrap_or_default().min(BURST);
    if missing == 0 || !plan.delete.is_empty() {
        return;
    }
    if per_index::limit(job).is_some() {
        return replace_indexes(plan, job, pods, tally, missing, now);
    }
    let delay = backoff::left(job, pods, now);
    if !delay.is_zero() {
        return plan.wake_after(delay);
    }
    plan.create = match is_indexed(job) {
        false => vec![NewPod::default(); missing],
        true => {
            let free = free_indexes(job, pods, tally).take(missing);
            free.map(|index| NewPod { index: Some(index), failures: None }).collect()
        }
    };
}

/// Creates Pods for indexes, each when the delay after its own failures is over.
fn replace_indexes(
    plan: &mut Plan,
    job: &Job,
    pods: &[Arc<Pod>],
    tally: &Tally,
    missing: usize,
    now: Timestamp,
) {
    let latest = per_index::latest(job, pods);
    for index in free_indexes(job, pods, tally) {
        if plan.create.len() == missing {
            break;
        }
        let known = latest.get(&index);
        let delay =
            known.map_or(Duration::ZERO, |(failures, pod)| backoff::left_of_index(*failures, pod, now));
        if delay.is_zero() {
            let failures = known.map(|(failures, _)| *failures).unwrap_or_default();
            plan.create.push(NewPod { index: Some(index), failures: Some(failures) });
        } else {
            plan.wake_after(delay);
        }
    }
}

/// The indexes that need a Pod, the lowest first.
fn free_indexes<'a>(job: &'a Job, pods: &[Arc<Pod>], tally: &'a Tally) -> impl Iterator<Item = i32> + 'a {
    let is_there = |pod: &&Arc<Pod>| is_active(pod) || (replaces_ended_only(job) && is_terminating(pod));
    let taken: BTreeSet<_> = pods.iter().filter(is_there).filter_map(|pod| valid_index(job, pod)).collect();
    let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or_default();
    (0..completions).filter(move |index| {
        !taken.contains(index) && !tally.completed.contains(*index) && !tally.failed_indexes.contains(*index)
    })
}

/// The active Pods that go: those whose index is done, taken or unknown, and `surplus` in all.
fn removable(job: &Job, tally: &Tally, active: &[Arc<Pod>], surplus: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    if !is_indexed(job) {
        return cheapest(active, surplus, now);
    }
    let mut taken = BTreeSet::new();
    let ranked = cheapest(active, active.len(), now);
    // Of two Pods of one index the costlier one stays.
    let (useful, mut removed): (Vec<_>, Vec<_>) = ranked.into_iter().rev().partition(|pod| {
        let index = valid_index(job, pod).filter(|index| !tally.completed.contains(*index));
        index.is_some_and(|index| taken.insert(index))
    });
    let more = surplus.saturating_sub(removed.len());
    removed.extend(cheapest(&useful, more, now));
    removed
}

/// Completes the status that is written before the finalizers go: the numbers of Pods that there are now.
pub(super) fn count_pods(status: &mut JobStatus, before: &[Arc<Pod>], deleted: &[Arc<Pod>], created: usize) {
    let is_deleted = |pod: &Arc<Pod>| deleted.iter().any(|other| Arc::ptr_eq(pod, other));
    let count = |test: &dyn Fn(&Arc<Pod>) -> bool| {
        i32::try_from(before.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
    };
    let created = i32::try_from(created).unwrap_or(i32::MAX);
    status.active = shown(count(&|pod| is_active(pod) && !is_deleted(pod)) + created);
    status.ready = Some(count(&|pod| is_active(pod) && !is_deleted(pod) && is_ready(pod)));
    status.terminating = Some(count(&|pod| is_terminating(pod) || is_deleted(pod)));
}

/// Ends a Job whose verdict is known, once nothing of it runs and everything is counted; returns whether it has ended.
pub(super) fn end(status: &mut JobStatus, verdict: &Verdict, now: Timestamp) -> bool {
    let is_still = |count: Option<i32>| count.unwrap_or_default() > 0;
    if is_still(status.active) || is_still(status.terminating) || !tally::is_settled(status) {
        return false;
    }
    set(status, verdict.of, "True", &verdict.reason, &verdict.message, now);
    if verdict.of != FAILED {
        status.completion_time = Some(Time(now));
    }
    true
}

/// The time after which a Job that has ended is deleted; none if it stays.
pub(super) fn time_to_live(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let ended = verdict::ended(job.status.as_ref()?)?.last_transition_time.as_ref()?.0;
    let ttl = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    Some(ttl.saturating_sub(since_then(ended, now)))
}
