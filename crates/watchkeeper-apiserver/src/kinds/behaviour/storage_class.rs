//! StorageClasses and VolumeAttributesClasses.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::Cause;
use crate::kinds::cells::{Row, or, text};

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

#[derive(Debug)]
pub(in crate::kinds) struct StorageClass;

impl Behaviour for StorageClass {
    fn headers(&self) -> &'static str {
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let class = row.object;
        let default = if class["metadata"]["annotations"][DEFAULT] == "true" { " (default)" } else { "" };
        json!([
            format!("{}{default}", row.name()),
            text(&class["provisioner"]),
            or(text(&class["reclaimPolicy"]), "Delete"),
            or(text(&class["volumeBindingMode"]), "Immediate"),
            class["allowVolumeExpansion"] == true,
            row.age(),
        ])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct VolumeAttributesClass;

impl Behaviour for VolumeAttributesClass {
    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let changed =
            ["driverName", "parameters"].into_iter().filter(|field| old.get(field) != new.get(field));
        changed.map(|field| Cause::forbidden(field, "updates to this field are forbidden.")).collect()
    }

    fn headers(&self) -> &'static str {
        "Name DriverName Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), text(&row.object["driverName"]), row.age()])
    }
}
