//! The scale subresource: replicas and selector of any scalable kind as a `Scale`.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::{Cause, Failure, Result};
use crate::kinds::kind::{Kind, ScalePaths};
use crate::kinds::label_selector::selector_text;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Stored;
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::patch::Patch;
use crate::verbs::update::{MODIFIED, Owner, Part, check_same_name, version_of};
use crate::verbs::write::Write;

fn lookup<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(value, |at, part| &at[part.as_str()])
}

/// Returns the `Scale` of an object.
fn scale_of(paths: &ScalePaths, value: &Value) -> Value {
    let metadata = &value["metadata"];
    let mut kept = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            kept[field] = value.clone();
        }
    }
    let count = |path: &[String]| lookup(value, path).as_i64().unwrap_or(0);
    let mut spec = json!({});
    // The field has `omitempty`.
    if count(&paths.spec_replicas) != 0 {
        spec["replicas"] = count(&paths.spec_replicas).into();
    }
    let mut status = json!({"replicas": count(&paths.status_replicas)});
    let selector = match &paths.selector {
        Some(path) => lookup(value, path).as_str().unwrap_or_default().to_owned(),
        None => selector_text(&value["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status})
}

impl Core {
    /// Returns the `Scale` of a stored object.
    pub(crate) fn scale_of(kind: &Kind, stored: &Stored) -> Result<Value> {
        let paths = kind.scale.as_ref().ok_or_else(Failure::no_such_path)?;
        Ok(scale_of(paths, &stored.value_in(kind)))
    }
}

impl Seen {
    pub(crate) fn put_scale(&self, kind: &Arc<Kind>, scale: &Value, write: &Write) -> Result<Draft> {
        let old = self.stored(kind)?;
        check_same_name(meta::text(scale, "name"), &self.key)?;
        self.set_scale(kind, old, scale, write)
    }

    pub(crate) fn patch_scale(&self, kind: &Arc<Kind>, patch: &Patch, write: &Write) -> Result<Draft> {
        let old = self.stored(kind)?;
        let scale = patch.apply(kind, Core::scale_of(kind, old)?)?;
        self.set_scale(kind, old, &scale, write)
    }

    /// Lets admission change or refuse a scale.
    fn admit_scale<'a>(
        &self,
        kind: &Arc<Kind>,
        old: &Arc<Stored>,
        scale: &'a Value,
        write: &Write,
    ) -> Result<Cow<'a, Value>> {
        if write.admission.is_none() {
            return Ok(Cow::Borrowed(scale));
        }
        let (before, mut scale) = (Core::scale_of(kind, old)?, scale.clone());
        if let Some(attempt) = write.attempt(kind, &self.key, Some(&before)) {
            let attempt = attempt.of("scale", Some(("autoscaling/v1", "Scale")));
            attempt.mutate(&mut scale)?;
            attempt.validate(Some(&scale))?;
        }
        Ok(Cow::Owned(scale))
    }

    fn set_scale(&self, kind: &Arc<Kind>, old: &Arc<Stored>, scale: &Value, write: &Write) -> Result<Draft> {
        let paths = kind.scale.as_ref().ok_or_else(Failure::no_such_path)?;
        if !scale.is_object() {
            return Err(Failure::bad_request("a Scale is an object"));
        }
        let version = version_of(scale)?;
        if version != 0 && version != old.revision {
            return Err(Failure::conflict(kind, &old.key.name, MODIFIED));
        }
        let scale = &self.admit_scale(kind, old, scale, write)?;
        let replicas = match &scale["spec"]["replicas"] {
            Value::Null => 0,
            number => number.as_i64().filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
                Failure::bad_request(
                    "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas is not an integer of 32 bits",
                )
            })?,
        };
        // Custom resources are checked by their own schema.
        if replicas < 0 && kind.custom.is_none() {
            let problem = "must be greater than or equal to 0";
            let cause = Cause::invalid("spec.replicas", &replicas.into(), problem);
            return Err(Failure::invalid_as("autoscaling", "Scale", &old.key.name, vec![cause]));
        }
        let mut value = old.value_in(kind);
        let mut at = &mut value;
        for part in &paths.spec_replicas {
            if !at.is_object() {
                *at = json!({});
            }
            at = &mut at[part.as_str()];
        }
        *at = replicas.into();
        let owner = if kind.custom.is_some() && scale.get("apiVersion").is_none() {
            // A Scale without apiVersion or kind cannot be compared with the previous one.
            Owner::Nobody
        } else if lookup(&old.value(), &paths.spec_replicas).as_i64().unwrap_or(0) == replicas {
            Owner::Same
        } else if replicas == 0 {
            // Zero replicas are omitted from a Scale.
            Owner::Nobody
        } else {
            Owner::Writer
        };
        self.change(kind, old, value, Part::Scale(owner), write)
    }
}
