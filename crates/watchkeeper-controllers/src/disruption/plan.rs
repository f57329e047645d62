//! The status of a PodDisruptionBudget: a pure function of it, its Pods and the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use crate::pods::{has_ended, is_ready, since_then};

/// The status of a budget, in all versions of the API.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) current_healthy: i32,
    pub(super) desired_healthy: i32,
    pub(super) disruptions_allowed: i32,
    pub(super) expected_pods: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disrupted_pods: Option<BTreeMap<String, Time>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conditions: Option<Vec<Condition>>,
}

/// How long an eviction may take to show: then its Pod counts again.
const EVICTION: Duration = Duration::from_secs(120);

/// The status, and when to look again though nothing changes. `scale` is the number of Pods that the workloads of these Pods ask for.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scale: i32,
    before: &Status,
    now: Timestamp,
) -> (Status, Option<Duration>) {
    let (disrupted, wake) = disrupted(before, pods, now);
    let counts = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        is_ready(pod) && pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(name)
    };
    let healthy = count(pods.iter().filter(counts).count());
    let active = count(pods.iter().filter(|pod| !has_ended(pod)).count());
    let (expected, desired) = needed(budget, active, scale);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let status = Status {
        conditions: Some(vec![condition(before, allowed, budget.metadata.generation, now)]),
        current_healthy: healthy,
        desired_healthy: desired,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: allowed,
        expected_pods: expected,
        observed_generation: budget.metadata.generation,
    };
    (status, wake)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The Pods that were evicted and do not show it yet.
fn disrupted(
    before: &Status,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let (mut kept, mut wake) = (BTreeMap::new(), None);
    for (name, since) in before.disrupted_pods.iter().flatten() {
        let pod = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name));
        let rest = EVICTION.saturating_sub(since_then(since.0, now));
        let waits = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) && !rest.is_zero();
        if waits {
            kept.insert(name.clone(), since.clone());
            wake = Some(wake.map_or(rest, |wake: Duration| wake.min(rest)));
        }
    }
    (kept, wake)
}

/// How many Pods there should be, and how many of them must be healthy.
fn needed(budget: &PodDisruptionBudget, active: i32, scale: i32) -> (i32, i32) {
    let Some(spec) = &budget.spec else { return (active, active) };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (scale, (scale - resolve(most, scale)).max(0)),
        (None, Some(IntOrString::Int(fewest))) => (active, *fewest),
        (None, Some(fewest)) => (scale, resolve(fewest, scale)),
        (None, None) => (active, 1),
    }
}

/// A number, or a percentage of `total`, rounded up.
fn resolve(value: &IntOrString, total: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percentage: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            i32::try_from((i64::from(total) * percentage + 99) / 100).unwrap_or(i32::MAX)
        }
    }
}

fn condition(before: &Status, allowed: i32, generation: Option<i64>, now: Timestamp) -> Condition {
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let known = before.conditions.iter().flatten().find(|known| known.type_ == "DisruptionAllowed");
    let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
    Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({"metadata": {"name": "b", "generation": 3}, "spec": spec})).unwrap()
    }

    fn pods(ready: usize, starting: usize) -> Vec<Arc<Pod>> {
        let pod = |(at, ready): (usize, bool)| {
            let ready = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
            let pod = json!({"metadata": {"name": format!("p{at}")}, "status": {"phase": "Running", "conditions": ready}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        (0..ready + starting).map(|at| (at, at < ready)).map(pod).collect()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:02:00Z".parse().unwrap()
    }

    #[test]
    fn what_is_healthy_beyond_the_need_may_be_disrupted() {
        let allowed = |spec: Value, ready, starting| {
            let status = status(&budget(spec), &pods(ready, starting), 4, &Status::default(), now()).0;
            (status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed)
        };
        assert_eq!(allowed(json!({"minAvailable": 2}), 3, 1), (4, 2, 3, 1));
        assert_eq!(allowed(json!({"minAvailable": 2}), 1, 0), (1, 2, 1, 0));
        assert_eq!(allowed(json!({"minAvailable": "51%"}), 4, 0), (4, 3, 4, 1));
        assert_eq!(allowed(json!({"maxUnavailable": 1}), 4, 0), (4, 3, 4, 1));
        assert_eq!(allowed(json!({"maxUnavailable": "30%"}), 3, 1), (4, 2, 3, 1));
        assert_eq!(allowed(json!({"minAvailable": 0}), 0, 0), (0, 0, 0, 0));
    }

    #[test]
    fn an_evicted_pod_does_not_count_until_it_goes_or_time_is_over() {
        let evicted = json!({"disruptedPods": {"p0": "2026-01-01T00:01:00Z", "p1": "2026-01-01T00:00:00Z", "gone": "2026-01-01T00:02:00Z"}});
        let before = serde_json::from_value(evicted).unwrap();
        let (status, wake) = status(&budget(json!({"minAvailable": 1})), &pods(3, 0), 3, &before, now());
        assert_eq!((status.current_healthy, status.disruptions_allowed), (2, 1));
        assert_eq!(status.disrupted_pods.unwrap().keys().collect::<Vec<_>>(), ["p0"]);
        assert_eq!(wake, Some(Duration::from_secs(60)));
    }
}
