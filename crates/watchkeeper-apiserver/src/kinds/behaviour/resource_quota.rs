//! ResourceQuotas.

use serde_json::{Value, json};

use watchkeeper_quota::Quantity;

use super::{Behaviour, Change, Findings};
use crate::failure::Cause;
use crate::kinds::cells::{Row, list, or, text};

/// Limits that are not whole numbers.
const FINE: [&str; 3] = ["cpu", "limits.cpu", "requests.cpu"];
/// Scopes that only select by being there.
const PLAIN: [&str; 5] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "Terminating"];

#[derive(Debug)]
pub(in crate::kinds) struct ResourceQuota;

impl Behaviour for ResourceQuota {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let (spec, status) = (&change.new["spec"], &change.new["status"]);
        amounts_of("spec.hard", &spec["hard"], &mut findings.causes);
        expressions(&spec["scopeSelector"]["matchExpressions"], &mut findings.causes);
        for field in ["hard", "used"] {
            amounts_of(&format!("status.{field}"), &status[field], &mut findings.causes);
        }
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let scopes = |quota: &Value| list(&quota["spec"]["scopes"]).to_vec();
        let is_changed = scopes(old) != scopes(new);
        let cause = || Cause::invalid("spec.scopes", &scopes(new).into(), "field is immutable");
        is_changed.then(cause).into_iter().collect()
    }

    fn headers(&self) -> &'static str {
        "Name Request Limit Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), amounts(row.status(), false), amounts(row.status(), true), row.age()])
    }
}

/// `resource: used/hard` of the limits, or of everything else.
fn amounts(status: &Value, limits: bool) -> String {
    let hard = status["hard"].as_object().into_iter().flatten();
    let wanted = hard.filter(|(resource, _)| resource.starts_with("limits.") == limits);
    let shown = wanted.map(|(resource, hard)| {
        let used = or(text(&status["used"][resource.as_str()]), "0");
        format!("{resource}: {used}/{}", text(hard))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Refuses amounts below zero, and parts of what is counted as a whole.
fn amounts_of(field: &str, amounts: &Value, causes: &mut Vec<Cause>) {
    for (name, value) in amounts.as_object().into_iter().flatten() {
        let Some(amount) = Quantity::of(value) else { continue };
        let field = format!("{field}[{name}]");
        if amount.is_negative() {
            causes.push(Cause::invalid(&field, value, "must be greater than or equal to 0"));
        }
        let is_count = name.starts_with("count/") || !name.contains(['.', '/']) && !is_measured(name);
        if is_count && !FINE.contains(&name.as_str()) && amount.milli() % 1000 != 0 {
            causes.push(Cause::invalid(&field, value, "must be an integer"));
        }
    }
}

/// Whether a limit is one of an amount, not of a number of objects.
fn is_measured(name: &str) -> bool {
    ["cpu", "ephemeral-storage", "memory", "storage"].contains(&name) || name.starts_with("hugepages-")
}

fn expressions(expressions: &Value, causes: &mut Vec<Cause>) {
    for expression in list(expressions) {
        let (scope, operator) = (text(&expression["scopeName"]), text(&expression["operator"]));
        let values = list(&expression["values"]);
        let field = |name: &str| format!("spec.scopeSelector.matchExpressions.{name}");
        if PLAIN.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            causes.push(Cause::invalid(&field("operator"), &expression["operator"], detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                causes.push(Cause::required(&field("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                causes.push(Cause::invalid(&field("values"), &expression["values"], detail));
            }
            _ => {}
        }
    }
}
