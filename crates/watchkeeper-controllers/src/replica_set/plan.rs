//! What a ReplicaSet does: how many Pods it creates, which it deletes, and its status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::spec;
use crate::pods::change::Failure;
use crate::pods::rank::cheapest;
use crate::pods::{self, Availability};

/// The most Pods that are created or deleted in one pass.
const BURST: usize = 500;

/// The change of the number of Pods.
#[derive(Debug, PartialEq)]
pub(super) enum Scale {
    Keep,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// The status of a ReplicaSet, in all versions of the API.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(default)]
    pub(super) replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fully_labeled_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) available_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conditions: Option<Vec<ReplicaSetCondition>>,
}

pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    spec(set).and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Decides what becomes of the number of Pods; `pods` are those that the set controls.
pub(super) fn scale(set: &ReplicaSet, pods: &[Arc<Pod>], now: Timestamp) -> Scale {
    let active: Vec<_> = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
    let wanted = usize::try_from(replicas(set)).unwrap_or_default();
    match active.len() {
        _ if set.metadata.deletion_timestamp.is_some() => Scale::Keep,
        there if there < wanted => Scale::Create((wanted - there).min(BURST)),
        there if there > wanted => Scale::Delete(cheapest(&active, (there - wanted).min(BURST), now)),
        _ => Scale::Keep,
    }
}

/// The status for these Pods, and the time after which one of them becomes available.
pub(super) fn status(
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    before: &Status,
    failure: Option<&Failure>,
    now: Timestamp,
) -> (Status, Option<Duration>) {
    let spec = spec(set);
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let template =
        spec.and_then(|spec| spec.template.as_ref()).and_then(|template| template.metadata.as_ref());
    let labels = template.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    let (mut status, mut wake) = (Status::default(), None);
    let (mut labeled, mut ready, mut available) = (0, 0, 0);
    for pod in pods.iter().filter(|pod| pods::is_active(pod)) {
        status.replicas += 1;
        let of_pod = pod.metadata.labels.as_ref();
        let is_labeled = |(key, value)| of_pod.and_then(|all| all.get(key)) == Some(value);
        labeled += i32::from(labels.iter().all(is_labeled));
        ready += i32::from(pods::is_ready(pod));
        match pods::availability(pod, min_ready, now) {
            Availability::Yes => available += 1,
            Availability::In(rest) => wake = Some(wake.map_or(rest, |wake: Duration| wake.min(rest))),
            Availability::No => {}
        }
    }
    let terminating = pods.iter().filter(|pod| pods::is_terminating(pod)).count();
    let shown = |count: i32| (count != 0).then_some(count);
    status.fully_labeled_replicas = shown(labeled);
    status.ready_replicas = shown(ready);
    status.available_replicas = shown(available);
    status.terminating_replicas = i32::try_from(terminating).ok();
    status.observed_generation = set.metadata.generation;
    status.conditions = conditions(before, failure, now);
    (status, wake)
}

/// The condition `ReplicaFailure` is there while Pods cannot be created or deleted; it keeps what it said first.
fn conditions(
    before: &Status,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let is_failure = |condition: &ReplicaSetCondition| condition.type_ == "ReplicaFailure";
    match failure {
        None => conditions.retain(|condition| !is_failure(condition)),
        Some(failure) if !conditions.iter().any(is_failure) => conditions.push(ReplicaSetCondition {
            type_: "ReplicaFailure".to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason.to_owned()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(Time(now)),
        }),
        Some(_) => {}
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(replicas: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "generation": 3},
            "spec": {"replicas": replicas, "minReadySeconds": 10, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}}},
        }))
        .unwrap()
    }

    fn pod(name: &str, tier: &str, ready_since: Option<&str>) -> Arc<Pod> {
        let conditions = ready_since.map(|since| {
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": format!("2026-01-01T00:00:{since}Z")}])
        });
        let pod = json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": "web", "tier": tier}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "conditions": conditions},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:30Z".parse().unwrap()
    }

    #[test]
    fn missing_pods_are_created_and_surplus_ones_deleted() {
        let mut ended = (*pod("c", "front", None)).clone();
        ended.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        let pods = [pod("a", "front", Some("00")), pod("b", "front", None), Arc::new(ended)];
        assert_eq!(scale(&set(4), &pods, now()), Scale::Create(2));
        assert_eq!(scale(&set(2), &pods, now()), Scale::Keep);
        assert_eq!(scale(&set(1), &pods, now()), Scale::Delete(vec![pods[1].clone()]));
        let mut going = set(4);
        going.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(scale(&going, &pods, now()), Scale::Keep);
        assert_eq!(scale(&set(10_000), &[], now()), Scale::Create(BURST));
    }

    #[test]
    fn the_status_counts_pods_and_says_when_to_look_again() {
        let pods = [pod("a", "front", Some("00")), pod("b", "back", Some("24")), pod("c", "front", None)];
        let (status, wake) = status(&set(3), &pods, &Status::default(), None, now());
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({"replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
                "terminatingReplicas": 0, "observedGeneration": 3})
        );
        assert_eq!(wake, Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_failure_is_a_condition_until_it_is_over() {
        let failure = Failure { reason: "FailedCreate", message: "exceeded quota".to_owned() };
        let (failed, _) = status(&set(1), &[], &Status::default(), Some(&failure), now());
        let condition = &failed.conditions.as_ref().unwrap()[0];
        assert_eq!(
            (condition.type_.as_str(), condition.reason.as_deref()),
            ("ReplicaFailure", Some("FailedCreate"))
        );
        let later = Failure { reason: "FailedCreate", message: "another".to_owned() };
        let (again, _) = status(&set(1), &[], &failed, Some(&later), now());
        assert_eq!(again, failed);
        let (over, _) = status(&set(1), &[], &failed, None, now());
        assert_eq!(over.conditions, None);
    }
}
