//! Facts about Pods that controllers share: whether they are active, ready or available, and which of them go first.

pub(crate) mod change;
pub(crate) mod rank;
pub(crate) mod template;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

/// Whether a Pod has neither ended nor is being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a Pod is being deleted and has not ended yet.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !has_ended(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Whether all containers of a Pod have ended for good.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The phase of a Pod; empty if it has none.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The node that a Pod is bound to; empty if there is none.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The condition of that type.
pub(crate) fn condition<'a>(pod: &'a Pod, of: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == of)
}

/// Whether a Pod is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when a Pod is ready; none if it is not.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a Pod counts as available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It is not ready.
    No,
    /// It is ready, and available if it stays so for this time.
    In(Duration),
    Yes,
}

/// Whether a Pod has been ready for `min_ready` seconds.
pub(crate) fn availability(pod: &Pod, min_ready: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::No;
    }
    let wanted = Duration::from_secs(u64::try_from(min_ready).unwrap_or_default());
    if wanted.is_zero() {
        return Availability::Yes;
    }
    let Some(since) = ready_since(pod) else { return Availability::In(wanted) };
    match wanted.checked_sub(since_then(since, now)) {
        Some(rest) if !rest.is_zero() => Availability::In(rest),
        _ => Availability::Yes,
    }
}

/// The time from `then` to `now`; zero if `then` is later.
pub(crate) fn since_then(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready: bool, since: &str) -> Pod {
        let status = if ready { "True" } else { "False" };
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
        serde_json::from_value(json!({"status": {"phase": "Running", "conditions": [ready]}})).unwrap()
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(availability(&pod(false, "2026-01-01T00:00:00Z"), 0, now), Availability::No);
        assert_eq!(availability(&pod(true, "2026-01-01T00:00:10Z"), 0, now), Availability::Yes);
        let soon = Availability::In(Duration::from_secs(5));
        assert_eq!(availability(&pod(true, "2026-01-01T00:00:05Z"), 10, now), soon);
        assert_eq!(availability(&pod(true, "2026-01-01T00:00:00Z"), 10, now), Availability::Yes);
    }
}
