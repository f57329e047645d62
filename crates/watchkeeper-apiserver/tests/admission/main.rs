//! Admission. The same on the embedded and on a real server, where a test does not say otherwise.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../common/mod.rs"]
mod common;

mod accounts;
mod hook;
mod limits;
mod mutations;
mod policies;
mod priority;
mod quotas;
mod runtime;
mod storage;
mod webhooks;

use serde_json::{Value, json};

use common::OURS;

pub(crate) const PODS: &str = "/api/v1/namespaces/wktest/pods";

/// A name that no other test has, also on a shared server, for an object without a namespace.
pub(crate) fn own(name: &str) -> String {
    format!("{name}-{OURS}")
}

/// A pod with these fields in its spec.
pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// The message of a refusal with this code.
#[track_caller]
pub(crate) fn refused((code, answer): (u16, Value), expected: u16) -> String {
    assert_eq!(code, expected, "{answer}");
    answer["message"].as_str().unwrap().to_owned()
}
