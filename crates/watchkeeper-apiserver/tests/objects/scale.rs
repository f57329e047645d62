//! The scale subresource, and the ownership of `spec.replicas`.

use serde_json::{Value, json};

use crate::common::*;
use crate::{DEPLOYMENTS, deployment};

/// Returns the owners of `spec.replicas`, with the subresource through which each wrote.
pub(crate) fn owners(object: &Value) -> Vec<String> {
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let owning = managers.iter().filter(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    let mut owners: Vec<_> = owning
        .map(|entry| {
            let timed = if entry.get("time").is_some() { " at a time" } else { "" };
            format!("{}{timed}", entry["subresource"].as_str().unwrap_or("main"))
        })
        .collect();
    owners.sort();
    owners
}

#[tokio::test(start_paused = true)]
async fn a_scale_of_zero_is_not_printed() {
    let server = Server::start().await;
    post(&server, DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let (code, scale) = patch(&server, &path, MERGE, &json!({"spec": {"replicas": 0}})).await;
    assert_eq!((code, &scale["spec"]), (200, &json!({})), "{scale}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_to_the_present_replicas_has_no_owner() {
    let server = Server::start().await;
    let (path, scale) = (format!("{DEPLOYMENTS}/d"), format!("{DEPLOYMENTS}/d/scale"));
    assert_eq!(owners(&post(&server, DEPLOYMENTS, &deployment("d")).await), ["main at a time"]);
    for (replicas, expected) in [(1, &["main"][..]), (1, &[]), (0, &[]), (2, &[])] {
        let body = json!({"spec": {"replicas": replicas}});
        let (code, answer) = patch(&server, &scale, MERGE, &body).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(owners(&get(&server, &path).await.1), expected, "{replicas}");
    }
    patch(&server, &path, MERGE, &json!({"spec": {"replicas": 5}})).await;
    for (replicas, expected) in [(3, &["scale"][..]), (3, &["scale"]), (0, &[])] {
        patch(&server, &scale, MERGE, &json!({"spec": {"replicas": replicas}})).await;
        assert_eq!(owners(&get(&server, &path).await.1), expected, "{replicas}");
    }
}
