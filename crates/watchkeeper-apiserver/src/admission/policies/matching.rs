//! Which writes a policy and its bindings are about.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::rules::{labels_match, selected};
use crate::kinds::cells::list;
use crate::kinds::kind::Kind;

/// Returns the version of the resource in which `MatchResources` select an attempt. Those of a binding may have no rules,
/// and then select all that the policy does.
pub(super) fn selects(
    resources: &Value,
    attempt: &Attempt<'_>,
    object: Option<&Value>,
    binding: bool,
) -> Option<Arc<Kind>> {
    let equivalent = resources["matchPolicy"] != "Exact";
    let rules = &resources["resourceRules"];
    let found = match list(rules) {
        [] if binding => Some(attempt.kind.clone()),
        rules => by_rules(rules, equivalent, attempt),
    };
    let kind = found?;
    let excluded = by_rules(list(&resources["excludeResourceRules"]), equivalent, attempt).is_some();
    (!excluded && labels_match(resources, attempt, object)).then_some(kind)
}

fn by_rules(rules: &[Value], equivalent: bool, attempt: &Attempt<'_>) -> Option<Arc<Kind>> {
    let named = |rule: &&Value| {
        let names = list(&rule["resourceNames"]);
        names.is_empty() || names.iter().any(|name| name == attempt.name)
    };
    let rules: Value = rules.iter().filter(named).cloned().collect();
    selected(&rules, equivalent, attempt)
}
