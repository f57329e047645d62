//! Which Pods the collector removes: pure functions of the Pod, its node and the time.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use watchkeeper::{Object, ObjectName};

use crate::pods::{node_name, since_then};

/// How long a node must be gone before its Pods are removed.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);

/// What becomes of a Pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// Its node is gone, but may come back for this time.
    Wait(Duration),
    /// Its node is gone.
    Orphaned,
    /// It is being deleted, and has no kubelet that would end it.
    NeverBound,
}

/// Judges a Pod by the time since when its node is missing, if it is.
pub(super) fn verdict(pod: &Pod, missing: Option<Timestamp>, now: Timestamp) -> Verdict {
    if node_name(pod).is_empty() {
        let is_going = pod.metadata.deletion_timestamp.is_some();
        return if is_going { Verdict::NeverBound } else { Verdict::Keep };
    }
    let Some(since) = missing else { return Verdict::Keep };
    match QUARANTINE.checked_sub(since_then(since, now)) {
        Some(left) if !left.is_zero() => Verdict::Wait(left),
        _ => Verdict::Orphaned,
    }
}

/// The oldest Pods of those that have ended, beyond the most that are kept.
pub(super) fn surplus<'a>(ended: impl Iterator<Item = &'a Object<Pod>>, most: usize) -> Vec<ObjectName> {
    let ended: Vec<_> = ended.collect();
    let Some(count) = ended.len().checked_sub(most).filter(|count| *count > 0) else { return Vec::new() };
    let age = |pod: &&Object<Pod>| {
        let created = pod.get().ok().and_then(|pod| pod.metadata.creation_timestamp.clone());
        (created.map(|time| time.0), pod.key())
    };
    let mut aged: Vec<_> = ended.iter().map(age).collect();
    aged.sort_unstable();
    aged.into_iter().take(count).map(|(_, key)| key).collect()
}

/// Makes the status that of a Pod that has failed; the reason is for the condition of a disruption.
pub(super) fn fail(status: &mut PodStatus, why: Option<&str>, now: Timestamp) {
    status.phase = Some("Failed".to_owned());
    let Some(why) = why else { return };
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != "DisruptionTarget");
    conditions.push(PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByPodGC".to_owned()),
        message: Some(why.to_owned()),
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, metadata: Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}}))
            .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_pod_whose_node_is_gone_for_long_is_an_orphan() {
        let bound = pod("n", json!({}));
        assert_eq!(verdict(&bound, None, at(100)), Verdict::Keep);
        assert_eq!(verdict(&bound, Some(at(100)), at(110)), Verdict::Wait(Duration::from_secs(30)));
        assert_eq!(verdict(&bound, Some(at(100)), at(140)), Verdict::Orphaned);
    }

    #[test]
    fn a_deleted_pod_without_a_node_has_nobody_who_ends_it() {
        assert_eq!(verdict(&pod("", json!({})), None, at(0)), Verdict::Keep);
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(verdict(&pod("", going.clone()), None, at(0)), Verdict::NeverBound);
        assert_eq!(verdict(&pod("n", going), None, at(0)), Verdict::Keep);
    }

    #[test]
    fn the_oldest_of_too_many_go_first() {
        let pods: Vec<_> = (0..4)
            .map(|at| {
                let created = format!("2026-01-01T00:00:0{}Z", 9 - at);
                let metadata = json!({"name": format!("p{at}"), "namespace": "d", "uid": "u",
                    "resourceVersion": "1", "creationTimestamp": created});
                Object::<Pod>::from_json(json!({ "metadata": metadata }).to_string().as_bytes()).unwrap()
            })
            .collect();
        let names =
            |most| surplus(pods.iter(), most).iter().map(|key| key.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(2), ["p3", "p2"]);
        assert_eq!(names(4), [""; 0]);
    }
}
