//! The status of a Deployment: counts, and the conditions `Available`, `Progressing` and `ReplicaFailure`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::limits::Limits;
use super::sets::Set;
use super::spec;
use crate::pods::since_then;

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The status of a Deployment, in all versions of the API.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) available_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unavailable_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) collision_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conditions: Option<Vec<DeploymentCondition>>,
}

impl Status {
    pub(super) fn condition(&self, of: &str) -> Option<&DeploymentCondition> {
        self.conditions.iter().flatten().find(|condition| condition.type_ == of)
    }

    /// Sets a condition, unless it has that status and reason already. Its transition time changes with its status.
    pub(super) fn set(&mut self, of: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
        let known = self.condition(of);
        let is_status = known.is_some_and(|known| known.status == status);
        if is_status && known.is_some_and(|known| known.reason.as_deref() == Some(reason)) {
            return;
        }
        let since = known.filter(|_| is_status).and_then(|known| known.last_transition_time.clone());
        let condition = DeploymentCondition {
            type_: of.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(Time(now)),
            last_transition_time: Some(since.unwrap_or(Time(now))),
        };
        self.remove(of);
        self.conditions.get_or_insert_default().push(condition);
    }

    pub(super) fn remove(&mut self, of: &str) {
        if let Some(conditions) = &mut self.conditions {
            conditions.retain(|condition| condition.type_ != of);
        }
    }
}

/// The seconds that a rollout has to make progress; none if it has for ever.
pub(super) fn deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = spec(deployment)?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Says whether the Deployment is paused, in the condition `Progressing`.
pub(super) fn note_pause(deployment: &Deployment, status: &mut Status, now: Timestamp) {
    let reason = status.condition(PROGRESSING).and_then(|condition| condition.reason.clone());
    // Lack of progress stays known.
    if deadline(deployment).is_none() || reason.as_deref() == Some(TIMED_OUT) {
        return;
    }
    let is_paused = spec(deployment).is_some_and(|spec| spec.paused == Some(true));
    match (is_paused, reason.as_deref() == Some(PAUSED)) {
        (true, false) => status.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now),
        (false, true) => {
            status.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed", now);
        }
        _ => {}
    }
}

