//! Pods on a fake node, without a server: decisions are carried out in memory.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::plan::{Addresses, decide};
use super::script::{EXIT_AFTER, EXIT_CODE, IMAGE_PULL_ERROR, READY_DELAY, START_DELAY, STOP_DELAY};

struct Life {
    pod: Pod,
    now: Timestamp,
    events: Vec<&'static str>,
    is_gone: bool,
}

impl Life {
    fn new(annotations: &Value, restart_policy: &str) -> Self {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "annotations": annotations},
            "spec": {"nodeName": "n", "restartPolicy": restart_policy, "containers": [{"name": "main", "image": "web:1"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        });
        let pod = serde_json::from_value(pod).unwrap();
        Self { pod, now: "2026-01-01T00:00:00.5Z".parse().unwrap(), events: Vec::new(), is_gone: false }
    }

    /// Moves on until nothing is left to do for now; returns when to look again.
    fn settle(&mut self) -> Option<Duration> {
        for _ in 0..20 {
            let addresses = || Addresses { host: "172.18.0.2".to_owned(), pod: "10.244.0.2".to_owned() };
            let decision = decide(&self.pod, addresses, self.now);
            self.events.extend(decision.events.iter().map(|(_, reason, _)| *reason));
            self.is_gone |= decision.remove;
            match decision.status {
                Some(status) if !decision.remove => self.pod.status = Some(status),
                _ => return decision.wake,
            }
        }
        panic!("the pod does not come to rest: {:?}", self.pod.status);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.checked_add(time).unwrap();
    }

    fn status(&self) -> Value {
        serde_json::to_value(self.pod.status.as_ref().unwrap()).unwrap()
    }

    fn phase(&self) -> String {
        self.status()["phase"].as_str().unwrap().to_owned()
    }

    fn condition(&self, of: &str) -> Value {
        let status = self.status();
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == of).unwrap().clone()
    }
}

#[test]
fn a_pod_runs_and_is_ready_at_once() {
    let mut life = Life::new(&json!({}), "Always");
    assert_eq!(life.settle(), None);
    let status = life.status();
    assert_eq!((&status["phase"], &status["qosClass"]), (&json!("Running"), &json!("BestEffort")));
    assert_eq!((&status["podIP"], &status["hostIP"]), (&json!("10.244.0.2"), &json!("172.18.0.2")));
    let container = &status["containerStatuses"][0];
    assert_eq!(container["state"]["running"]["startedAt"], "2026-01-01T00:00:00Z");
    assert_eq!(
        (&container["ready"], &container["started"], &container["restartCount"]),
        (&json!(true), &json!(true), &json!(0))
    );
    for of in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(life.condition(of)["status"], "True", "{of}");
    }
    assert_eq!(life.events, ["Pulled", "Created", "Started"]);
}

#[test]
fn a_pod_starts_and_becomes_ready_after_its_delays() {
    let mut life = Life::new(&json!({START_DELAY: "5s", READY_DELAY: "10s"}), "Always");
    let wait = life.settle().unwrap();
    assert_eq!(
        (life.phase().as_str(), life.condition("Ready")["reason"].clone()),
        ("Pending", json!("ContainersNotReady"))
    );
    assert!(wait >= Duration::from_secs(5) && wait <= Duration::from_secs(6), "{wait:?}");
    life.pass(wait);
    let wait = life.settle().unwrap();
    assert_eq!(
        (life.phase().as_str(), life.condition("Ready")["status"].clone()),
        ("Running", json!("False"))
    );
    life.pass(wait);
    assert_eq!(life.settle(), None);
    assert_eq!(life.condition("Ready")["status"], "True");
    let mut never = Life::new(&json!({READY_DELAY: "never"}), "Always");
    assert_eq!(never.settle(), None);
    assert_eq!(
        (never.phase().as_str(), never.condition("Ready")["status"].clone()),
        ("Running", json!("False"))
    );
}

