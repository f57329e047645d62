//! Evictions, and the disruption budgets that refuse them.

use serde_json::{Value, json};

use crate::common::*;
use crate::{PODS, message, pod};

const BUDGETS: &str = "/apis/policy/v1/namespaces/wktest/poddisruptionbudgets";

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_gets_one_disruption_condition() {
    let server = Server::start().await;
    let made = post(&server, PODS, &pod(&json!({"nodeName": "n"}))).await;
    let mut watch = Watch::open(&server, &format!("{PODS}?watch=1&resourceVersion={}", version(&made))).await;
    let eviction = json!({"metadata": {"name": "p"}});
    let mut seen = Vec::new();
    for _ in 0..2 {
        assert_eq!(call(&server, "POST", &format!("{PODS}/p/eviction"), &eviction).await.0, 201);
        seen.push(get(&server, &format!("{PODS}/p")).await.1);
        server.env.clock.sleep(std::time::Duration::from_secs(1)).await;
    }
    assert_eq!(seen[0]["status"]["conditions"][0]["reason"], "EvictionByEvictionAPI", "{}", seen[0]);
    assert_eq!(seen[0], seen[1]);
    // The condition is written before the deletion.
    for is_going in [false, true] {
        let pod = watch.next().await.unwrap()["object"].clone();
        assert_eq!(pod["status"]["conditions"][0]["type"], "DisruptionTarget", "{pod}");
        assert_eq!(pod["metadata"].get("deletionTimestamp").is_some(), is_going, "{pod}");
    }
}

/// Creates a running pod on a node.
async fn run(server: &Server, name: &str, is_ready: bool) {
    let mut running = pod(&json!({"nodeName": "n"}));
    running["metadata"] = json!({"name": name, "labels": {"a": "b"}});
    post(server, PODS, &running).await;
    let ready = if is_ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    assert_eq!(patch(server, &format!("{PODS}/{name}/status"), MERGE, &status).await.0, 200);
}

/// Creates a budget for the pods of a selector.
async fn budget(server: &Server, name: &str, selector: &Value) {
    let budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}});
    post(server, BUDGETS, &budget).await;
}

/// Writes the status of the budget as its controller would.
async fn count(server: &Server, status: &Value) {
    let (code, answer) =
        patch(server, &format!("{BUDGETS}/x/status"), MERGE, &json!({"status": status})).await;
    assert_eq!(code, 200, "{answer}");
}

/// Returns the status code of an eviction, and the message of a refusal.
async fn evict(server: &Server, name: &str, query: &str) -> (u16, String) {
    let eviction = json!({"metadata": {"name": name}});
    let (code, answer) = call(server, "POST", &format!("{PODS}/{name}/eviction{query}"), &eviction).await;
    let cause = answer["details"]["causes"][0]["message"].as_str().unwrap_or_default();
    (code, cause.to_owned())
}

#[tokio::test(start_paused = true)]
async fn evictions_are_charged_to_a_budget() {
    let server = Server::start().await;
    for name in ["p0", "p1", "p2", "p3"] {
        run(&server, name, true).await;
    }
    budget(&server, "x", &json!({"matchLabels": {"a": "b"}})).await;
    let uncounted = "The disruption budget x is still being processed by the server.";
    assert_eq!(evict(&server, "p0", "").await, (429, uncounted.to_owned()));
    let none = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 3, "currentHealthy": 3, "expectedPods": 3});
    count(&server, &none).await;
    let few = "The disruption budget x needs 3 healthy pods and has 3 currently";
    assert_eq!(evict(&server, "p0", "").await, (429, few.to_owned()));
    count(&server, &json!({"disruptionsAllowed": 2, "currentHealthy": 5})).await;
    assert_eq!(evict(&server, "p0", "?dryRun=All").await.0, 201);
    for (name, left) in [("p0", 1), ("p1", 0)] {
        assert_eq!(evict(&server, name, "").await, (201, String::new()));
        let status = get(&server, &format!("{BUDGETS}/x")).await.1["status"].clone();
        assert_eq!(status["disruptionsAllowed"], left, "{status}");
        assert!(status["disruptedPods"].get(name).is_some(), "{status}");
        assert_eq!(status["conditions"][0]["reason"] == "InsufficientPods", left == 0, "{status}");
    }
    let spent = "The disruption budget x does not allow evicting pods currently";
    assert_eq!(evict(&server, "p2", "").await, (429, spent.to_owned()));
    assert_eq!(get(&server, &format!("{PODS}/p2")).await.1["metadata"].get("deletionTimestamp"), None);
    // A pod that is being deleted is not counted again.
    assert_eq!(evict(&server, "p0", "").await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_count_can_always_be_evicted() {
    let server = Server::start().await;
    budget(&server, "x", &json!({"matchLabels": {"a": "b"}})).await;
    let mut waits = pod(&json!({"nodeName": "n"}));
    waits["metadata"]["labels"] = json!({"a": "b"});
    post(&server, PODS, &waits).await;
    assert_eq!(evict(&server, "p", "").await.0, 201, "it does not run yet");
    run(&server, "unready", false).await;
    assert_eq!(evict(&server, "unready", "").await.0, 429, "nobody has counted");
    let met = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 2});
    count(&server, &met).await;
    run(&server, "ready", true).await;
    assert_eq!(evict(&server, "ready", "").await.0, 429);
    assert_eq!(evict(&server, "unready", "").await.0, 201, "enough others are healthy");
    count(&server, &json!({"currentHealthy": 0})).await;
    run(&server, "another", false).await;
    assert_eq!(evict(&server, "another", "").await.0, 429, "each one may be needed");
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    patch(&server, &format!("{BUDGETS}/x"), MERGE, &always).await;
    assert_eq!(evict(&server, "another", "").await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_budget_supports_every_kind_of_selector() {
    let server = Server::start().await;
    for (name, selector, code) in [
        ("all", json!({}), 429),
        ("has", json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), 429),
        ("lacks", json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}), 201),
        ("none", Value::Null, 201),
    ] {
        run(&server, name, true).await;
        budget(&server, "x", &selector).await;
        assert_eq!(evict(&server, name, "").await.0, code, "{name}");
        call(&server, "DELETE", &format!("{BUDGETS}/x"), &Value::Null).await;
    }
    run(&server, "two", true).await;
    budget(&server, "x", &json!({})).await;
    budget(&server, "y", &json!({})).await;
    let eviction = json!({"metadata": {"name": "two"}});
    let (code, answer) = call(&server, "POST", &format!("{PODS}/two/eviction"), &eviction).await;
    let refused =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, message(&answer)), (500, refused));
}
