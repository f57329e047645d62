//! StatefulSets.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, containers, number};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

/// The fields of a spec that may change.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

#[derive(Debug)]
pub(in crate::kinds) struct StatefulSet;

impl Behaviour for StatefulSet {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        workload::default_replicas(spec);
        fill(spec, "podManagementPolicy", "OrderedReady".into());
        workload::default_update_strategy(spec, &json!({"partition": 0}));
        fill(spec, "revisionHistoryLimit", 10.into());
        let retention = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
        fill(spec, "persistentVolumeClaimRetentionPolicy", retention);
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        workload::validate(change.new, &mut findings.causes);
        workload::validate_restart_policy(change.new, &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = workload::validate_selector_update(old, new);
        let mut rest = (old["spec"].clone(), new["spec"].clone());
        for spec in [&mut rest.0, &mut rest.1] {
            if let Value::Object(fields) = spec {
                fields.retain(|field, _| field != "selector" && !CHANGEABLE.contains(&field.as_str()));
            }
        }
        if causes.is_empty() && rest.0 != rest.1 {
            let fields = "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', \
                          'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'";
            let problem = format!("updates to statefulset spec for fields other than {fields} are forbidden");
            causes.push(Cause::forbidden("spec", &problem));
        }
        causes
    }

    fn headers(&self) -> &'static str {
        "Name Ready Age Containers* Images*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([
            row.name(),
            format!("{}/{}", number(&row.status()["readyReplicas"]), number(&spec["replicas"])),
            row.age(),
            containers(&spec["template"], "name"),
            containers(&spec["template"], "image"),
        ])
    }
}
