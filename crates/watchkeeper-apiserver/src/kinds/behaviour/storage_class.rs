//! StorageClasses.

use serde_json::{Value, json};

use super::Behaviour;
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
