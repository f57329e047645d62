//! Whether a Job has succeeded or failed, and the conditions that say so.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::policy::is_success;
use super::tally::{Tally, is_indexed};
use crate::pods::since_then;

pub(super) const COMPLETE: &str = "Complete";
pub(super) const FAILED: &str = "Failed";
/// The Job is about to fail: its Pods are stopped first.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
/// The Job is about to be complete.
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `Complete` or `Failed`.
    pub(super) of: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Verdict {
    fn new(of: &'static str, reason: &str, message: &str) -> Self {
        Self { of, reason: reason.to_owned(), message: message.to_owned() }
    }

    pub(super) fn completions_reached() -> Self {
        Self::new(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods")
    }
}

/// The condition of that type.
pub(super) fn condition<'a>(status: &'a JobStatus, of: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == of)
}

fn holds<'a>(status: &'a JobStatus, of: &str) -> Option<&'a JobCondition> {
    condition(status, of).filter(|condition| condition.status == "True")
}

/// The condition by which a Job has ended.
pub(super) fn ended(status: &JobStatus) -> Option<&JobCondition> {
    holds(status, COMPLETE).or_else(|| holds(status, FAILED))
}

/// Sets a condition, unless it has that status and reason already.
pub(super) fn set(
    status: &mut JobStatus,
    of: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let new = JobCondition {
        type_: of.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == of) {
        Some(known) if known.status == value && known.reason == new.reason => {}
        Some(known) => *known = new,
        None => conditions.push(new),
    }
}

/// The time until the Job has been active for too long; none if it may be active for ever.
pub(super) fn time_left(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let limit = u64::try_from(spec.active_deadline_seconds?).unwrap_or_default();
    let since = status.start_time.as_ref()?.0;
    Some(Duration::from_secs(limit).saturating_sub(since_then(since, now)))
}

/// Decides whether a Job has failed, or has succeeded by its success policy.
pub(super) fn verdict(
    job: &Job,
    status: &JobStatus,
    tally: &Tally,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<Verdict> {
    let spec = job.spec.as_ref()?;
    for (target, of) in [(FAILURE_TARGET, FAILED), (SUCCESS_CRITERIA_MET, COMPLETE)] {
        if let Some(known) = holds(status, target) {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            return Some(Verdict { of, reason: text(&known.reason), message: text(&known.message) });
        }
    }
    let fails = |reason: &str, message: &str| Some(Verdict::new(FAILED, reason, message));
    if let Some(why) = &tally.fail_job {
        return fails("PodFailurePolicy", why);
    }
    let limit = spec.backoff_limit.unwrap_or(6);
    if tally.failed > limit || has_restarted_too_often(spec, limit, active) {
        return fails("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if spec.suspend != Some(true) && time_left(spec, status, now).is_some_and(|left| left.is_zero()) {
        return fails("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    if is_indexed(job) {
        let (failed, completed) = (tally.failed_indexes.count(), tally.completed.count());
        if spec.max_failed_indexes.is_some_and(|most| failed > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return fails("MaxFailedIndexesExceeded", message);
        }
        if failed > 0 && failed + completed >= spec.completions.unwrap_or_default() {
            return fails("FailedIndexes", "Job has failed indexes");
        }
    }
    is_success(job, &tally.completed).map(|why| Verdict::new(COMPLETE, "SuccessPolicy", &why))
}

/// Whether the containers of Pods that restart in place have been restarted too often in all.
fn has_restarted_too_often(spec: &JobSpec, limit: i32, active: &[Arc<Pod>]) -> bool {
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let statuses = active.iter().filter_map(|pod| pod.status.as_ref());
    let containers = statuses.flat_map(|status| {
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
    });
    let restarts: i32 = containers.map(|container| container.restart_count).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}
