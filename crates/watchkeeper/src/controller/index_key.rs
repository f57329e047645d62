//! Names of indexes of a controller's main kind.

use std::fmt;
use std::marker::PhantomData;

use crate::object::PathError;
use crate::store::Index;

/// An index of kind `K` by the values at a path, which a controller declares once and looks up by.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use watchkeeper::controller::IndexKey;
/// const NODE: IndexKey<Pod> = IndexKey::field("node", "spec.nodeName");
/// assert_eq!(NODE.name(), "node");
/// ```
pub struct IndexKey<K> {
    name: &'static str,
    path: &'static str,
    kind: PhantomData<fn() -> K>,
}

impl<K: 'static> IndexKey<K> {
    /// An index called `name` by the texts, numbers and booleans at `path`, such as `spec.containers[*].image`.
    pub const fn field(name: &'static str, path: &'static str) -> Self {
        Self { name, path, kind: PhantomData }
    }

    /// The name of the index.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn index(&self) -> Result<Index<K>, PathError> {
        Index::field(self.name, self.path)
    }
}

impl<K> Clone for IndexKey<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for IndexKey<K> {}

impl<K> fmt::Debug for IndexKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.name, self.path)
    }
}
