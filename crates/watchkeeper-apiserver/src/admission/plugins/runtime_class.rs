//! `RuntimeClass`: a pod gets the overhead, the node selector and the tolerations of its runtime class.

use serde_json::{Map, Value};

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::Plugin;
use crate::failure::{Result, quoted};
use crate::kinds::cells::{list, text};
use crate::state::store::Key;

#[derive(Debug)]
pub(in crate::admission) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn mutate(&self, attempt: &Attempt<'_>, pod: &mut Value) -> Result<()> {
        if !is_new_pod(attempt) {
            return Ok(());
        }
        let Some(class) = class_of(attempt, pod)? else { return Ok(()) };
        let overhead = &class["overhead"]["podFixed"];
        if overhead.is_object() {
            if pod["spec"].get("overhead").is_some_and(|sent| sent != overhead) {
                return Err(attempt.forbidden(Some(pod), OTHER_OVERHEAD));
            }
            pod["spec"]["overhead"] = overhead.clone();
        }
        schedule(attempt, pod, &class["scheduling"])
    }

    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        let Some(pod) = object.filter(|_| is_new_pod(attempt)) else { return Ok(()) };
        let class = class_of(attempt, pod)?.unwrap_or_default();
        let wanted = class["overhead"].get("podFixed");
        match (wanted, pod["spec"].get("overhead")) {
            (wanted, found) if wanted == found => Ok(()),
            (Some(_), _) => Err(attempt.forbidden(object, OTHER_OVERHEAD)),
            (None, _) => Err(attempt.forbidden(object, LONE_OVERHEAD)),
        }
    }
}

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const LONE_OVERHEAD: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

fn is_new_pod(attempt: &Attempt<'_>) -> bool {
    attempt.operation == Operation::Create && attempt.is_about("", "pods")
}

/// Returns the runtime class that a pod names.
fn class_of(attempt: &Attempt<'_>, pod: &Value) -> Result<Option<Value>> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else { return Ok(None) };
    let found = attempt.find("node.k8s.io", "v1", "runtimeclasses", &Key::new("", name));
    match found {
        Some(class) => Ok(Some(class.value())),
        None => {
            let why = format!("pod rejected: RuntimeClass {} not found", quoted(name));
            Err(attempt.forbidden(Some(pod), &why))
        }
    }
}

/// Adds the node selector and the tolerations of a class to those of the pod.
fn schedule(attempt: &Attempt<'_>, pod: &mut Value, scheduling: &Value) -> Result<()> {
    let mut selector = pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
    for (key, wanted) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(sent) = selector.get(key).filter(|sent| *sent != wanted) {
            let (wanted, sent) = (text(wanted), text(sent));
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {sent}"
            );
            return Err(attempt.forbidden(Some(pod), &why));
        }
        selector.insert(key.clone(), wanted.clone());
    }
    let tolerations = merged(list(&pod["spec"]["tolerations"]), list(&scheduling["tolerations"]));
    let Value::Object(spec) = &mut pod["spec"] else { return Ok(()) };
    set(spec, "nodeSelector", (!selector.is_empty()).then_some(Value::Object(selector)));
    set(spec, "tolerations", (!tolerations.is_empty()).then_some(Value::Array(tolerations)));
    Ok(())
}

fn set(spec: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        spec.insert(field.to_owned(), value);
    }
}

/// Both lists of tolerations, without those that others of them include. Of equal ones the first stays.
fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<_> = first.iter().chain(second).collect();
    let mut merged: Vec<&Value> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let mut later = all[at + 1..].iter();
        let is_redundant = merged.iter().any(|kept| includes(kept, one))
            || later.any(|other| other != one && includes(other, one));
        if !is_redundant {
            merged.push(one);
        }
    }
    merged.into_iter().cloned().collect()
}

/// Whether `wide` tolerates all that `narrow` tolerates.
fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let same = |field: &str| text(&wide[field]) == text(&narrow[field]);
    let is_everything = text(&wide["key"]).is_empty() && wide["operator"] == "Exists";
    if !same("key") && !is_everything || !same("effect") && !text(&wide["effect"]).is_empty() {
        return false;
    }
    if let (true, Some(limit)) = (wide["effect"] == "NoExecute", wide["tolerationSeconds"].as_i64())
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(&wide["operator"]) {
        "Exists" => true,
        "" | "Equal" => narrow["operator"] == "Equal" && same("value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_two_tolerations_the_wider_one_stays() {
        let all = json!({"operator": "Exists"});
        let key = json!({"key": "a", "operator": "Exists"});
        let value = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let other = json!({"key": "c", "operator": "Equal", "value": "b"});
        let merge = |first: Value, second: Value| Value::Array(merged(list(&first), list(&second)));
        assert_eq!(merge(json!([value]), json!([key])), json!([key]));
        assert_eq!(merge(json!([key]), json!([value, other])), json!([key, other]));
        assert_eq!(merge(json!([key, other]), json!([all])), json!([all]));
        assert_eq!(merge(json!([key]), json!([key])), json!([key]));
        let evicted = |seconds: i64| json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        assert_eq!(merge(json!([evicted(5)]), json!([evicted(9)])), json!([evicted(9)]));
        assert_eq!(merge(json!([evicted(9)]), json!([evicted(5)])), json!([evicted(9)]));
    }
}
