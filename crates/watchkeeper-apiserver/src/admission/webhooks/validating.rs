//! `ValidatingAdmissionWebhook`: webhooks that refuse what is written.

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::cache::Cache;
use crate::admission::plugin::Plugin;
use crate::admission::rules::is_exempt;
use crate::admission::webhooks::hook::Hook;
use crate::failure::{Failure, Result};

#[derive(Debug, Default)]
pub(in crate::admission) struct ValidatingWebhooks {
    hooks: Cache<Vec<Hook>>,
}

impl Plugin for ValidatingWebhooks {
    /// Asks all webhooks at a time. The first refusal counts, in their order.
    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        if is_exempt(attempt) {
            return Ok(());
        }
        let configurations =
            attempt.list("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", None);
        if configurations.is_empty() {
            return Ok(());
        }
        let hooks = self.hooks.get(configurations, |all| Hook::all(all, false));
        let mut failures = Vec::new();
        let mut selected = Vec::new();
        for hook in hooks.iter() {
            if let Some(kind) = hook.selects(attempt, object)? {
                selected.push((hook, kind));
            }
        }
        for (hook, kind) in selected {
            failures.extend(hook.ask(attempt, &kind, object).err());
        }
        if failures.iter().any(|failure| failure.outdated) {
            return Err(Failure::outdated());
        }
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}
