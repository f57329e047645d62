//! VolumeAttachments.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, text};

#[derive(Debug)]
pub(in crate::kinds) struct VolumeAttachment;

impl Behaviour for VolumeAttachment {
    fn headers(&self) -> &'static str {
        "Name Attacher PV Node Attached:boolean Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([
            row.name(),
            text(&spec["attacher"]),
            text(&spec["source"]["persistentVolumeName"]),
            text(&spec["nodeName"]),
            row.status()["attached"] == true,
            row.age(),
        ])
    }
}
