//! Watches: which objects of a kind a controller caches and reacts to.

use std::collections::BTreeSet;
use std::fmt;

use super::predicate::Predicates;
use crate::object::{Kind, Object};
use crate::source::{Scope, Selection};

/// The objects of kind `W` that a controller caches and reacts to; by default all that the manager looks at.
///
/// Given to [`Controller::owns`](super::Controller::owns) and [`Controller::watches`](super::Controller::watches). Equal watches
/// of several controllers share one informer.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::controller::{Watch, generation_changed};
///
/// let watch = Watch::<ConfigMap>::new()
///     .labels("app=site")
///     .namespaces(["production", "staging"])
///     .when(generation_changed());
/// # let _ = watch;
/// ```
#[must_use = "a watch is given to a controller"]
pub struct Watch<W: Kind> {
    pub(super) kind: W::DynamicType,
    pub(super) selection: Selection,
    /// None for those of the manager.
    pub(super) namespaces: Option<BTreeSet<String>>,
    pub(super) metadata_only: bool,
    pub(super) optional: bool,
    pub(super) predicates: Predicates<W>,
}

impl<W: Kind<DynamicType: Default>> Watch<W> {
    /// Watches a kind known at compile time.
    pub fn new() -> Self {
        Self::of(W::DynamicType::default())
    }
}

impl<W: Kind<DynamicType: Default>> Default for Watch<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Kind> Watch<W> {
    /// Watches a kind known at run time.
    pub fn of(kind: W::DynamicType) -> Self {
        Self {
            kind,
            selection: Selection::default(),
            namespaces: None,
            metadata_only: false,
            optional: false,
            predicates: Predicates::default(),
        }
    }

    /// Watches only objects that a label selector matches, such as `app=site,tier!=cache`.
    pub fn labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.selection.labels);
        self
    }

    /// Watches only objects that a field selector matches, such as `spec.nodeName=n1`.
    pub fn fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.selection.fields);
        self
    }

    /// Watches only these namespaces, each with an informer of its own, instead of those of the manager.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        self.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Caches only the metadata of objects, which saves memory and traffic. Read them with
    /// [`Context::metadata`](super::Context::metadata).
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Lets the controller start, and be ready, where the kind is not served: meanwhile there are no objects of it. Its informer
    /// lists it when the kind's CRD appears. If another controller watches the same objects and needs them, so does this one.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Reacts only to updates that `predicate`, given the old and the new state, passes; called several times, to those that all
    /// pass. Objects that are added or deleted always pass.
    pub fn when(
        mut self,
        predicate: impl Fn(&Object<W>, &Object<W>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.predicates.add(predicate);
        self
    }

    /// The scopes to watch, where the manager looks at `default`.
    pub(super) fn scopes(&self, default: &[Scope]) -> Vec<Scope> {
        let mut scopes: Vec<_> = match &self.namespaces {
            Some(namespaces) => namespaces.iter().map(|name| Scope::Namespace(name.clone())).collect(),
            None => default.to_vec(),
        };
        scopes.iter_mut().for_each(|scope| *scope = scope.of_kind::<W>());
        scopes.sort();
        scopes.dedup();
        scopes
    }
}

impl<W: Kind> fmt::Debug for Watch<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("kind", &W::kind(&self.kind))
            .field("selection", &self.selection)
            .field("namespaces", &self.namespaces)
            .field("metadata_only", &self.metadata_only)
            .field("optional", &self.optional)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;

    fn namespace(name: &str) -> Scope {
        Scope::Namespace(name.to_owned())
    }

    #[test]
    fn namespaces_of_a_watch_replace_those_of_the_manager() {
        let default = [namespace("b"), namespace("a")];
        assert_eq!(Watch::<ConfigMap>::new().scopes(&default), [namespace("a"), namespace("b")]);
        assert_eq!(Watch::<ConfigMap>::new().namespaces(["c", "c"]).scopes(&default), [namespace("c")]);
        assert_eq!(Watch::<ConfigMap>::new().scopes(&[Scope::Cluster]), [Scope::Cluster]);
    }

    #[test]
    fn a_kind_without_namespaces_is_watched_once() {
        assert_eq!(Watch::<Node>::new().scopes(&[namespace("b"), namespace("a")]), [Scope::Cluster]);
    }
}
