//! Logs of pods on fake nodes.

use serde_json::{Value, json};

use crate::common::*;
use crate::{PODS, message, pod};

const START: &str = "2026-01-02T03:04:05Z";

/// A fake node, and a pod on it with these annotations and this status of its container.
async fn on_a_fake_node(annotations: &Value, status: &Value) -> Server {
    let server = Server::embedded(|settings| settings).await;
    let node = json!({"metadata": {"name": "n", "annotations": {"watchkeeper.dev/fake-node": "true"}}});
    post(&server, "/api/v1/nodes", &node).await;
    let mut pod = pod(&json!({"nodeName": "n"}));
    pod["metadata"]["annotations"] = annotations.clone();
    pod["spec"]["containers"][0]["command"] = json!(["sleep", "9"]);
    post(&server, PODS, &pod).await;
    let mut status = status.clone();
    status["name"] = "c".into();
    let statuses = json!({"status": {"containerStatuses": [status]}});
    let (code, answer) = patch(&server, &format!("{PODS}/p/status"), MERGE, &statuses).await;
    assert_eq!(code, 200, "{answer}");
    server
}

async fn log(server: &Server, query: &str) -> (u16, String) {
    let (code, answer) = get(server, &format!("{PODS}/p/log{query}")).await;
    (code, answer.as_str().map_or_else(|| message(&answer).to_owned(), str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_pod_on_a_fake_node_says_what_it_pretends() {
    let ended =
        json!({"startedAt": START, "finishedAt": "2026-01-02T03:04:14Z", "exitCode": 3, "reason": "Error"});
    let script = json!({"watchkeeper.dev/exit-code": "3", "other": "x"});
    let server = on_a_fake_node(&script, &json!({"state": {"terminated": ended}})).await;
    let all = "c: started from image i on n, a fake node: no process runs\n\
               c: command: sleep 9\n\
               c: script: watchkeeper.dev/exit-code=3\n\
               c: exited with code 3 (Error)\n";
    assert_eq!(log(&server, "").await, (200, all.to_owned()));
    assert_eq!(log(&server, "?container=c").await.1, all);
    let last = "c: exited with code 3 (Error)\n";
    assert_eq!(log(&server, "?tailLines=1").await.1, last);
    assert_eq!(log(&server, "?sinceTime=2026-01-02T03:04:10Z").await.1, last);
    assert_eq!(
        log(&server, "?tailLines=1&timestamps=true").await.1,
        format!("2026-01-02T03:04:14.000000000Z {last}")
    );
    assert_eq!(log(&server, "?limitBytes=10").await.1, "c: started");
    assert_eq!(log(&server, "?tailLines=0").await.0, 204);
    let (code, why) = log(&server, "?tailLines=-1").await;
    assert_eq!(code, 422);
    assert!(why.contains("tailLines: Invalid value: -1: must be greater than or equal to 0"), "{why}");
    for seconds in [0, i64::MIN] {
        let (code, why) = log(&server, &format!("?sinceSeconds={seconds}")).await;
        assert_eq!(code, 422);
        let problem = format!("sinceSeconds: Invalid value: {seconds}: must be greater than 0");
        assert!(why.contains(&problem), "{why}");
    }
    let long_ago = format!("?sinceSeconds={}", i64::MAX);
    assert_eq!(log(&server, &long_ago).await, (200, all.to_owned()), "before all times that there are");
    let why = "previous terminated container \"c\" in pod \"p\" not found";
    assert_eq!(log(&server, "?previous=true").await, (400, why.to_owned()));
    assert_eq!(log(&server, "?container=x").await, (400, "container x is not valid for pod p".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_log_between_two_runs_is_that_of_the_last_one() {
    let ended = json!({"terminated": {"startedAt": START, "exitCode": 1, "reason": "Error"}});
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let server = on_a_fake_node(&json!({}), &json!({"state": waiting, "lastState": ended})).await;
    let (code, log_now) = log(&server, "").await;
    assert_eq!(code, 200);
    assert!(log_now.ends_with("c: exited with code 1 (Error)\n"), "{log_now}");
    assert_eq!(log(&server, "?previous=1").await, (200, log_now));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_waits_has_no_log() {
    for (reason, shown) in
        [("ContainerCreating", "ContainerCreating"), ("ImagePullBackOff", "trying and failing to pull image")]
    {
        let server = on_a_fake_node(&json!({}), &json!({"state": {"waiting": {"reason": reason}}})).await;
        let why = format!("container \"c\" in pod \"p\" is waiting to start: {shown}");
        assert_eq!(log(&server, "").await, (400, why));
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotation_is_the_log() {
    let written = json!({"watchkeeper.dev/log": "one\ntwo"});
    let server = on_a_fake_node(&written, &json!({"state": {"running": {"startedAt": START}}})).await;
    assert_eq!(log(&server, "").await, (200, "one\ntwo\n".to_owned()));
    assert_eq!(log(&server, "?tailLines=1").await.1, "two\n");
}
