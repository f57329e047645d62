//! Predicates: which changes of an object lead to a reconcile.
//!
//! A predicate compares the old state of an object with the new one. It is not asked about objects that are added or deleted:
//! those always pass.

use std::fmt;
use std::sync::Arc;

use crate::object::Object;

/// Passes updates that change `metadata.generation`, which the server increases with each change of the spec.
///
/// Kinds without a generation always pass, and so do changes of the deletion timestamp and of finalizers, so that an object
/// that is being deleted is reconciled. A state that is not newer passes, too: a server that was restored from a backup uses
/// generations again. A resync does not pass.
///
/// ```
/// # use watchkeeper::Object;
/// # use watchkeeper::controller::generation_changed;
/// # fn object(generation: i64, label: &str) -> Object<()> {
/// #     let json = format!(r#"{{"metadata":{{"name":"a","generation":{generation},"labels":{{"l":"{label}"}}}}}}"#);
/// #     Object::from_json(json.as_bytes()).unwrap()
/// # }
/// let passes = generation_changed();
/// assert!(passes(&object(1, "x"), &object(2, "x")));
/// assert!(!passes(&object(1, "x"), &object(1, "y")));
/// ```
pub fn generation_changed<K>() -> impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static {
    |old, new| {
        old.generation() != new.generation()
            || (new.generation() == 0 && old.version() != new.version())
            || old.is_deleting() != new.is_deleting()
            || old.finalizers() != new.finalizers()
            || is_rewritten(old, new)
    }
}

/// Returns whether the server was restored from a backup in between: it uses versions and generations again.
fn is_rewritten<K>(old: &Object<K>, new: &Object<K>) -> bool {
    let goes_back = !new.version().is_unset() && new.version() <= old.version();
    goes_back && !new.is_resynced_as(old)
}

/// Passes updates that change `metadata.labels`.
pub fn labels_changed<K>() -> impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static {
    |old, new| old.labels().to_map() != new.labels().to_map()
}

/// Passes updates that change `metadata.annotations`.
pub fn annotations_changed<K>() -> impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static {
    |old, new| old.annotations().to_map() != new.annotations().to_map()
}

/// Passes updates that `first` or `second` passes.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::controller::{either, generation_changed, labels_changed};
///
/// let passes = either(generation_changed::<ConfigMap>(), labels_changed());
/// # let _ = passes;
/// ```
pub fn either<K>(
    first: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static,
    second: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static,
) -> impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static {
    move |old, new| first(old, new) || second(old, new)
}

type Predicate<K> = dyn Fn(&Object<K>, &Object<K>) -> bool + Send + Sync;

/// Predicates that must all pass.
pub(super) struct Predicates<K>(Vec<Arc<Predicate<K>>>);

impl<K> Predicates<K> {
    pub(super) fn add(&mut self, predicate: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static) {
        self.0.push(Arc::new(predicate));
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pass(&self, old: &Object<K>, new: &Object<K>) -> bool {
        self.0.iter().all(|predicate| predicate(old, new))
    }
}

impl<K> Default for Predicates<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K> Clone for Predicates<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Predicates<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} predicates", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: Value) -> Object<()> {
        let mut object = json!({"metadata": {"name": "a", "resourceVersion": "1", "generation": 1}});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        Object::from_json(object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_change_of_the_generation_deletion_or_finalizers_passes() {
        let passes = generation_changed();
        let old = object(json!({}));
        assert!(!passes(&old, &old));
        assert!(!passes(&old, &object(json!({"resourceVersion": "2", "labels": {"a": "b"}}))));
        assert!(passes(&old, &object(json!({"generation": 2}))));
        assert!(passes(&old, &object(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))));
        assert!(passes(&old, &object(json!({"finalizers": ["a.b/c"]}))));
    }

    #[test]
    fn a_generation_that_is_used_again_after_a_restore_passes() {
        let passes = generation_changed();
        let old = object(json!({"resourceVersion": "7"}));
        assert!(passes(&old, &object(json!({"resourceVersion": "6"}))));
        assert!(passes(&old, &object(json!({"resourceVersion": "7", "labels": {"a": "b"}}))));
        assert!(!passes(&old, &object(json!({"resourceVersion": "7"}))), "a resync");
    }

    #[test]
    fn a_kind_without_a_generation_passes_unless_nothing_changed() {
        let passes = generation_changed();
        let (old, new) =
            (object(json!({"generation": 0})), object(json!({"generation": 0, "resourceVersion": "2"})));
        assert!(passes(&old, &new));
        assert!(!passes(&old, &old), "a resync");
    }

    #[test]
    fn labels_and_annotations_are_compared_apart() {
        let old = object(json!({"labels": {"a": "b"}, "annotations": {"c": "d"}}));
        let labelled = object(json!({"labels": {"a": "x"}, "annotations": {"c": "d"}}));
        let annotated = object(json!({"labels": {"a": "b"}, "annotations": {"c": "x"}}));
        assert!(labels_changed()(&old, &labelled) && !labels_changed()(&old, &annotated));
        assert!(annotations_changed()(&old, &annotated) && !annotations_changed()(&old, &labelled));
        let both = either(labels_changed(), annotations_changed());
        assert!(both(&old, &labelled) && both(&old, &annotated) && !both(&old, &old));
    }

    #[test]
    fn all_predicates_must_pass() {
        let mut predicates = Predicates::default();
        let (old, new) = (object(json!({})), object(json!({"generation": 2})));
        assert!(predicates.pass(&old, &new), "none filters nothing");
        predicates.add(generation_changed());
        assert!(predicates.pass(&old, &new));
        predicates.add(labels_changed());
        assert!(!predicates.pass(&old, &new));
    }
}
