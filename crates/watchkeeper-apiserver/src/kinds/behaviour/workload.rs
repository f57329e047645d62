//! Behaviour common to Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: a pod template and a selector.

use serde_json::{Value, json};

use super::pod_spec;
use crate::failure::Cause;
use crate::kinds::cells::{Row, containers, number, selector};
use crate::kinds::fill::fill;

/// Fills in the defaults of `spec.template`, if there is one.
pub(super) fn default_template(spec: &mut Value) {
    if spec.get("template").is_some_and(Value::is_object) {
        fill(&mut spec["template"], "metadata", json!({}));
        pod_spec::defaults(&mut spec["template"]["spec"]);
    }
}

/// Fills in the number of replicas and the defaults of `spec.template`.
pub(super) fn default_replicas(spec: &mut Value) {
    fill(spec, "replicas", 1.into());
    default_template(spec);
}

/// Fills in `spec.updateStrategy`, with `details` for a rolling update.
pub(super) fn default_update_strategy(spec: &mut Value, details: &Value) {
    let strategy = &mut spec["updateStrategy"];
    fill(strategy, "type", "RollingUpdate".into());
    if strategy["type"] == "RollingUpdate" {
        fill(strategy, "rollingUpdate", json!({}));
        for (field, default) in details.as_object().into_iter().flatten() {
            fill(&mut strategy["rollingUpdate"], field, default.clone());
        }
    }
}

/// Validates the replicas, the selector and the pod template.
pub(super) fn validate(workload: &Value, causes: &mut Vec<Cause>) {
    let spec = &workload["spec"];
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        let problem = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &spec["replicas"], problem));
    }
    let selector = &spec["selector"];
    if !selector.is_object() {
        causes.push(Cause::required("spec.selector", ""));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !selects(selector, labels) {
        let problem = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, problem));
    }
    pod_spec::validate(&spec["template"]["spec"], "spec.template.spec", causes);
}

fn selects(selector: &Value, labels: &Value) -> bool {
    match selector["matchLabels"].as_object() {
        Some(wanted) => wanted.iter().all(|(key, value)| labels.get(key) == Some(value)),
        None => selector["matchExpressions"].is_array(),
    }
}

/// Refuses pods that would not be restarted.
pub(super) fn validate_restart_policy(workload: &Value, causes: &mut Vec<Cause>) {
    let policy = &workload["spec"]["template"]["spec"]["restartPolicy"];
    if policy.as_str().is_some_and(|policy| policy != "Always") {
        causes.push(Cause::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

/// Refuses a change of the selector: pods would lose their owner.
pub(super) fn validate_selector_update(old: &Value, new: &Value) -> Vec<Cause> {
    let (old, new) = (&old["spec"]["selector"], &new["spec"]["selector"]);
    let cause = || Cause::invalid("spec.selector", new, "field is immutable");
    (old != new).then(cause).into_iter().collect()
}

/// The cells Name, Desired, Current, Ready, Age, Containers, Images and Selector.
pub(super) fn replicas_row(row: &Row<'_>) -> Value {
    let (spec, status) = (row.spec(), row.status());
    json!([
        row.name(),
        number(&spec["replicas"]),
        number(&status["replicas"]),
        number(&status["readyReplicas"]),
        row.age(),
        containers(&spec["template"], "name"),
        containers(&spec["template"], "image"),
        selector(&spec["selector"]),
    ])
}
