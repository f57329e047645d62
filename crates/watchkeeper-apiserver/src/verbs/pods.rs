//! Pod actions: binding to a node.

use std::sync::Arc;

use serde_json::Value;

use crate::failure::{Cause, Failure, Result};
use crate::kinds::behaviour::pod::{binding, is_gated};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::update::precondition_failed;

impl Core {
    /// Binds a pod to a node, once. A binding with a uid or resourceVersion requires that of the pod.
    pub(crate) fn bind(&mut self, kind: &Arc<Kind>, key: &Key, binding: &Value, dry_run: bool) -> Result<()> {
        let causes = binding::validate(binding);
        if !causes.is_empty() {
            return Err(Failure::internal(Cause::text(&causes)));
        }
        let old = self.get(kind, key)?;
        let mut pod = old.value();
        let conflict = |why: &str| {
            let mut failure = Failure::conflict(kind, &key.name, why);
            failure.message = failure.message.replacen("pods ", "pods/binding ", 1);
            if let Some(details) = &mut failure.details {
                details.kind = "pods/binding".to_owned();
            }
            failure
        };
        for (field, shown, found) in [
            ("uid", "UID", old.uid.clone()),
            ("resourceVersion", "ResourceVersion", old.revision.to_string()),
        ] {
            let sent = meta::text(binding, field);
            if !sent.is_empty() && sent != found {
                let why = precondition_failed(kind, key, dry_run, (shown, sent, &found));
                return Err(Failure::conflict(kind, &key.name, &why));
            }
        }
        if old.terminating {
            return Err(conflict(&format!(
                "pod {} is being deleted, cannot be assigned to a host",
                key.name
            )));
        }
        let bound = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !bound.is_empty() {
            return Err(conflict(&format!("pod {} is already assigned to node \"{bound}\"", key.name)));
        }
        if is_gated(&pod["spec"]) {
            return Err(conflict(&format!("pod {} has non-empty .spec.schedulingGates", key.name)));
        }
        binding::bind(&mut pod, binding, &self.now());
        if !dry_run {
            self.put_value(kind, key, pod);
        }
        Ok(())
    }
}
