//! Deployments.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, containers, number, selector};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct Deployment;

impl Behaviour for Deployment {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        workload::default_replicas(spec);
        default_strategy(spec);
        fill(spec, "revisionHistoryLimit", 10.into());
        fill(spec, "progressDeadlineSeconds", 600.into());
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let causes = &mut findings.causes;
        workload::validate(change.new, causes);
        causes.extend(strategy_cause(&change.new["spec"]["strategy"]));
        validate_status(&change.new["status"], causes);
        workload::validate_restart_policy(change.new, causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        workload::validate_selector_update(old, new)
    }

    /// Annotations are copied to the ReplicaSets.
    fn desired_metadata(&self) -> &'static [&'static str] {
        &["annotations"]
    }

    fn headers(&self) -> &'static str {
        "Name Ready Up-to-date Available Age Containers* Images* Selector*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let (spec, status) = (row.spec(), row.status());
        json!([
            row.name(),
            format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"])),
            number(&status["updatedReplicas"]),
            number(&status["availableReplicas"]),
            row.age(),
            containers(&spec["template"], "name"),
            containers(&spec["template"], "image"),
            selector(&spec["selector"]),
        ])
    }
}

fn default_strategy(spec: &mut Value) {
    fill(spec, "strategy", json!({}));
    let strategy = &mut spec["strategy"];
    fill(strategy, "type", "RollingUpdate".into());
    if strategy["type"] == "RollingUpdate" {
        fill(strategy, "rollingUpdate", json!({}));
        fill(&mut strategy["rollingUpdate"], "maxUnavailable", "25%".into());
        fill(&mut strategy["rollingUpdate"], "maxSurge", "25%".into());
    }
}

fn strategy_cause(strategy: &Value) -> Option<Cause> {
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if strategy["rollingUpdate"].is_object() => {
            let problem = "may not be specified when strategy `type` is 'Recreate'";
            Some(Cause::forbidden("spec.strategy.rollingUpdate", problem))
        }
        "Recreate" | "RollingUpdate" => None,
        other => {
            let shown = go_strategy(other, &strategy["rollingUpdate"]);
            let message =
                format!("Unsupported value: {shown}: supported values: \"Recreate\", \"RollingUpdate\"");
            let field = "spec.strategy".to_owned();
            Some(Cause { reason: "FieldValueNotSupported", message, field })
        }
    }
}

/// A strategy as the real server prints its Go struct.
fn go_strategy(name: &str, rolling: &Value) -> String {
    let rolling = match rolling {
        Value::Object(map) => {
            let part = |field: &str| map.get(field).unwrap_or(&Value::Null).to_string();
            let (unavailable, surge) = (part("maxUnavailable"), part("maxSurge"));
            format!("{{\"MaxUnavailable\":{unavailable},\"MaxSurge\":{surge}}}")
        }
        _ => "null".to_owned(),
    };
    format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(name))
}

fn validate_status(status: &Value, causes: &mut Vec<Cause>) {
    let count = |field: &str| number(&status[field]);
    let mut report = |field: &str, problem: &str| {
        causes.push(Cause::invalid(&format!("status.{field}"), &count(field).into(), problem));
    };
    for field in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "observedGeneration",
    ] {
        if count(field) < 0 {
            report(field, "must be greater than or equal to 0");
        }
    }
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            report(field, "cannot be greater than status.replicas");
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        report("availableReplicas", "cannot be greater than readyReplicas");
    }
}
