//! `MutatingAdmissionPolicy`: policies that change what is written.

use serde_json::Value;

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::cache::Cache;
use crate::admission::plugin::Plugin;
use crate::admission::policies::matching::selects;
use crate::admission::policies::mutation::Unchanged;
use crate::admission::policies::policy::Policy;
use crate::admission::policies::{GROUP, params, scope};
use crate::admission::rules::is_exempt;
use crate::failure::{Cause, Failure, Result};
use crate::kinds::kind::Kind;

#[derive(Debug, Default)]
pub(in crate::admission) struct MutatingPolicies {
    policies: Cache<Vec<Policy>>,
}

impl Plugin for MutatingPolicies {
    /// All policies run, in the order of policies and bindings. The first that fails refuses the object.
    fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        if is_exempt(attempt) || attempt.operation == Operation::Delete {
            return Ok(());
        }
        let bindings = attempt.list(GROUP, "v1", "mutatingadmissionpolicybindings", None);
        if bindings.is_empty() {
            return Ok(());
        }
        let mut all = attempt.list(GROUP, "v1", "mutatingadmissionpolicies", None);
        all.extend(bindings);
        let is_binding = |value: &Value| value["spec"].get("policyName").is_some();
        let policies = self.policies.get(all, |all| Policy::all(all, is_binding));
        // What other plugins have changed since the last policy or webhook.
        attempt.session.reinvocation().compare(object);
        let mut first = None;
        for policy in policies.iter() {
            for (name, binding) in &policy.bindings {
                for why in run(policy, (name, binding), attempt, object)? {
                    first = first.or_else(|| Some(refusal(policy, name, &why, attempt, object)));
                }
            }
        }
        first.map_or(Ok(()), Err)
    }
}

/// Lets a binding of a policy change the object, once for each of its parameters. Returns what failed.
fn run(
    policy: &Policy,
    (name, binding): (&str, &Value),
    attempt: &Attempt<'_>,
    object: &mut Value,
) -> Result<Vec<String>> {
    let Some(kind) = selects(&policy.spec["matchConstraints"], attempt, Some(&*object), false) else {
        return Ok(Vec::new());
    };
    let resources = &binding["matchResources"];
    if resources.is_object() && selects(resources, attempt, Some(&*object), true).is_none() {
        return Ok(Vec::new());
    }
    let mut failed = Vec::new();
    match params::of(attempt, &policy.spec["paramKind"], binding) {
        Err(why) => failed.push(format!("failed to configure binding: {why}")),
        Ok(params) => {
            for (at, param) in params.iter().enumerate() {
                let id = format!("policy {}/{name}/{at}", policy.name);
                if attempt.session.reinvocation().is_due(&id) {
                    failed.extend(run_once(policy, &id, param, &kind, attempt, object)?);
                }
            }
        }
    }
    if policy.ignores_failures() {
        failed.clear();
    }
    Ok(failed)
}

/// Lets a policy change the object with one parameter. Returns what failed.
fn run_once(
    policy: &Policy,
    id: &str,
    param: &Value,
    kind: &Kind,
    attempt: &Attempt<'_>,
    object: &mut Value,
) -> Result<Vec<String>> {
    let scope = |object: &Value| scope::of(attempt, kind, Some(object)).with("params", param);
    match policy.conditions_hold(&scope(&*object)) {
        Ok(true) => {}
        Ok(false) => return Ok(Vec::new()),
        Err(why) => return Ok(vec![why]),
    }
    let (before, mut failed) = (object.clone(), Vec::new());
    for mutation in policy.mutations() {
        // Each mutation sees what those before it have done.
        match mutation.apply(&policy.with_variables(scope(&*object)), attempt, kind, object) {
            Ok(changed) => *object = changed,
            Err(Unchanged::Wanted) => {}
            Err(Unchanged::Failed(why)) => failed.push(why),
            Err(Unchanged::Refused(failure)) => return Err(failure),
        }
    }
    let mut reinvocation = attempt.session.reinvocation();
    if *object != before {
        reinvocation.changed();
    }
    if policy.spec["reinvocationPolicy"] == "IfNeeded" {
        reinvocation.called(id);
    }
    reinvocation.keep(object);
    Ok(failed)
}

/// The refusal of an object because a policy failed.
fn refusal(policy: &Policy, binding: &str, why: &str, attempt: &Attempt<'_>, object: &Value) -> Box<Failure> {
    let message = format!("policy '{}' with binding '{binding}' denied request: {why}", policy.name);
    let mut failure = attempt.forbidden(Some(object), &message);
    failure.reason = "Invalid";
    failure.message.clone_from(&message);
    if let Some(details) = &mut failure.details {
        details.causes.push(Cause { reason: "", message, field: String::new() });
    }
    failure
}