/// The counts and the condition `Available`; the other conditions stay.
pub(super) fn counts(
    deployment: &Deployment,
    sets: &[Set],
    new: Option<&Set>,
    limits: &Limits,
    before: &Status,
    now: Timestamp,
) -> Status {
    let of = |set: &Set| set.object.status.clone().unwrap_or_default();
    let replicas: i32 = sets.iter().map(|set| of(set).replicas).sum();
    let wanted: i32 = sets.iter().map(Set::replicas_before).sum();
    let available: i32 = sets.iter().map(Set::available).sum();
    let ready: i32 = sets.iter().filter_map(|set| of(set).ready_replicas).sum();
    let terminating: i32 = sets.iter().map(terminating).sum();
    let shown = |count: i32| (count != 0).then_some(count);
    let mut status = Status {
        observed_generation: deployment.metadata.generation,
        replicas: shown(replicas),
        updated_replicas: shown(new.map_or(0, |new| of(new).replicas)),
        ready_replicas: shown(ready),
        available_replicas: shown(available),
        unavailable_replicas: shown((wanted - available).max(0)),
        terminating_replicas: Some(terminating),
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
    };
    let (value, reason, message) = match available >= limits.fewest() {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    status.set(AVAILABLE, value, reason, message, now);
    status
}

/// The Pods of a set that are being deleted, which not every version of the API counts.
fn terminating(set: &Set) -> i32 {
    let status = set.object.status.as_ref().and_then(|status| serde_json::to_value(status).ok());
    let count = status.and_then(|status| status.get("terminatingReplicas")?.as_i64());
    count.and_then(|count| i32::try_from(count).ok()).unwrap_or_default()
}

/// Adds the conditions of a rollout to `status`: whether it is complete, makes progress, has stopped to, or fails. Returns when its
/// deadline is over.
pub(super) fn judge(
    deployment: &Deployment,
    sets: &[Set],
    new: Option<&Set>,
    limits: &Limits,
    before: &Status,
    status: &mut Status,
    now: Timestamp,
) -> Option<Duration> {
    let known = before.condition(PROGRESSING).cloned();
    let reason = known.as_ref().and_then(|known| known.reason.as_deref());
    let was_complete = status.replicas == status.updated_replicas && reason == Some(COMPLETE);
    match deadline(deployment) {
        None => status.remove(PROGRESSING),
        Some(deadline) if !was_complete => {
            let subject = match new {
                Some(new) => format!("ReplicaSet \"{}\"", new.name()),
                None => format!("Deployment \"{}\"", deployment.metadata.name.as_deref().unwrap_or_default()),
            };
            if is_complete(deployment, limits, status) {
                let message = format!("{subject} has successfully progressed.");
                status.set(PROGRESSING, "True", COMPLETE, &message, now);
            } else if is_progress(before, status) {
                let since = known.as_ref().filter(|known| known.status == "True");
                let since = since.and_then(|known| known.last_transition_time.clone());
                // The time of the update is that of the last progress, even if nothing else changes.
                status.remove(PROGRESSING);
                let message = format!("{subject} is progressing.");
                status.set(PROGRESSING, "True", "ReplicaSetUpdated", &message, now);
                if let (Some(since), Some(set)) =
                    (since, status.conditions.as_mut().and_then(|all| all.last_mut()))
                {
                    set.last_transition_time = Some(since);
                }
            } else if has_timed_out(known.as_ref(), deadline, now) {
                let message = format!("{subject} has timed out progressing.");
                status.set(PROGRESSING, "False", TIMED_OUT, &message, now);
            }
        }
        Some(_) => {}
    }
    note_failure(sets, new, status, now);
    time_left(deployment, status, now)
}

/// Whether all Pods are those of the current template, and available.
pub(super) fn is_complete(deployment: &Deployment, limits: &Limits, status: &Status) -> bool {
    let all = |count: Option<i32>| count.unwrap_or_default() == limits.replicas;
    all(status.updated_replicas)
        && all(status.replicas)
        && all(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether there are more new, fewer old, or more ready or available Pods.
fn is_progress(before: &Status, now: &Status) -> bool {
    let count = |count: Option<i32>| count.unwrap_or_default();
    let old = |status: &Status| count(status.replicas) - count(status.updated_replicas);
    count(now.updated_replicas) > count(before.updated_replicas)
        || old(now) < old(before)
        || count(now.ready_replicas) > count(before.ready_replicas)
        || count(now.available_replicas) > count(before.available_replicas)
}

fn has_timed_out(known: Option<&DeploymentCondition>, deadline: Duration, now: Timestamp) -> bool {
    let Some(known) = known else { return false };
    match known.reason.as_deref() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => known.last_update_time.as_ref().is_some_and(|since| since_then(since.0, now) > deadline),
    }
}

/// The condition `ReplicaFailure` repeats that of a set, of the new one first.
fn note_failure(sets: &[Set], new: Option<&Set>, status: &mut Status, now: Timestamp) {
    let failure = |set: &Set| {
        let conditions = set.object.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == FAILURE).cloned()
    };
    match new.into_iter().chain(sets).find_map(failure) {
        Some(failure) => {
            let text = |text: Option<String>| text.unwrap_or_default();
            status.set(FAILURE, &failure.status, &text(failure.reason), &text(failure.message), now);
        }
        None => status.remove(FAILURE),
    }
}

/// The time until a rollout that makes no progress has timed out; none if it is complete, or has timed out.
fn time_left(deployment: &Deployment, status: &Status, now: Timestamp) -> Option<Duration> {
    let deadline = deadline(deployment)?;
    let condition = status.condition(PROGRESSING)?;
    if matches!(condition.reason.as_deref(), Some(COMPLETE | TIMED_OUT)) {
        return None;
    }
    let since = condition.last_update_time.as_ref()?.0;
    Some(deadline.saturating_sub(since_then(since, now)) + Duration::from_secs(1))
}
