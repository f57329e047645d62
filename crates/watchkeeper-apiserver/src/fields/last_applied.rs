//! What becomes of what kubectl applied on its own side? It may take those fields over as it begins to apply on the server, which keeps
//! the annotation up to date from then on.

use serde_json::Value;

use super::set::Set;
use super::walk::{self, Comparison};
use crate::kinds::merge_type::MergeType;
use crate::kinds::meta;

/// Where kubectl keeps what it applied.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only manager for whom this is done.
const KUBECTL: &str = "kubectl";

/// More than this in all annotations is refused; then it is better to have none.
const LIMIT: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str().filter(|text| !text.is_empty())
}

/// The fields that `manager` may take without a conflict: applied by kubectl before, and not changed since.
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

/// Writes what was applied into the annotation, if the object has one.
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
