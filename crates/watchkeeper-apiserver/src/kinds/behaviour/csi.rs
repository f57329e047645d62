//! CSIDrivers, CSINodes and CSIStorageCapacities.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, count, list, or, text};

#[derive(Debug)]
pub(in crate::kinds) struct CsiDriver;

impl Behaviour for CsiDriver {
    fn headers(&self) -> &'static str {
        "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests RequiresRepublish:boolean Modes Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        let modes: Vec<_> = list(&spec["volumeLifecycleModes"]).iter().map(text).collect();
        json!([
            row.name(),
            spec["attachRequired"] != false,
            spec["podInfoOnMount"] == true,
            spec["storageCapacity"] == true,
            "<unset>",
            spec["requiresRepublish"] == true,
            or(&modes.join(","), "<none>"),
            row.age(),
        ])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct CsiNode;

impl Behaviour for CsiNode {
    fn headers(&self) -> &'static str {
        "Name Drivers:integer Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), count(&row.spec()["drivers"]), row.age()])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct CsiStorageCapacity;

impl Behaviour for CsiStorageCapacity {
    fn headers(&self) -> &'static str {
        "Name StorageClassName Capacity"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let object = row.object;
        json!([row.name(), text(&object["storageClassName"]), or(text(&object["capacity"]), "<unset>")])
    }
}
