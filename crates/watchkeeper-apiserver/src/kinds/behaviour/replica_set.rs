//! ReplicaSets, and ReplicationControllers, which they replace.

use serde_json::Value;

use super::{Behaviour, Change, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::Row;
use crate::kinds::kind::Kind;

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
