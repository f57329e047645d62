//! `ValidatingAdmissionPolicy`: policies that refuse what is written, or warn about it.

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::cache::Cache;
use crate::admission::plugin::Plugin;
use crate::admission::policies::matching::selects;
use crate::admission::policies::policy::{Policy, Refusal};
use crate::admission::policies::{GROUP, params, scope};
use crate::admission::rules::is_exempt;
use crate::failure::{Cause, Failure, Result};
use crate::kinds::cells::list;

#[derive(Debug, Default)]
pub(in crate::admission) struct ValidatingPolicies {
    policies: Cache<Vec<Policy>>,
}

impl Plugin for ValidatingPolicies {
    /// All policies decide. The first refusal counts, in the order of policies and bindings.
    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        if is_exempt(attempt) {
            return Ok(());
        }
        let bindings = attempt.list(GROUP, "v1", "validatingadmissionpolicybindings", None);
        if bindings.is_empty() {
            return Ok(());
        }
        let mut all = attempt.list(GROUP, "v1", "validatingadmissionpolicies", None);
        all.extend(bindings);
        let is_binding = |value: &Value| value["spec"].get("policyName").is_some();
        let policies = self.policies.get(all, |all| Policy::all(all, is_binding));
        let mut first = None;
        for policy in policies.iter() {
            for (name, binding) in &policy.bindings {
                for refusal in decide(policy, binding, attempt, object) {
                    let denied = act(policy, (name, binding), refusal, attempt, object);
                    first = first.or(denied);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }
}

/// Returns why a binding of a policy does not accept a write.
fn decide(policy: &Policy, binding: &Value, attempt: &Attempt<'_>, object: Option<&Value>) -> Vec<Refusal> {
    let Some(kind) = selects(&policy.spec["matchConstraints"], attempt, object, false) else {
        return Vec::new();
    };
    let resources = &binding["matchResources"];
    if resources.is_object() && selects(resources, attempt, object, true).is_none() {
        return Vec::new();
    }
    let failed = |message: String| match policy.ignores_failures() {
        true => Vec::new(),
        false => vec![Refusal { message, reason: String::new() }],
    };
    let params = match params::of(attempt, &policy.spec["paramKind"], binding) {
        Ok(params) => params,
        Err(why) => return failed(format!("failed to configure binding: {why}")),
    };
    let mut refusals = Vec::new();
    for param in params {
        let scope = scope::of(attempt, &kind, object).with("params", &param);
        match policy.conditions_hold(&scope) {
            Ok(true) => refusals.extend(policy.refusals(scope)),
            Ok(false) => {}
            Err(why) => refusals.extend(failed(why)),
        }
    }
    refusals
}

/// Does with a refusal what the binding says. Returns the failure, if it denies the write.
fn act(
    policy: &Policy,
    (name, binding): (&str, &Value),
    refusal: Refusal,
    attempt: &Attempt<'_>,
    object: Option<&Value>,
) -> Option<Box<Failure>> {
    let (Refusal { message, reason }, policy) = (refusal, &policy.name);
    let actions = list(&binding["validationActions"]);
    if actions.iter().any(|action| action == "Warn") {
        attempt.warn(format!(
            "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{name}': {message}"
        ));
    }
    if !actions.iter().any(|action| action == "Deny") {
        return None;
    }
    let message =
        format!("ValidatingAdmissionPolicy '{policy}' with binding '{name}' denied request: {message}");
    let mut failure = attempt.forbidden(object, &message);
    (failure.code, failure.reason) = match reason.as_str() {
        "Unauthorized" => (401, "Unauthorized"),
        "Forbidden" => (403, "Forbidden"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    if let Some(details) = &mut failure.details {
        details.causes.push(Cause { reason: "", message, field: String::new() });
    }
    Some(failure)
}
