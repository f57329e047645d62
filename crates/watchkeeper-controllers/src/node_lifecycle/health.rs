//! Whether a node is alive, and the conditions and taints that say so: a pure function of the node, its Lease and the time.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pods::since_then;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// A node that does not renew its Lease for so long is taken for dead.
const GRACE: Duration = Duration::from_secs(50);
/// The conditions that a kubelet reports.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What becomes of a node.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Health {
    /// The new conditions, if they differ.
    pub(super) conditions: Option<Vec<NodeCondition>>,
    /// The new taints, if they differ.
    pub(super) taints: Option<Vec<Taint>>,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

/// Judges a node by the time when its Lease was renewed; none for a node without a Lease, which nobody can judge.
pub(super) fn judge(node: &Node, renewed: Option<Timestamp>, now: Timestamp) -> Health {
    let mut health = Health::default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let left = renewed.map(|renewed| GRACE.saturating_sub(since_then(renewed, now)));
    let is_dead = left.is_some_and(|left| left.is_zero());
    let mut after = conditions.clone();
    if is_dead {
        REPORTED.iter().for_each(|of| lose(&mut after, of, now));
    } else {
        health.wake = left;
    }
    let ready = after.iter().find(|condition| condition.type_ == "Ready").map(|it| it.status.as_str());
    let trouble = match ready {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    // A node that has not said anything yet is left to the kubelet that will.
    let spec = node.spec.clone().unwrap_or_default();
    let taints =
        if ready.is_some() { taints(&spec, trouble, now) } else { spec.taints.clone().unwrap_or_default() };
    health.taints = (taints != spec.taints.unwrap_or_default()).then_some(taints);
    health.conditions = (after != conditions).then_some(after);
    health
}

/// Nobody knows the state of a condition any more.
fn lose(conditions: &mut Vec<NodeCondition>, of: &str, now: Timestamp) {
    let lost = |heartbeat: Option<Time>| NodeCondition {
        type_: of.to_owned(),
        status: "Unknown".to_owned(),
        reason: Some("NodeStatusUnknown".to_owned()),
        message: Some("Kubelet stopped posting node status.".to_owned()),
        last_heartbeat_time: heartbeat,
        last_transition_time: Some(Time(now)),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == of) {
        Some(known) if known.status == "Unknown" => {}
        Some(known) => *known = lost(known.last_heartbeat_time.take()),
        None => conditions.push(lost(None)),
    }
}

/// The taints of a node in that trouble. Those of users stay.
fn taints(spec: &NodeSpec, trouble: Option<&str>, now: Timestamp) -> Vec<Taint> {
    let mut wanted = Vec::new();
    for effect in ["NoSchedule", "NoExecute"] {
        wanted.extend(trouble.map(|key| (key, effect)));
    }
    if spec.unschedulable == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is = |taint: &Taint, (key, effect): (&str, &str)| taint.key == key && taint.effect == effect;
    let mut taints = spec.taints.clone().unwrap_or_default();
    taints.retain(|taint| {
        let is_ours = [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str());
        !is_ours || wanted.iter().any(|wanted| is(taint, *wanted))
    });
    for wanted in wanted {
        if !taints.iter().any(|taint| is(taint, wanted)) {
            let (key, effect) = wanted;
            let time_added = (effect == "NoExecute" || key == UNSCHEDULABLE).then_some(Time(now));
            taints.push(Taint { key: key.to_owned(), effect: effect.to_owned(), time_added, value: None });
        }
    }
    taints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str, taints: &[(&str, &str)], unschedulable: bool) -> Node {
        let taints: Vec<_> =
            taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        serde_json::from_value(
            json!({"metadata": {"name": "n"}, "spec": {"taints": taints, "unschedulable": unschedulable},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        )
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn keys(health: &Health) -> Vec<(String, String)> {
        let taints = health.taints.clone().unwrap_or_default();
        taints.into_iter().map(|taint| (taint.key, taint.effect)).collect()
    }

    #[test]
    fn a_node_that_does_not_renew_its_lease_is_unreachable() {
        let alive = judge(&node("True", &[], false), Some(at(100)), at(120));
        assert_eq!(alive, Health { wake: Some(Duration::from_secs(30)), ..Health::default() });
        let dead = judge(&node("True", &[("mine", "NoSchedule")], false), Some(at(100)), at(150));
        let conditions = dead.conditions.clone().unwrap();
        assert_eq!((conditions.len(), conditions[0].status.as_str()), (4, "Unknown"));
        let effects = keys(&dead);
        assert_eq!(effects.len(), 3);
        assert!(effects[1..].iter().all(|(key, _)| key == UNREACHABLE));
        assert_eq!(judge(&node("True", &[], false), None, at(999)), Health::default());
    }

    #[test]
    fn a_node_that_is_ready_again_loses_the_taints_and_a_cordoned_one_gets_one() {
        let back = judge(
            &node("True", &[(UNREACHABLE, "NoExecute"), ("mine", "NoExecute")], false),
            Some(at(1)),
            at(2),
        );
        assert_eq!(keys(&back), [("mine".to_owned(), "NoExecute".to_owned())]);
        let cordoned = judge(&node("True", &[], true), Some(at(1)), at(2));
        assert_eq!(keys(&cordoned), [(UNSCHEDULABLE.to_owned(), "NoSchedule".to_owned())]);
        let unready = judge(&node("False", &[], false), Some(at(1)), at(2));
        assert_eq!(keys(&unready)[0].0, NOT_READY);
    }
}
