//! ReplicaSets, and ReplicationControllers, which they replace.

use serde_json::Value;

use super::{Behaviour, Change, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::Row;
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

const HEADERS: &str = "Name Desired:integer Current:integer Ready:integer Age Containers* Images* Selector*";

#[derive(Debug)]
pub(in crate::kinds) struct ReplicaSet;

impl Behaviour for ReplicaSet {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        workload::default_replicas(&mut object["spec"]);
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        workload::validate(change.new, &mut findings.causes);
        workload::validate_restart_policy(change.new, &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        workload::validate_selector_update(old, new)
    }

    fn headers(&self) -> &'static str {
        HEADERS
    }

    fn row(&self, row: &Row<'_>) -> Value {
        workload::replicas_row(row)
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct ReplicationController;

impl Behaviour for ReplicationController {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        workload::default_replicas(&mut object["spec"]);
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            fill(&mut object["spec"], "selector", labels.clone());
            let own = meta::metadata_mut(object).entry("labels").or_insert(Value::Null);
            if own.as_object().is_none_or(serde_json::Map::is_empty) {
                *own = labels;
            }
        }
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let spec = &change.new["spec"];
        if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
            let problem = "must be greater than or equal to 0";
            findings.causes.push(Cause::invalid("spec.replicas", &spec["replicas"], problem));
        }
        let (wanted, labels) = (&spec["selector"], &spec["template"]["metadata"]["labels"]);
        let Some(selector) = wanted.as_object().filter(|selector| !selector.is_empty()) else {
            return findings.causes.push(Cause::required("spec.selector", ""));
        };
        if !spec["template"].is_object() {
            return findings.causes.push(Cause::required("spec.template", ""));
        }
        if !selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
            let problem = "`selector` does not match template `labels`";
            findings.causes.push(Cause::invalid("spec.template.metadata.labels", labels, problem));
        }
        workload::validate_restart_policy(change.new, &mut findings.causes);
    }

    fn field_value(&self, object: &Value, path: &str) -> Option<String> {
        (path == "status.replicas").then(|| object["status"]["replicas"].as_i64().unwrap_or(0).to_string())
    }

    fn headers(&self) -> &'static str {
        HEADERS
    }

    fn row(&self, row: &Row<'_>) -> Value {
        workload::replicas_row(row)
    }
}
