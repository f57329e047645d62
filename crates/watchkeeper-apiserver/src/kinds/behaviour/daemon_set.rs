//! DaemonSets.

use serde_json::{Value, json};

use super::{Behaviour, Change, Context, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, containers, labels, number, selector};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

const GENERATION: &str = "deprecated.daemonset.template.generation";

#[derive(Debug)]
pub(in crate::kinds) struct DaemonSet;

impl Behaviour for DaemonSet {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        workload::default_template(spec);
        workload::default_update_strategy(spec, &json!({"maxUnavailable": 1, "maxSurge": 0}));
        fill(spec, "revisionHistoryLimit", 10.into());
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
        fill(annotations, GENERATION, "1".into());
        Ok(())
    }

    /// Templates are numbered: a change of the template gets the next number.
    fn prepare_update(&self, before: &Value, after: &mut Value, _context: &dyn Context) {
        let annotation = |object: &Value| {
            let number = object["metadata"]["annotations"][GENERATION].as_str();
            number.and_then(|number| number.parse::<i64>().ok()).unwrap_or(1)
        };
        let is_changed = before["spec"]["template"] != after["spec"]["template"]
            || before["spec"]["updateStrategy"] != after["spec"]["updateStrategy"];
        let number = annotation(before) + i64::from(is_changed);
        after["metadata"]["annotations"][GENERATION] = number.to_string().into();
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        workload::validate(change.new, &mut findings.causes);
        workload::validate_restart_policy(change.new, &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        workload::validate_selector_update(old, new)
    }

    fn headers(&self) -> &'static str {
        "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age Containers* Images* Selector*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let (status, template) = (row.status(), &row.spec()["template"]);
        json!([
            row.name(),
            number(&status["desiredNumberScheduled"]),
            number(&status["currentNumberScheduled"]),
            number(&status["numberReady"]),
            number(&status["updatedNumberScheduled"]),
            number(&status["numberAvailable"]),
            labels(&template["spec"]["nodeSelector"]),
            row.age(),
            containers(template, "name"),
            containers(template, "image"),
            selector(&row.spec()["selector"]),
        ])
    }
}
