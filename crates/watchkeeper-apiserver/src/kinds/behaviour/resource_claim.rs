//! Dynamic resource allocation: ResourceClaims and their templates, DeviceClasses and ResourceSlices.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, list, or, text};
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct ResourceClaim;

impl Behaviour for ResourceClaim {
    fn defaults(&self, _kind: &Kind, claim: &mut Value) -> Result<()> {
        complete(&mut claim["spec"]);
        Ok(())
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        immutable(old, new)
    }

    fn headers(&self) -> &'static str {
        "Name State Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let status = row.status();
        let is_deleted = !row.object["metadata"]["deletionTimestamp"].is_null();
        let is_allocated = status["allocation"].is_object();
        let states = [
            (is_deleted, "deleted"),
            (!is_allocated && !is_deleted, "pending"),
            (is_allocated, "allocated"),
            (is_allocated && !list(&status["reservedFor"]).is_empty(), "reserved"),
        ];
        let states: Vec<_> = states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect();
        json!([row.name(), states.join(","), row.age()])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct ResourceClaimTemplate;

impl Behaviour for ResourceClaimTemplate {
    fn defaults(&self, _kind: &Kind, template: &mut Value) -> Result<()> {
        complete(&mut template["spec"]["spec"]);
        Ok(())
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        immutable(old, new)
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct DeviceClass;

impl Behaviour for DeviceClass {}

#[derive(Debug)]
pub(in crate::kinds) struct ResourceSlice;

impl Behaviour for ResourceSlice {
    fn headers(&self) -> &'static str {
        "Name Node Driver Pool Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([
            row.name(),
            or(text(&spec["nodeName"]), "<unset>"),
            text(&spec["driver"]),
            text(&spec["pool"]["name"]),
            row.age(),
        ])
    }
}

/// Applies the defaults of the requests of a claim.
fn complete(spec: &mut Value) {
    let Some(requests) = spec["devices"]["requests"].as_array_mut() else { return };
    for request in requests {
        if request["exactly"].is_object() {
            complete_request(&mut request["exactly"]);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().for_each(complete_request);
    }
}

fn complete_request(request: &mut Value) {
    if text(&request["allocationMode"]).is_empty() {
        request["allocationMode"] = "ExactCount".into();
    }
    if request["allocationMode"] == "ExactCount" && request["count"].as_i64().unwrap_or_default() == 0 {
        request["count"] = 1.into();
    }
    let tolerations = request.get_mut("tolerations").and_then(Value::as_array_mut);
    for toleration in tolerations.into_iter().flatten() {
        if text(&toleration["operator"]).is_empty() {
            toleration["operator"] = "Equal".into();
        }
    }
}

fn immutable(old: &Value, new: &Value) -> Vec<Cause> {
    let changed = old["spec"] != new["spec"];
    changed.then(|| Cause::invalid("spec", &new["spec"], "field is immutable")).into_iter().collect()
}
