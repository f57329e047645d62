//! `RuntimeClass`: what pods get from their runtime class.

use serde_json::{Value, json};

use crate::common::{Server, call, post};
use crate::{PODS, own, pod, refused};

const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn class(name: &str) -> Value {
    json!({"metadata": {"name": own(name)}, "handler": "h",
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "wktest", "operator": "Exists", "effect": "NoSchedule"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_overhead_and_the_scheduling_of_its_class() {
    let server = Server::with_admission().await;
    post(&server, CLASSES, &class("full")).await;
    let narrow = json!({"key": "wktest", "operator": "Equal", "value": "a", "effect": "NoSchedule"});
    let wanted =
        json!({"runtimeClassName": own("full"), "nodeSelector": {"zone": "a"}, "tolerations": [narrow]});
    let created = post(&server, PODS, &pod("runs", &wanted)).await;
    let spec = &created["spec"];
    assert_eq!(spec["overhead"], json!({"cpu": "100m"}));
    assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "zone": "a"}));
    let tolerations = spec["tolerations"].as_array().unwrap();
    let own: Vec<_> = tolerations.iter().filter(|one| one["key"] == "wktest").collect();
    assert_eq!(own, [&class("full")["scheduling"]["tolerations"][0]], "the wider one stays");
    let plain = post(&server, PODS, &pod("plain", &json!({}))).await;
    assert_eq!((plain["spec"].get("overhead"), plain["spec"].get("nodeSelector")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_its_class_is_refused() {
    let server = Server::with_admission().await;
    post(&server, CLASSES, &class("strict")).await;
    let name = own("strict");
    for (spec, why) in [
        (
            json!({"runtimeClassName": own("missing")}),
            format!("pod rejected: RuntimeClass \"{}\" not found", own("missing")),
        ),
        (
            json!({"runtimeClassName": name, "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned(),
        ),
        (
            json!({"runtimeClassName": name, "nodeSelector": {"disk": "tape"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = tape"
                .to_owned(),
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned(),
        ),
    ] {
        let message = refused(call(&server, "POST", PODS, &pod("a", &spec)).await, 403);
        assert_eq!(message, format!("pods \"a\" is forbidden: {why}"));
    }
}
