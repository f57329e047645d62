//! Is a pod in order, and may it change like this?

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::failure::Cause;
use crate::kinds::meta;

/// What is wrong with a pod, which may be a new one.
pub(super) fn pod(pod: &Value, new: bool, causes: &mut Vec<Cause>) {
    spec(&pod["spec"], "spec", causes);
    if new && is_gated(&pod["spec"]) && !node(&pod["spec"]).is_empty() {
        let problem = "cannot be set until all schedulingGates have been cleared";
        causes.push(Cause::forbidden("spec.nodeName", problem));
    }
}

/// What is wrong with the spec of a pod, or of those to be made from a template.
pub(super) fn spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        causes.push(Cause::required(&format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for (at, container) in containers.iter().enumerate() {
        let path = format!("{path}.containers[{at}]");
        let name = container["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.push(Cause::required(&format!("{path}.name"), ""));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(&format!("{path}.name"), &name.into()));
        } else {
            let problems = meta::label_problems(name);
            causes.extend(problems.iter().map(|p| Cause::invalid(&format!("{path}.name"), &name.into(), p)));
        }
        if container["image"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(&format!("{path}.image"), ""));
        }
    }
    let policy = &spec["restartPolicy"];
    let policies = ["Always", "OnFailure", "Never"];
    if policy.as_str().is_some_and(|policy| !policies.contains(&policy)) {
        causes.push(Cause::not_supported(&format!("{path}.restartPolicy"), policy, &policies));
    }
    meta::validate_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector"), causes);
    let mut known = BTreeSet::new();
    for (at, gate) in gates(spec).enumerate() {
        let path = format!("{path}.schedulingGates[{at}]");
        if let Some(problem) = meta::qualified_name_problem(gate) {
            causes.push(Cause::invalid(&path, &gate.into(), &problem));
        }
        if !known.insert(gate) {
            causes.push(Cause::duplicate(&path, &gate.into()));
        }
    }
}

/// Whether a pod waits for something before it may get a node.
pub(crate) fn is_gated(spec: &Value) -> bool {
    gates(spec).next().is_some()
}

/// The names of what a pod waits for before it may get a node.
fn gates(spec: &Value) -> impl Iterator<Item = &str> {
    let gates = spec["schedulingGates"].as_array().into_iter().flatten();
    gates.map(|gate| gate["name"].as_str().unwrap_or_default())
}

fn node(spec: &Value) -> &str {
    spec["nodeName"].as_str().unwrap_or_default()
}

/// What is wrong with the change from `old` to `new`.
pub(super) fn update(old: &Value, new: &Value) -> Vec<Cause> {
    let (old, new) = (&old["spec"], &new["spec"]);
    let count = |spec: &Value| spec["containers"].as_array().map_or(0, Vec::len);
    if count(old) != count(new) {
        let problem = "pod updates may not add or remove containers";
        return vec![Cause::forbidden("spec.containers", problem)];
    }
    let mut causes = Vec::new();
    let tolerations = |spec: &Value| {
        let mut list = spec["tolerations"].as_array().cloned().unwrap_or_default();
        list.iter_mut().for_each(|toleration| toleration["tolerationSeconds"] = Value::Null);
        list.iter().map(Value::to_string).collect::<BTreeSet<_>>()
    };
    if !tolerations(old).is_subset(&tolerations(new)) {
        let problem = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", problem));
    }
    causes.extend(deadline(&old["activeDeadlineSeconds"], &new["activeDeadlineSeconds"]));
    let known: BTreeSet<_> = gates(old).collect();
    for (at, gate) in gates(new).enumerate() {
        if !known.contains(gate) {
            let problem = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
            causes.push(Cause::forbidden(&format!("spec.schedulingGates[{at}].name"), &problem));
        }
    }
    let gated = is_gated(old);
    if gated {
        causes.extend(selector(&old["nodeSelector"], &new["nodeSelector"]));
        let terms = |spec: &Value| -> Vec<Value> {
            let required =
                &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            required["nodeSelectorTerms"].as_array().cloned().unwrap_or_default()
        };
        causes.extend(affinity(&terms(old), &terms(new)));
    }
    if !same_but_mutable(old, new, gated) {
        causes.push(Cause::forbidden("spec", POD_UPDATES));
    }
    causes
}

/// A pod that waits at a gate may ask more of its node, never less.
fn selector(old: &Value, new: &Value) -> Option<Cause> {
    let kept = |(key, value): (&String, &Value)| new.get(key) == Some(value);
    let problem = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
    let narrowed = old.as_object().is_none_or(|old| old.iter().all(kept));
    (!narrowed).then(|| Cause::invalid("spec.nodeSelector", new, problem))
}

/// Each term may ask more of a node, in the end of what it asks; another term would let more nodes in.
fn affinity(old: &[Value], new: &[Value]) -> Vec<Cause> {
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

/// As the real server prints its Go struct.
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
fn deadline(old: &Value, new: &Value) -> Option<Cause> {
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
    node(old) == node(new) && fixed(old) == fixed(new)
}
