//! The order in which surplus Pods are deleted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{is_ready, node_name, phase, ready_since, since_then};

/// The annotation by which users choose the Pods that are deleted first: those with the lowest cost.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` Pods whose deletion costs least: those without a node, then those that do not run, are not ready, have the lowest
/// deletion cost, share their node with many others, have become ready last, have restarted often, and are young.
pub(crate) fn cheapest(pods: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut per_node = BTreeMap::<&str, usize>::new();
    for pod in pods {
        *per_node.entry(node_name(pod)).or_default() += 1;
    }
    let mut ranked: Vec<_> = pods.iter().collect();
    ranked
        .sort_by_cached_key(|pod| rank(pod, per_node.get(node_name(pod)).copied().unwrap_or_default(), now));
    ranked.into_iter().take(count).cloned().collect()
}

/// What sorts first is deleted first.
type Rank = (bool, u8, bool, i32, Reverse<usize>, i64, Reverse<i32>, i64, String);

fn rank(pod: &Pod, on_its_node: usize, now: Timestamp) -> Rank {
    let running = match phase(pod) {
        "" | "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let restarts = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let restarts = restarts.map(|container| container.restart_count).max().unwrap_or_default();
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (
        !node_name(pod).is_empty(),
        running,
        is_ready(pod),
        deletion_cost(pod),
        Reverse(on_its_node),
        ready_since(pod).map_or(-1, |since| magnitude(since, now)),
        Reverse(restarts),
        created.map_or(-1, |created| magnitude(created, now)),
        pod.metadata.uid.clone().unwrap_or_default(),
    )
}

/// The magnitude of an age: ages that differ by less than a factor of two count as equal, so that not always the same Pods go.
fn magnitude(then: Timestamp, now: Timestamp) -> i64 {
    since_then(then, now).as_nanos().checked_ilog2().map_or(-1, i64::from)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: &str, more: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        merge(&mut pod, more);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn merge(into: &mut Value, more: Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                for (name, value) in more {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
            (into, more) => *into = more,
        }
    }

    fn order(pods: &[Arc<Pod>]) -> Vec<String> {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        cheapest(pods, pods.len(), now).iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
    }

    #[test]
    fn what_serves_least_goes_first() {
        let ready = |since: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}});
        let pods = [
            pod("z-serves", "n1", json!({})),
            pod(
                "restarted",
                "n1",
                json!({"status": {"containerStatuses": [
                {"name": "a", "image": "a", "imageID": "", "ready": true, "restartCount": 3}]}}),
            ),
            pod("ready-lately", "n1", ready("2026-01-01T00:59:59Z")),
            pod("cheap", "n1", json!({"metadata": {"annotations": {DELETION_COST: "-5"}}})),
            pod("not-ready", "n1", json!({"status": {"conditions": []}})),
            pod("pending", "n1", json!({"status": {"phase": "Pending", "conditions": []}})),
            pod("unbound", "", json!({"status": {"phase": "Pending", "conditions": []}})),
        ];
        let expected = ["unbound", "pending", "not-ready", "cheap", "ready-lately", "restarted", "z-serves"];
        assert_eq!(order(&pods), expected);
    }

    #[test]
    fn pods_on_a_crowded_node_go_first() {
        let pods = [pod("a", "n1", json!({})), pod("b", "n2", json!({})), pod("c", "n2", json!({}))];
        assert_eq!(order(&pods)[2], "a");
    }
}
