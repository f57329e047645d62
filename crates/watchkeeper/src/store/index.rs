//! Indexes: finding objects by the values that an index function returns.

use std::fmt;
use std::sync::Arc;

use super::field::Field;
use crate::object::{Object, PathError};

/// A named function that returns the values by which each object is found: none, one or several. A clone copies a
/// pointer.
///
/// It is called with the store locked for writers, must not use the store, and must depend on the object alone. If it
/// panics, the panic is reported, and the object stays in the store but is missing from this index.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::Object;
/// use watchkeeper::store::Index;
///
/// let by_node = Index::<Pod>::field("node", "spec.nodeName")?;
/// let by_images = Index::<Pod>::field("images", "spec.containers[*].image")?;
/// let by_owner = Index::new("owner", |pod: &Object<Pod>| pod.controller().map(|owner| owner.uid));
/// assert_eq!(by_node.name(), "node");
/// # Ok::<(), watchkeeper::object::PathError>(())
/// ```
pub struct Index<K>(Arc<Named<Values<K>>>);

struct Named<F: ?Sized> {
    name: Box<str>,
    values: F,
}

type Values<K> = dyn Fn(&Object<K>, &mut dyn FnMut(&str)) + Send + Sync;

/// The name of the index by namespace.
pub const NAMESPACE_INDEX: &str = "namespace";

/// Returns the index by namespace, which every informer of the factory has.
pub fn namespace_index<K: 'static>() -> Index<K> {
    Index::visit(NAMESPACE_INDEX, |object: &Object<K>, each| {
        if let Some(namespace) = object.namespace() {
            each(namespace);
        }
    })
}

impl<K> Index<K> {
    /// Returns an index called `name` by the values that the function returns: an `Option`, a `Vec`, or any other
    /// iterable.
    pub fn new<V: IntoIterator<Item = String>>(
        name: &str,
        values: impl Fn(&Object<K>) -> V + Send + Sync + 'static,
    ) -> Self {
        Self::visit(name, move |object, each| values(object).into_iter().for_each(|value| each(&value)))
    }

    /// Returns an index called `name` by the values that the function passes to its callback, without an allocation for
    /// each.
    pub fn visit(
        name: &str,
        values: impl Fn(&Object<K>, &mut dyn FnMut(&str)) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Named { name: name.into(), values }))
    }

    /// Returns an index called `name` by the strings, numbers and booleans at `path` in the JSON of each object,
    /// without decoding it.
    ///
    /// Paths are written as for a [`Transform`](crate::object::Transform#paths): `spec.nodeName`,
    /// `metadata.labels.app\.kubernetes\.io/name`, `spec.containers[*].image`.
    ///
    /// # Errors
    ///
    /// The path is invalid; the error names it.
    pub fn field(name: &str, path: &str) -> Result<Self, PathError> {
        let field = Field::new(path)?;
        Ok(Self::visit(name, move |object, each| field.each(object.json(), each)))
    }

    /// Returns the name of the index.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn each(&self, object: &Object<K>, each: &mut dyn FnMut(&str)) {
        (self.0.values)(object, each);
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name()).finish()
    }
}
