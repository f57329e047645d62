//! By what else can objects be found? By the values that an index function gives them.

use std::fmt;
use std::sync::Arc;

use crate::object::Object;

/// A named function that gives each object the values to find it by: none, one or several.
pub struct Index<K> {
    name: Arc<str>,
    values: Arc<Values<K>>,
}

type Values<K> = dyn Fn(&Object<K>) -> Vec<String> + Send + Sync;

/// The name of the index by namespace.
pub const NAMESPACE_INDEX: &str = "namespace";

/// The index by namespace, which every informer of the factory has.
pub fn namespace_index<K: 'static>() -> Index<K> {
    Index::new(NAMESPACE_INDEX, |object: &Object<K>| {
        object.namespace().map(str::to_owned).into_iter().collect()
    })
}

impl<K> Index<K> {
    /// An index called `name`. `values` must depend on the object alone; one that panics gives no values, and is reported.
    pub fn new(name: &str, values: impl Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), values: Arc::new(values) }
    }

    /// The name it is found by.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn values(&self, object: &Object<K>) -> Vec<String> {
        (self.values)(object)
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), values: self.values.clone() }
    }
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name).finish()
    }
}
