//! FlowSchemas and PriorityLevelConfigurations.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, list, number, or, text};
use crate::kinds::fill::remove_null;
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct FlowSchema;

impl Behaviour for FlowSchema {
    fn defaults(&self, _kind: &Kind, schema: &mut Value) -> Result<()> {
        fill(&mut schema["spec"], "matchingPrecedence", 1_000);
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let spec = &change.new["spec"];
        let precedence = spec["matchingPrecedence"].as_i64().unwrap_or_default();
        if !(1..=10_000).contains(&precedence) {
            let (at, shown) = ("spec.matchingPrecedence", &spec["matchingPrecedence"]);
            let problem = "must be a value between 1 and 10000";
            findings.causes.push(match precedence {
                ..1 => Cause::invalid(at, shown, "must be a positive value"),
                _ => Cause::invalid(at, shown, problem),
            });
        }
        if text(&spec["priorityLevelConfiguration"]["name"]).is_empty() {
            let problem = "must reference a priority level";
            findings.causes.push(Cause::required("spec.priorityLevelConfiguration.name", problem));
        }
    }

    fn headers(&self) -> &'static str {
        "Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        let dangling = list(&row.status()["conditions"]).iter().find(|it| it["type"] == "Dangling");
        json!([
            row.name(),
            text(&spec["priorityLevelConfiguration"]["name"]),
            number(&spec["matchingPrecedence"]),
            or(text(&spec["distinguisherMethod"]["type"]), "<none>"),
            row.age(),
            dangling.map_or("?", |condition| text(&condition["status"])),
        ])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct PriorityLevelConfiguration;

impl Behaviour for PriorityLevelConfiguration {
    fn defaults(&self, _kind: &Kind, level: &mut Value) -> Result<()> {
        let spec = &mut level["spec"];
        if spec["exempt"].is_object() {
            fill(&mut spec["exempt"], "nominalConcurrencyShares", 0);
            fill(&mut spec["exempt"], "lendablePercent", 0);
        }
        if spec["limited"].is_object() {
            let limited = &mut spec["limited"];
            if limited.get("nominalConcurrencyShares").is_none_or(Value::is_null) {
                limited["nominalConcurrencyShares"] = 30.into();
            }
            fill(limited, "lendablePercent", 0);
            let queuing = &mut limited["limitResponse"]["queuing"];
            if queuing.is_object() {
                for (field, default) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                    fill(queuing, field, default);
                }
            }
            remove_null(&mut limited["limitResponse"], "queuing");
        }
        Ok(())
    }

    fn headers(&self) -> &'static str {
        "Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let limited = &row.spec()["limited"];
        let queuing = &limited["limitResponse"]["queuing"];
        let shown = |value: &Value| if value.is_number() { value.clone() } else { "<none>".into() };
        json!([
            row.name(),
            text(&row.spec()["type"]),
            shown(&limited["nominalConcurrencyShares"]),
            shown(&queuing["queues"]),
            shown(&queuing["handSize"]),
            shown(&queuing["queueLengthLimit"]),
            row.age(),
        ])
    }
}

/// Sets a number that is missing or zero.
fn fill(object: &mut Value, field: &str, default: i64) {
    if object[field].as_i64().unwrap_or_default() == 0 {
        object[field] = default.into();
    }
}
