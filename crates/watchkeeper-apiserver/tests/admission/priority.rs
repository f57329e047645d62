//! `Priority`: priority classes of pods.

use serde_json::json;

use crate::common::{MERGE, Server, call, get, patch, post};
use crate::{PODS, own, pod, refused};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_priority_of_its_class() {
    let server = Server::with_admission().await;
    let class = json!({"metadata": {"name": own("high")}, "value": 1000, "preemptionPolicy": "Never"});
    post(&server, CLASSES, &class).await;
    let created = post(&server, PODS, &pod("a", &json!({"priorityClassName": own("high")}))).await;
    assert_eq!(created["spec"]["priority"], 1000);
    assert_eq!(created["spec"]["preemptionPolicy"], "Never");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, patched) = patch(&server, &format!("{PODS}/a"), MERGE, &labels).await;
    assert_eq!((code, &patched["spec"]["priority"]), (200, &json!(1000)));
    let plain = post(&server, PODS, &pod("plain", &json!({}))).await;
    assert_eq!(plain["spec"]["priority"], 0);
    assert_eq!(plain["spec"]["priorityClassName"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn a_priority_that_is_not_that_of_the_class_is_refused() {
    let server = Server::with_admission().await;
    let unknown = pod("a", &json!({"priorityClassName": own("none")}));
    assert_eq!(
        refused(call(&server, "POST", PODS, &unknown).await, 403),
        format!("pods \"a\" is forbidden: no PriorityClass with name {} was found", own("none"))
    );
    assert_eq!(
        refused(call(&server, "POST", PODS, &pod("a", &json!({"priority": 7}))).await, 403),
        "pods \"a\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission \
         controller computed 0 from the given PriorityClass name"
    );
    let sent = json!({"priorityClassName": "system-node-critical", "preemptionPolicy": "Never"});
    assert_eq!(
        refused(call(&server, "POST", PODS, &pod("a", &sent)).await, 403),
        "pods \"a\" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority \
         admission controller computed PreemptLowerPriority from the given PriorityClass name"
    );
}

#[tokio::test(start_paused = true)]
async fn the_classes_of_the_system_exist() {
    let server = Server::with_admission().await;
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
    {
        let (code, class) = get(&server, &format!("{CLASSES}/{name}")).await;
        assert_eq!((code, &class["value"]), (200, &json!(value)));
    }
}

/// On the embedded server alone: a default class would reach pods of other tests.
#[tokio::test(start_paused = true)]
async fn there_is_one_default_class_for_pods_without_one() {
    let server = Server::embedded_with_admission("Priority").await;
    let class = |name: &str, default: bool| json!({"metadata": {"name": name}, "value": 50, "globalDefault": default});
    post(&server, CLASSES, &class("usual", true)).await;
    let created = post(&server, PODS, &pod("a", &json!({}))).await;
    assert_eq!(created["spec"]["priorityClassName"], "usual");
    assert_eq!(created["spec"]["priority"], 50);
    let why = "PriorityClass usual is already marked as default. Only one default can exist";
    assert_eq!(
        refused(call(&server, "POST", CLASSES, &class("other", true)).await, 403),
        format!("priorityclasses.scheduling.k8s.io \"other\" is forbidden: {why}")
    );
    post(&server, CLASSES, &class("other", false)).await;
    let (code, _) = call(&server, "PUT", &format!("{CLASSES}/usual"), &class("usual", true)).await;
    assert_eq!(code, 200);
}

#[tokio::test(start_paused = true)]
async fn without_the_plugin_a_class_is_only_a_name() {
    let server = Server::embedded(|settings| settings).await;
    let created = post(&server, PODS, &pod("a", &json!({"priorityClassName": "none"}))).await;
    assert_eq!(created["spec"]["priority"], 0);
    assert_eq!(get(&server, &format!("{CLASSES}/system-node-critical")).await.0, 404);
}
