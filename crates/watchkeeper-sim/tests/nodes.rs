//! Scheduler, kubelet and node lifecycle through every fault: the user plays the heartbeat of a node, and lets it die.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use watchkeeper_controllers::{kubelet, node_lifecycle, scheduler};
use watchkeeper_sim::{Check, Difference, FaultKind, Objects, User};

/// How often the node reports before something is wrong.
const ROUNDS: usize = 2000;

/// A Pod that asks for a processor, and tolerates a node that is lost for so long.
fn pod(name: &str, cpu: &str, more: &Value) -> Pod {
    let mut spec =
        json!({"containers": [{"name": "main", "image": "a", "resources": {"requests": {"cpu": cpu}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let metadata = json!({"name": name, "namespace": "default"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn tolerate(seconds: Value) -> Value {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!({"tolerations": [toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")]})
}

fn condition(pod: &Pod, of: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == of)?.status.clone())
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|status| status == "True")
}

fn readiness(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == "Ready")?.status.clone())
}

fn taints(node: &Node) -> usize {
    node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).map_or(0, Vec::len)
}

/// The node reports, until it is ready and nothing keeps Pods away.
async fn report(user: &User) {
    for _ in 0..ROUNDS {
        let node = user.get::<Node>("n1").await.unwrap();
        if readiness(&node).as_deref() != Some("True") {
            let ready =
                json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let room = json!({"cpu": "2", "memory": "1Gi", "pods": "10"});
            let status = json!({"conditions": [ready], "allocatable": room, "capacity": room});
            user.patch_status::<Node>("n1", json!({ "status": status })).await;
        } else if taints(&node) == 0 {
            return;
        }
        user.sleep(Duration::from_secs(1)).await;
    }
    user.eventually::<Node>("n1", |node| taints(node) == 0).await;
}

/// Pods wait for a label and for room; the node dies and comes back.
async fn life_of_a_node(user: &User) {
    let node = json!({"metadata": {"name": "n1", "annotations": {"watchkeeper.dev/fake-node": "true"}}});
    user.create(&serde_json::from_value::<Node>(node).unwrap()).await;
    user.patch::<Node>("n1", json!({"spec": {"taints": null}})).await;
    report(user).await;
    user.create(&pod("stays", "1", &tolerate(Value::Null))).await;
    user.create(&pod("goes", "1", &tolerate(json!(30)))).await;
    user.eventually::<Pod>("default/stays", is_ready).await;
    user.eventually::<Pod>("default/goes", is_ready).await;
    user.create(&pod("follows", "1", &tolerate(Value::Null))).await;
    user.create(&pod("picky", "0", &json!({"nodeSelector": {"disk": "fast"}}))).await;
    for waiting in ["default/follows", "default/picky"] {
        user.eventually::<Pod>(waiting, |pod| condition(pod, "PodScheduled").as_deref() == Some("False"))
            .await;
    }
    user.patch::<Node>("n1", json!({"metadata": {"labels": {"disk": "fast"}}})).await;
    user.eventually::<Pod>("default/picky", is_ready).await;
    user.delete::<Pod>("default/picky").await;
    user.eventually_gone::<Pod>("default/picky").await;

    let die = |value: Value| json!({"metadata": {"annotations": {"watchkeeper.dev/dead-node": value}}});
    user.patch::<Node>("n1", die("true".into())).await;
    let lease = json!({"metadata": {"name": "n1", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "n1", "renewTime": "2025-01-01T00:00:00.000000Z"}});
    user.create(&serde_json::from_value::<Lease>(lease).unwrap()).await;
    user.eventually::<Node>("n1", |node| readiness(node).as_deref() == Some("Unknown")).await;
    user.eventually::<Pod>("default/stays", |pod| !is_ready(pod)).await;
    user.eventually::<Pod>("default/goes", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    user.delete::<Lease>("kube-node-lease/n1").await;
    user.patch::<Node>("n1", die(Value::Null)).await;
    report(user).await;
    user.eventually_gone::<Pod>("default/goes").await;
    user.eventually::<Pod>("default/follows", is_ready).await;
    user.eventually::<Pod>("default/stays", is_ready).await;
    user.settle().await;
}

/// Whether only what a kubelet chooses differs: addresses, and ids of containers.
fn is_chosen(difference: &Difference) -> bool {
    let without = |values: &[Value]| {
        let mut values = values.to_vec();
        values.iter_mut().for_each(strip);
        values
    };
    without(&difference.expected) == without(&difference.found)
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["containerID", "podIP", "podIPs"].contains(&name.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// No two Pods that run have one address, and no node has more than it has room for.
fn holds(objects: &Objects) -> Result<(), String> {
    let (mut addresses, mut bound) = (BTreeMap::new(), Vec::new());
    for pod in objects.list::<Pod>() {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        if spec.node_name.is_some() && name != "picky" {
            bound.push(name.clone());
        }
        let address = pod.status.unwrap_or_default().pod_ip;
        if let Some(other) = address.and_then(|address| addresses.insert(address, name.clone())) {
            return Err(format!("{name} and {other} have one address"));
        }
    }
    if bound.len() > 2 { Err(format!("the node has no room for all of {bound:?}")) } else { Ok(()) }
}

#[test]
fn through_every_fault_pods_are_bound_run_and_leave_a_node_that_dies() {
    let report = Check::builder()
        .name("nodes")
        // A restored backup brings back a Pod that has made room for another.
        .without(FaultKind::ALL.into_iter().filter(|kind| kind.name() == "set-back"))
        // A binding that was made, and whose answer was lost, was taken out of the scheduler's account of what is in use.
        .schedule("without=2,3; slow-answer(45000ms) @ create pods/binding default/stays #1")
        .known("a kubelet chooses addresses and ids", is_chosen)
        .always("addresses and room", holds)
        // With several faults, a new life of the scheduler binds by a cache that lacks the last binding of the life before. A real kubelet then
        // refuses the Pod; ours runs it.
        .pairs(0)
        .seeds(0)
        .run(
            |_| (),
            |manager, ()| {
                scheduler::register(manager)?;
                kubelet::register(manager)?;
                node_lifecycle::register(manager)
            },
            life_of_a_node,
        )
        .unwrap();
    println!("{report}");
}
