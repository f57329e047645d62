//! DaemonSets as pure functions: where they run, and how they replace their Pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use super::nodes::{Place, node_of, place, pod_for};
use super::plan::{Plan, plan, spec};
use crate::revisions::REVISION;

fn set(template: Value, strategy: Value) -> DaemonSet {
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": {"spec": template},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy}});
    serde_json::from_value(json!({"metadata": {"name": "agent", "generation": 2}, "spec": spec})).unwrap()
}

fn node(name: &str, taint: Option<(&str, &str)>) -> Arc<Node> {
    let taints = taint.map(|(key, effect)| json!([{"key": key, "effect": effect}]));
    let labels = json!({"disk": "ssd"});
    Arc::new(
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}),
        )
        .unwrap(),
    )
}

/// A Pod in a state: `ready`, `starting`, `going` or `failed`.
fn pod(name: &str, node: &str, hash: &str, state: &str) -> Arc<Pod> {
    let ready = json!([{"type": "Ready", "status": if state == "ready" { "True" } else { "False" }}]);
    let going = (state == "going").then_some("2026-01-01T00:00:00Z");
    let phase = if state == "failed" { "Failed" } else { "Running" };
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {REVISION: hash}, "deletionTimestamp": going},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase, "conditions": ready}}))
        .unwrap(),
    )
}

fn now() -> Timestamp {
    "2026-01-01T00:00:10Z".parse().unwrap()
}

fn deleted(plan: &Plan) -> Vec<&str> {
    plan.delete.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
}

#[test]
fn daemons_run_where_they_are_wanted_and_on_nodes_in_trouble() {
    let of = |template: Value, taint| {
        let set = set(template, json!({}));
        place(spec(&set).unwrap(), &node("n1", taint))
    };
    let (yes, no) = (Place { starts: true, keeps: true }, Place { starts: false, keeps: false });
    let plain = || json!({"containers": []});
    assert_eq!(of(plain(), None), yes);
    assert_eq!(of(json!({"containers": [], "nodeSelector": {"disk": "hdd"}}), None), no);
    assert_eq!(of(json!({"containers": [], "nodeName": "n2"}), None), no);
    assert_eq!(of(plain(), Some(("node.kubernetes.io/unschedulable", "NoSchedule"))), yes);
    assert_eq!(of(plain(), Some(("node.kubernetes.io/not-ready", "NoExecute"))), yes);
    assert_eq!(of(plain(), Some(("special", "NoSchedule"))), Place { starts: false, keeps: true });
    assert_eq!(of(plain(), Some(("special", "NoExecute"))), no);
    let tolerant = json!({"containers": [], "tolerations": [{"operator": "Exists"}]});
    assert_eq!(of(tolerant, Some(("special", "NoExecute"))), yes);
}

#[test]
fn each_node_gets_one_pod_that_names_it() {
    let (set, nodes) = (set(json!({"containers": []}), json!({})), [node("n1", None), node("n2", None)]);
    let pods =
        [pod("a", "n1", "h", "ready"), pod("b", "n1", "h", "starting"), pod("c", "gone", "h", "ready")];
    let plan = plan(&set, &nodes, &pods, "h", now());
    assert_eq!((plan.create.clone(), deleted(&plan)), (vec!["n2".to_owned()], vec!["b", "c"]));
    let made = pod_for(&set, spec(&set).unwrap(), "h", "n2", &Generator::seeded(1));
    assert_eq!(node_of(&made), "n2");
    assert_eq!(made.metadata.labels.unwrap()[REVISION], "h");
    let status = plan.status;
    assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (2, 1));
    assert_eq!((status.number_ready, status.number_unavailable), (1, Some(1)));
}

#[test]
fn a_pod_that_has_ended_goes_before_another_comes() {
    let set = set(json!({"containers": []}), json!({}));
    let failed = plan(&set, &[node("n1", None)], &[pod("a", "n1", "h", "failed")], "h", now());
    assert_eq!((failed.create.len(), deleted(&failed)), (0, vec!["a"]));
    let going = plan(&set, &[node("n1", None)], &[pod("a", "n1", "h", "going")], "h", now());
    assert_eq!((going.create.len(), going.delete.len()), (0, 0));
}

#[test]
fn an_update_takes_down_as_many_pods_as_may_be_unavailable() {
    let nodes = ["n1", "n2", "n3"].map(|name| node(name, None));
    let update = |strategy: Value, pods: &[Arc<Pod>]| {
        let plan = plan(&set(json!({"containers": []}), strategy), &nodes, pods, "new", now());
        (deleted(&plan).into_iter().map(str::to_owned).collect::<Vec<_>>(), plan.create)
    };
    let old = |state: [&str; 3]| -> Vec<_> {
        let all = ["a", "b", "c"].into_iter().zip(["n1", "n2", "n3"]).zip(state);
        all.map(|((name, node), state)| pod(name, node, "old", state)).collect()
    };
    assert_eq!(update(json!({}), &old(["ready"; 3])).0, ["a"]);
    assert_eq!(update(json!({"maxUnavailable": "50%"}), &old(["ready"; 3])).0, ["a", "b"]);
    // Those that do not serve go at once, and count.
    assert_eq!(update(json!({}), &old(["ready", "starting", "ready"])).0, ["b"]);
    assert_eq!(update(json!({}), &old(["going", "ready", "ready"])).0, [""; 0]);
    let surge = json!({"maxSurge": 1, "maxUnavailable": 0});
    assert_eq!(update(surge.clone(), &old(["ready"; 3])), (vec![], vec!["n1".to_owned()]));
    let mut pods = old(["ready"; 3]);
    pods.push(pod("d", "n1", "new", "starting"));
    assert_eq!(update(surge.clone(), &pods), (vec![], vec![]));
    pods[3] = pod("d", "n1", "new", "ready");
    assert_eq!(update(surge, &pods), (vec!["a".to_owned()], vec![]));
}
