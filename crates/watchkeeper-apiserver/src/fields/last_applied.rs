//! Migration from client-side apply: kubectl may take over the fields of its `last-applied-configuration` annotation
//! when it starts server-side apply, and the server keeps the annotation up to date from then on.

use serde_json::Value;

use super::set::Set;
use super::walk::{self, Comparison};
use crate::kinds::merge_type::MergeType;
use crate::kinds::meta;

/// The annotation in which client-side apply stores its configuration.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only field manager to which the migration applies.
const KUBECTL: &str = "kubectl";

/// The size limit of all annotations. If the annotation would exceed it, the annotation is removed.
const LIMIT: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str().filter(|text| !text.is_empty())
}

/// Returns the fields that `manager` may take without a conflict: applied by kubectl before and unchanged since.
pub(super) fn yielded(merge_type: MergeType<'_>, live: &Value, manager: &str) -> Set {
    let applied = annotation(live).filter(|_| manager == KUBECTL);
    let Some(applied) = applied.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return Set::default();
    };
    if applied["apiVersion"] != live["apiVersion"] {
        return Set::default();
    }
    let since = Comparison::of(merge_type, &applied, live);
    walk::set_of(merge_type, &applied).minus(&since.modified).minus(&since.added).minus(&since.removed)
}

/// Updates the annotation with the applied configuration, if the object has the annotation.
pub(super) fn note(object: &mut Value, config: &Value, manager: &str) {
    if manager != KUBECTL || annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    let Some(annotations) = meta::metadata_mut(object).get_mut("annotations").and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.remove(ANNOTATION);
    let others = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if others.sum::<usize>() + ANNOTATION.len() + text.len() <= LIMIT {
        annotations.insert(ANNOTATION.to_owned(), text.into());
    }
}
