//! `MutatingAdmissionWebhook`: webhooks that change what is written.

use serde_json::Value;

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::cache::Cache;
use crate::admission::completion::complete;
use crate::admission::plugin::Plugin;
use crate::admission::rules::is_exempt;
use crate::admission::webhooks::hook::Hook;
use crate::failure::{Failure, Result, quoted};
use crate::fields::json_patch;
use crate::kinds::kind::Kind;

#[derive(Debug, Default)]
pub(in crate::admission) struct MutatingWebhooks {
    hooks: Cache<Vec<Hook>>,
}

impl Plugin for MutatingWebhooks {
    fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        if is_exempt(attempt) {
            return Ok(());
        }
        let configurations =
            attempt.list("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", None);
        if configurations.is_empty() {
            return Ok(());
        }
        let hooks = self.hooks.get(configurations, |all| Hook::all(all, true));
        // What plugins without webhooks have changed since the last call.
        attempt.session.reinvocation().compare(object);
        for hook in hooks.iter().filter(|hook| attempt.session.reinvocation().is_due(&hook.id)) {
            let is_delete = attempt.operation == Operation::Delete;
            let shown = Some(&*object).filter(|_| !is_delete);
            let Some(kind) = hook.selects(attempt, shown)? else { continue };
            let Some(response) = hook.ask(attempt, &kind, shown)? else { continue };
            let mut reinvocation = attempt.session.reinvocation();
            if !response.patch.is_empty() {
                let patched = patch(attempt, hook, &kind, &response.patch, shown)?;
                if let Some(patched) = patched.filter(|patched| patched != object) {
                    *object = patched;
                    reinvocation.changed();
                }
            }
            if hook.is_reinvoked() {
                reinvocation.called(&hook.id);
            }
            reinvocation.keep(object);
        }
        Ok(())
    }
}

/// Applies the patch of a webhook. Returns `None` if it has no operation.
fn patch(
    attempt: &Attempt<'_>,
    hook: &Hook,
    kind: &Kind,
    patch: &[u8],
    object: Option<&Value>,
) -> Result<Option<Value>> {
    let failed = |why: &str| Failure::internal_error(why);
    let operations: Value = serde_json::from_slice(patch).map_err(|error| failed(&error.to_string()))?;
    let Value::Array(operations) = operations else {
        return Err(failed("the patch of a webhook is not a list of operations"));
    };
    if operations.is_empty() {
        return Ok(None);
    }
    let Some(object) = object else {
        let name = quoted(&hook.name);
        return Err(failed(&format!(
            "admission webhook {name} attempted to modify the object, which is not supported for this operation"
        )));
    };
    let operations: Result<Vec<_>, _> = operations
        .into_iter()
        .map(|it| json_patch::Operation::read(it).map(|(operation, _)| operation))
        .collect();
    let operations = operations.map_err(|why| failed(&why))?;
    let object = attempt.convert(object.clone(), attempt.kind, kind);
    let mut patched = json_patch::apply(&operations, object).map_err(|misfit| failed(&misfit.to_string()))?;
    if !patched.is_object() {
        return Err(failed("the patched object is not an object"));
    }
    complete(attempt, kind, &mut patched)?;
    Ok(Some(attempt.convert(patched, kind, attempt.kind)))
}
