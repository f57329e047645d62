//! Bindings: a scheduler assigns a pod to a node.

use serde_json::{Value, json};

use crate::failure::Cause;
use crate::kinds::cells::text;
use crate::kinds::conditions;

/// Validates a binding.
pub(crate) fn validate(binding: &Value) -> Vec<Cause> {
    let (kind, name) = (&binding["target"]["kind"], &binding["target"]["name"]);
    let mut causes = Vec::new();
    if !["", "Node"].contains(&text(kind)) {
        causes.push(Cause::not_supported("target.kind", &text(kind).into(), &["Node", "<empty>"]));
    }
    if text(name).is_empty() {
        causes.push(Cause::required("target.name", ""));
    }
    causes
}

/// Gives a pod the node, annotations and labels of a binding.
pub(crate) fn bind(pod: &mut Value, binding: &Value, now: &str) {
    pod["spec"]["nodeName"] = text(&binding["target"]["name"]).into();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key.as_str()] = value.clone();
        }
    }
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    conditions::set(&mut pod["status"], scheduled);
}
