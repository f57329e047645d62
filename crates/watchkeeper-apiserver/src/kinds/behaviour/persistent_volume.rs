//! PersistentVolumes and their claims.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::Result;
use crate::kinds::cells::{Row, access_modes, or, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct PersistentVolume;

impl Behaviour for PersistentVolume {
    fn headers(&self) -> &'static str {
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        let claim = &spec["claimRef"];
        let claim = if claim.is_object() {
            format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
        } else {
            String::new()
        };
        json!([
            row.name(),
            text(&spec["capacity"]["storage"]),
            access_modes(&spec["accessModes"]),
            text(&spec["persistentVolumeReclaimPolicy"]),
            phase(row),
            claim,
            text(&spec["storageClassName"]),
            or(text(&spec["volumeAttributesClassName"]), "<unset>"),
            text(&row.status()["reason"]),
            row.age(),
            or(text(&spec["volumeMode"]), "<unset>"),
        ])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct PersistentVolumeClaim;

impl Behaviour for PersistentVolumeClaim {
    fn defaults(&self, _kind: &Kind, claim: &mut Value) -> Result<()> {
        fill(&mut claim["spec"], "volumeMode", "Filesystem".into());
        Ok(())
    }

    fn headers(&self) -> &'static str {
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let (spec, status) = (row.spec(), row.status());
        let bound = !text(&spec["volumeName"]).is_empty();
        json!([
            row.name(),
            phase(row),
            text(&spec["volumeName"]),
            if bound { text(&status["capacity"]["storage"]) } else { "" },
            if bound { access_modes(&status["accessModes"]) } else { String::new() },
            text(&spec["storageClassName"]),
            or(text(&spec["volumeAttributesClassName"]), "<unset>"),
            row.age(),
            or(text(&spec["volumeMode"]), "<unset>"),
        ])
    }
}

fn phase<'a>(row: &Row<'a>) -> &'a str {
    if row.is_terminating() { "Terminating" } else { text(&row.status()["phase"]) }
}