#[test]
fn a_pod_that_is_not_restarted_completes_or_fails() {
    for (code, phase, reason) in [("0", "Succeeded", "PodCompleted"), ("3", "Failed", "PodFailed")] {
        let mut life = Life::new(&json!({EXIT_CODE: code}), "Never");
        assert_eq!(life.settle(), None);
        assert_eq!((life.phase().as_str(), &life.condition("Ready")["reason"]), (phase, &json!(reason)));
        assert_eq!(
            life.status()["containerStatuses"][0]["state"]["terminated"]["exitCode"].to_string(),
            code
        );
    }
    let mut life = Life::new(&json!({EXIT_AFTER: "30s"}), "OnFailure");
    let wait = life.settle().unwrap();
    assert_eq!(life.phase(), "Running");
    life.pass(wait);
    life.settle();
    assert_eq!(life.phase(), "Succeeded");
}

#[test]
fn a_container_that_keeps_exiting_is_in_a_crash_loop() {
    let mut life = Life::new(&json!({EXIT_CODE: "1"}), "Always");
    for restarts in 1..4 {
        let wait = life.settle().unwrap();
        let status = life.status();
        let container = &status["containerStatuses"][0];
        assert_eq!(container["restartCount"], restarts);
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
        assert_eq!((life.phase().as_str(), &life.condition("Ready")["status"]), ("Running", &json!("False")));
        life.pass(wait);
    }
    assert!(life.events.contains(&"BackOff"));
}

#[test]
fn an_image_that_cannot_be_pulled_keeps_the_pod_pending() {
    let mut life = Life::new(&json!({IMAGE_PULL_ERROR: "not found"}), "Always");
    assert_eq!(life.settle(), None);
    let status = life.status();
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "ImagePullBackOff");
    assert_eq!((life.phase().as_str(), &life.events[..]), ("Pending", &["Failed", "BackOff"][..]));
}

#[test]
fn a_deleted_pod_stops_within_its_grace_period() {
    let mut life = Life::new(&json!({STOP_DELAY: "5s"}), "Always");
    life.settle();
    life.pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:30Z")).unwrap();
    life.pod.metadata.deletion_grace_period_seconds = Some(30);
    let wait = life.settle().unwrap();
    assert!(!life.is_gone);
    life.pass(wait);
    life.settle();
    assert!(life.is_gone);
    assert_eq!(life.events.last(), Some(&"Killing"));
}

#[test]
fn a_pod_past_its_deadline_fails() {
    let mut life = Life::new(&json!({}), "Always");
    life.pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    let wait = life.settle().unwrap();
    life.pass(wait);
    life.settle();
    assert_eq!((life.phase().as_str(), &life.status()["reason"]), ("Failed", &json!("DeadlineExceeded")));
}

#[test]
fn a_status_says_of_which_generation_it_is() {
    let mut life = Life::new(&json!({}), "Always");
    for generation in [1, 2] {
        life.pod.metadata.generation = Some(generation);
        life.settle();
        assert_eq!(life.status()["observedGeneration"], generation);
        assert_eq!(life.condition("Ready")["observedGeneration"], generation);
    }
}

#[test]
fn a_readiness_gate_holds_a_pod_back() {
    let mut life = Life::new(&json!({}), "Always");
    let gate = json!([{"conditionType": "example.dev/gate"}]);
    life.pod.spec.as_mut().unwrap().readiness_gates = serde_json::from_value(gate).unwrap();
    life.settle();
    assert_eq!(life.condition("Ready")["reason"], "ReadinessGatesNotReady");
    assert_eq!(life.condition("ContainersReady")["status"], "True");
    let met = json!({"type": "example.dev/gate", "status": "True"});
    life.pod.status.as_mut().unwrap().conditions.as_mut().unwrap().push(serde_json::from_value(met).unwrap());
    life.settle();
    assert_eq!(life.condition("Ready")["status"], "True");
}
