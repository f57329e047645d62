//! Pods.

use serde_json::{Value, json};

use super::{Behaviour, Change, Context, Findings, Subresource, pod_spec};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, list, or, text};
use crate::kinds::conditions;
use crate::kinds::fill::{each, fill, remove_null};
use crate::kinds::kind::Kind;

pub(crate) mod binding;
mod summary;
mod validate;

/// The grace period of a pod whose spec has none.
const GRACE_SECONDS: i64 = 30;

#[derive(Debug)]
pub(in crate::kinds) struct Pod;

impl Behaviour for Pod {
    fn defaults(&self, _kind: &Kind, pod: &mut Value) -> Result<()> {
        let spec = &mut pod["spec"];
        pod_spec::defaults(spec);
        fill(spec, "enableServiceLinks", true.into());
        default_requests(spec);
        Ok(())
    }

    fn prepare_create(&self, pod: &mut Value, context: &dyn Context) {
        admit(&mut pod["spec"]);
        pod["status"]["qosClass"] = quality_of_service(&pod["spec"]).into();
        if is_gated(&pod["spec"]) {
            let waits = json!({
                "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": context.now(),
                "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
            });
            conditions::set(&mut pod["status"], waits);
        }
    }

    fn prepare_update(&self, _before: &Value, pod: &mut Value, _context: &dyn Context) {
        admit(&mut pod["spec"]);
    }

    /// The quality of service stays when a status leaves it out.
    fn prepare_status(&self, before: &Value, pod: &mut Value) {
        let (class, status) = (&before["status"]["qosClass"], &mut pod["status"]);
        if status.is_object() && status["qosClass"].is_null() && !class.is_null() {
            status["qosClass"] = class.clone();
        }
    }

    fn status_metadata(&self) -> &'static [&'static str] {
        &["annotations", "finalizers", "labels"]
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        validate::pod(change, &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        validate::update(&old["spec"], &new["spec"])
    }

    fn grace_period(&self, pod: &Value, wanted: Option<i64>) -> Option<i64> {
        let seconds = |seconds: i64| if seconds < 0 { 1 } else { seconds };
        let metadata = &pod["metadata"];
        let current = metadata["deletionGracePeriodSeconds"].as_i64();
        if let Some(current) = current.filter(|_| metadata["deletionTimestamp"].is_string()) {
            return Some(wanted.map_or(current, seconds).min(current));
        }
        let ended = ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]));
        if node_name(&pod["spec"]).is_empty() || ended {
            return Some(0);
        }
        let wanted = wanted.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64());
        Some(wanted.map_or(GRACE_SECONDS, seconds))
    }

    fn subresources(&self) -> &'static [Subresource] {
        &[
            Subresource { name: "binding", body: Some(("", "", "Binding")), verbs: &["create"] },
            Subresource { name: "eviction", body: Some(("policy", "v1", "Eviction")), verbs: &["create"] },
            Subresource { name: "log", body: None, verbs: &["get"] },
        ]
    }

    fn field_alias<'a>(&self, field: &'a str) -> &'a str {
        if field == "spec.host" { "spec.nodeName" } else { field }
    }

    fn field_value(&self, pod: &Value, path: &str) -> Option<String> {
        match path {
            "status.podIPs" => {
                let addresses = list(&pod["status"]["podIPs"]).iter().map(|address| text(&address["ip"]));
                Some(addresses.collect::<Vec<_>>().join(","))
            }
            "spec.hostNetwork" => Some((pod["spec"]["hostNetwork"] == true).to_string()),
            _ => None,
        }
    }

    fn headers(&self) -> &'static str {
        "Name Ready Status Restarts Age IP* Node* Nominated_Node* Readiness_Gates*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let (summary, status) = (summary::summary(row.object, row.now), row.status());
        json!([
            row.name(),
            summary.ready,
            summary.status,
            summary.restarts,
            row.age(),
            or(text(&status["podIP"]), "<none>"),
            or(node_name(row.spec()), "<none>"),
            or(text(&status["nominatedNodeName"]), "<none>"),
            readiness_gates(row),
        ])
    }
}

/// Returns whether a pod has scheduling gates.
pub(crate) fn is_gated(spec: &Value) -> bool {
    pod_spec::scheduling_gates(spec).next().is_some()
}

fn node_name(spec: &Value) -> &str {
    text(&spec["nodeName"])
}

/// Containers request what they are limited to, unless they say otherwise.
fn default_requests(spec: &mut Value) {
    for containers in ["containers", "initContainers"] {
        for container in each(&mut spec[containers]) {
            let resources = &mut container["resources"];
            let limits = resources["limits"].as_object().cloned().unwrap_or_default();
            for (resource, limit) in limits {
                fill(&mut resources["requests"], &resource, limit);
            }
            remove_null(resources, "requests");
            remove_null(resources, "limits");
        }
        remove_null(spec, containers);
    }
}

/// Adds what admission gives to every pod, new or changed.
fn admit(spec: &mut Value) {
    fill(spec, "priority", 0.into());
    fill(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    fill(spec, "tolerations", json!([]));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = each(&mut spec["tolerations"]).any(|toleration| toleration["key"] == key);
        if let (false, Value::Array(list)) = (tolerated, &mut spec["tolerations"]) {
            list.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

/// Returns the quality of service class: Guaranteed if all limits equal the requests, BestEffort without any, else
/// Burstable.
fn quality_of_service(spec: &Value) -> &'static str {
    let containers = list(&spec["containers"]);
    let any = containers.iter().any(|container| {
        let set = |kind| container["resources"][kind].as_object().is_some_and(|map| !map.is_empty());
        set("limits") || set("requests")
    });
    let all = containers.iter().all(|container| {
        ["cpu", "memory"].iter().all(|resource| {
            let asked = |kind: &str| container["resources"][kind].get(resource);
            let (limit, request) = (asked("limits"), asked("requests"));
            limit.is_some() && (request.is_none() || request == limit)
        })
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Returns the number of readiness gates that are met.
fn readiness_gates(row: &Row<'_>) -> String {
    let gates = list(&row.spec()["readinessGates"]);
    let is_met = |gate: &&Value| conditions::holds(row.status(), text(&gate["conditionType"]));
    match gates.len() {
        0 => "<none>".to_owned(),
        count => format!("{}/{count}", gates.iter().filter(is_met).count()),
    }
}
