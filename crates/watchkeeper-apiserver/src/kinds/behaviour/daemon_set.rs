//! DaemonSets.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, containers, labels, number, selector};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

#[derive(Debug)]
pub(in crate::kinds) struct DaemonSet;

impl Behaviour for DaemonSet {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        workload::default_template(spec);
        workload::default_update_strategy(spec, &json!({"maxUnavailable": 1, "maxSurge": 0}));
        fill(spec, "revisionHistoryLimit", 10.into());
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
        fill(annotations, "deprecated.daemonset.template.generation", "1".into());
        Ok(())
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
