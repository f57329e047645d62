//! Validation of pods, and of updates of running and gated pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{is_gated, node_name};
use crate::failure::Cause;
use crate::kinds::behaviour::Change;
use crate::kinds::behaviour::pod_spec::{self, scheduling_gates};

/// Validates a pod.
pub(super) fn pod(change: &Change<'_>, causes: &mut Vec<Cause>) {
    let spec = &change.new["spec"];
    pod_spec::validate(spec, "spec", causes);
    if change.old.is_none() && is_gated(spec) && !node_name(spec).is_empty() {
        let problem = "cannot be set until all schedulingGates have been cleared";
        causes.push(Cause::forbidden("spec.nodeName", problem));
    }
}

/// Validates an update of a pod's spec.
pub(super) fn update(old: &Value, new: &Value) -> Vec<Cause> {
    let count = |spec: &Value| spec["containers"].as_array().map_or(0, Vec::len);
    if count(old) != count(new) {
        let problem = "pod updates may not add or remove containers";
        return vec![Cause::forbidden("spec.containers", problem)];
    }
    let mut causes = Vec::new();
    causes.extend(toleration_cause(old, new));
    causes.extend(deadline_cause(&old["activeDeadlineSeconds"], &new["activeDeadlineSeconds"]));
    causes.extend(gate_causes(old, new));
    let gated = is_gated(old);
    if gated {
        causes.extend(selector_cause(&old["nodeSelector"], &new["nodeSelector"]));
        causes.extend(affinity_causes(&node_selector_terms(old), &node_selector_terms(new)));
    }
    if !same_but_mutable(old, new, gated) {
        causes.push(Cause::forbidden("spec", POD_UPDATES));
    }
    causes
}

fn toleration_cause(old: &Value, new: &Value) -> Option<Cause> {
    let tolerations = |spec: &Value| {
        let mut list = spec["tolerations"].as_array().cloned().unwrap_or_default();
        list.iter_mut().for_each(|toleration| toleration["tolerationSeconds"] = Value::Null);
        list.iter().map(Value::to_string).collect::<BTreeSet<_>>()
    };
    let problem = "existing toleration can not be modified except its tolerationSeconds";
    let kept = tolerations(old).is_subset(&tolerations(new));
    (!kept).then(|| Cause::forbidden("spec.tolerations", problem))
}

/// Scheduling gates may only be removed.
fn gate_causes(old: &Value, new: &Value) -> Vec<Cause> {
    let known: BTreeSet<_> = scheduling_gates(old).collect();
    let added = scheduling_gates(new).enumerate().filter(|(_, gate)| !known.contains(gate));
    let cause = |(at, gate): (usize, &str)| {
        let problem = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        Cause::forbidden(&format!("spec.schedulingGates[{at}].name"), &problem)
    };
    added.map(cause).collect()
}

fn node_selector_terms(spec: &Value) -> Vec<Value> {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"].as_array().cloned().unwrap_or_default()
}

/// A pod that waits at a gate may ask more of its node, never less.
fn selector_cause(old: &Value, new: &Value) -> Option<Cause> {
    let kept = |(key, value): (&String, &Value)| new.get(key) == Some(value);
    let problem = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
    let narrowed = old.as_object().is_none_or(|old| old.iter().all(kept));
    (!narrowed).then(|| Cause::invalid("spec.nodeSelector", new, problem))
}

/// A term may get more requirements at its end; another term would let more nodes in.
fn affinity_causes(old: &[Value], new: &[Value]) -> Vec<Cause> {
    const TERMS: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    if old.is_empty() {
        return Vec::new();
    }
    if old.len() != new.len() {
        let problem = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = if new.is_empty() { Value::Null } else { new.iter().map(go_term).collect() };
        return vec![Cause::invalid(TERMS, &shown, problem)];
    }
    let list = |term: &Value, part: &str| term[part].as_array().cloned().unwrap_or_default();
    let begins = |old: &Value, new: &Value, part: &str| list(new, part).starts_with(&list(old, part));
    let pairs = old.iter().zip(new).enumerate();
    let changed = pairs.filter(|(_, (old, new))| {
        !["matchExpressions", "matchFields"].iter().all(|part| begins(old, new, part))
    });
    let problem = "only additions are allowed (no mutations or deletions)";
    changed.map(|(at, (_, new))| Cause::invalid(&format!("{TERMS}[{at}]"), &go_term(new), problem)).collect()
}

/// A term as the real server prints its Go struct.
fn go_term(term: &Value) -> Value {
    let part = |part: &str| -> Value {
        let Some(list) = term[part].as_array() else { return Value::Null };
        let requirement =
            |it: &Value| json!({"Key": it["key"], "Operator": it["operator"], "Values": it["values"]});
        list.iter().map(requirement).collect()
    };
    json!({"MatchExpressions": part("matchExpressions"), "MatchFields": part("matchFields")})
}

const POD_UPDATES: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The deadline of a pod may only come nearer.
fn deadline_cause(old: &Value, new: &Value) -> Option<Cause> {
    let problem = match (old.as_i64(), new.as_i64()) {
        (Some(_), None) => "must not update from a positive integer to nil value",
        (Some(old), Some(new)) if new > old => "must be less than or equal to previous value",
        _ => return None,
    };
    Some(Cause::invalid("spec.activeDeadlineSeconds", new, problem))
}

/// Whether two specs of a pod differ only in what may change while it runs, or waits at a gate.
fn same_but_mutable(old: &Value, new: &Value, gated: bool) -> bool {
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        for field in ["activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates"] {
            spec[field] = Value::Null;
        }
        if gated {
            spec["nodeSelector"] = Value::Null;
            spec["affinity"]["nodeAffinity"] = Value::Null;
        }
        if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
            spec["terminationGracePeriodSeconds"] = 1.into();
        }
        spec
    };
    // A node is given by a binding alone, and never taken away.
    node_name(old) == node_name(new) && fixed(old) == fixed(new)
}
