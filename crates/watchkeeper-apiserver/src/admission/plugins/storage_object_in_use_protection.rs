//! `StorageObjectInUseProtection`: new claims and volumes get the finalizers that keep them while they are used.

use serde_json::{Value, json};

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::Plugin;
use crate::failure::Result;
use crate::kinds::meta;

/// The finalizers, by resource.
const FINALIZERS: [(&str, &str); 2] = [
    ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("persistentvolumes", "kubernetes.io/pv-protection"),
];

#[derive(Debug)]
pub(in crate::admission) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        if attempt.operation != Operation::Create {
            return Ok(());
        }
        for (_, finalizer) in FINALIZERS.iter().filter(|(plural, _)| attempt.is_about("", plural)) {
            let finalizers = meta::metadata_mut(object).entry("finalizers").or_insert_with(|| json!([]));
            if let Some(finalizers) =
                finalizers.as_array_mut().filter(|all| !all.iter().any(|it| it == finalizer))
            {
                finalizers.push((*finalizer).into());
            }
        }
        Ok(())
    }
}
