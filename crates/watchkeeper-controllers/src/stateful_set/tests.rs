//! StatefulSets as pure functions: the order in which Pods come, change and go.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::identity::{claims, new_pod};
use super::plan::{Plan, Revisions, plan, spec, status};
use crate::revisions::REVISION;

fn set(more: Value) -> StatefulSet {
    let mut whole = json!({"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "a"}]}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "db", "namespace": "default"}, "spec": whole}))
        .unwrap()
}

fn revisions() -> Revisions {
    let of = |name: &str| -> Arc<ControllerRevision> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "revision": 1})).unwrap())
    };
    Revisions { current: of("old"), update: of("new") }
}

/// A Pod in a state: `ready`, `starting`, `going` or `failed`.
fn pod(ordinal: i32, of: &str, state: &str) -> Arc<Pod> {
    let ready = json!([{"type": "Ready", "status": if state == "ready" { "True" } else { "False" },
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let going = (state == "going").then_some("2026-01-01T00:00:00Z");
    let metadata =
        json!({"name": format!("db-{ordinal}"), "labels": {REVISION: of}, "deletionTimestamp": going});
    let phase = if state == "failed" { "Failed" } else { "Running" };
    let status = json!({"phase": phase, "conditions": ready});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
}

fn now() -> Timestamp {
    "2026-01-01T00:00:10Z".parse().unwrap()
}

fn created(plan: &Plan) -> Vec<i32> {
    plan.create.iter().map(|(ordinal, _)| *ordinal).collect()
}

fn deleted(plan: &Plan) -> Vec<&str> {
    plan.delete.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
}

#[test]
fn pods_are_created_in_order_each_when_the_one_before_is_ready() {
    let next = |more: Value, pods: &[Arc<Pod>]| created(&plan(&set(more), pods, &revisions(), now()));
    assert_eq!(next(json!({}), &[]), [0]);
    assert_eq!(next(json!({}), &[pod(0, "new", "starting")]), [0; 0]);
    assert_eq!(next(json!({}), &[pod(0, "new", "ready")]), [1]);
    assert_eq!(next(json!({}), &[pod(0, "new", "ready"), pod(2, "new", "ready")]), [1]);
    assert_eq!(next(json!({"podManagementPolicy": "Parallel"}), &[pod(1, "new", "starting")]), [0, 2]);
    assert_eq!(next(json!({"ordinals": {"start": 5}}), &[]), [5]);
    let slow = plan(&set(json!({"minReadySeconds": 15})), &[pod(0, "new", "ready")], &revisions(), now());
    assert_eq!((created(&slow), slow.wake), (vec![], Some(Duration::from_secs(5))));
}

#[test]
fn pods_are_deleted_from_the_highest_ordinal_one_at_a_time() {
    let pods = [pod(0, "new", "ready"), pod(1, "new", "ready"), pod(2, "new", "ready")];
    let shrink = |more: Value, pods: &[Arc<Pod>]| {
        deleted(&plan(&set(more), pods, &revisions(), now()))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(shrink(json!({"replicas": 1}), &pods), ["db-2"]);
    let going = [pod(0, "new", "ready"), pod(1, "new", "ready"), pod(2, "new", "going")];
    assert_eq!(shrink(json!({"replicas": 1}), &going), [""; 0]);
    assert_eq!(shrink(json!({"replicas": 1, "podManagementPolicy": "Parallel"}), &pods), ["db-2", "db-1"]);
    // The Pods that stay must be ready first, but for a Pod that is the first that is not.
    let broken = [pod(0, "new", "ready"), pod(1, "new", "starting"), pod(2, "new", "ready")];
    assert_eq!(shrink(json!({"replicas": 2}), &broken), [""; 0]);
    assert_eq!(shrink(json!({"replicas": 1}), &broken), ["db-2"]);
}

#[test]
fn a_pod_that_has_ended_is_replaced() {
    let plan = plan(&set(json!({})), &[pod(0, "new", "failed"), pod(1, "new", "ready")], &revisions(), now());
    assert_eq!((deleted(&plan), created(&plan)), (vec!["db-0"], vec![]));
}

#[test]
fn an_update_goes_from_the_highest_ordinal_to_the_partition() {
    let update = |more: Value, pods: [(&str, &str); 3]| {
        let pods: Vec<_> = pods.iter().zip(0..).map(|((of, state), at)| pod(at, of, state)).collect();
        deleted(&plan(&set(more), &pods, &revisions(), now()))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (old, new) = (("old", "ready"), ("new", "ready"));
    assert_eq!(update(json!({}), [old, old, old]), ["db-2"]);
    assert_eq!(update(json!({}), [old, old, ("new", "starting")]), [""; 0]);
    assert_eq!(update(json!({}), [old, old, new]), ["db-1"]);
    let partition = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
    assert_eq!(update(partition, [old, old, new]), [""; 0]);
    assert_eq!(update(json!({"updateStrategy": {"type": "OnDelete"}}), [old, old, old]), [""; 0]);
}

#[test]
fn below_the_partition_pods_are_made_of_the_current_revision() {
    let strategy = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        "podManagementPolicy": "Parallel"});
    let plan = plan(&set(strategy), &[], &revisions(), now());
    let of = plan.create.iter().map(|(_, pod)| pod.metadata.labels.as_ref().unwrap()[REVISION].clone());
    assert_eq!(of.collect::<Vec<_>>(), ["old", "new", "new"]);
}

#[test]
fn a_pod_has_its_name_its_host_and_its_claims() {
    let template = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let set = set(json!({ "volumeClaimTemplates": template }));
    let made = new_pod(&set, spec(&set).unwrap(), &revisions().update, 1);
    assert_eq!(made.metadata.name.as_deref(), Some("db-1"));
    assert_eq!(made.metadata.labels.unwrap()["apps.kubernetes.io/pod-index"], "1");
    let pod = made.spec.unwrap();
    assert_eq!((pod.hostname.as_deref(), pod.subdomain.as_deref()), (Some("db-1"), Some("db")));
    let volume = &pod.volumes.unwrap()[0];
    assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, "data-db-1");
    let (_, claim) = &claims(&set, spec(&set).unwrap(), 1)[0];
    assert_eq!(claim.metadata.labels.as_ref().unwrap()["app"], "db");
}

#[test]
fn an_update_is_done_when_all_pods_are_new_and_ready() {
    let (set, revisions) = (set(json!({})), revisions());
    let pods = [pod(0, "old", "ready"), pod(1, "new", "starting"), pod(2, "new", "ready")];
    let during = status(&set, &pods, &revisions, None, now());
    assert_eq!((during.current_revision.as_deref(), during.ready_replicas), (Some("old"), Some(2)));
    assert_eq!((during.current_replicas, during.updated_replicas), (Some(1), Some(2)));
    let pods = [0, 1, 2].map(|at| pod(at, "new", "ready"));
    let done = status(&set, &pods, &revisions, None, now());
    assert_eq!((done.current_revision.as_deref(), done.current_replicas), (Some("new"), Some(3)));
}
