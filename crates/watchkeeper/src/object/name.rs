//! Object names: a namespace and a name, kept apart, displayed as `namespace/name`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use kube_core::Resource;

use super::key_error::KeyError;

/// The key of an object within its kind: `namespace/name`, or `name` for a cluster-scoped one. A clone copies a
/// pointer.
///
/// ```
/// use watchkeeper::ObjectName;
/// let key: ObjectName = "default/web".parse()?;
/// assert_eq!((key.namespace(), key.name()), (Some("default"), "web"));
/// assert_eq!(ObjectName::cluster("node-1").to_string(), "node-1");
/// # Ok::<(), watchkeeper::object::KeyFormatError>(())
/// ```
#[derive(Clone)]
pub struct ObjectName {
    text: Arc<str>,
    /// Length of the namespace; `CLUSTER` for none. The name starts one byte after it.
    namespace: u32,
}

const CLUSTER: u32 = u32::MAX;

/// The error of a text that is not a key: it has more than one slash, or no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected key format {0:?}: expected namespace/name or name")]
pub struct KeyFormatError(pub String);

impl ObjectName {
    /// Returns the key of an object in a namespace; an empty namespace counts as none.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self::cluster(name);
        }
        Self { text: format!("{namespace}/{name}").into(), namespace: namespace.len() as u32 }
    }

    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { text: name.into(), namespace: CLUSTER }
    }

    /// Returns the key with the same namespace and another name.
    pub fn sibling(&self, name: &str) -> Self {
        Self::namespaced(self.namespace().unwrap_or(""), name)
    }

    /// Returns the key of a typed object.
    ///
    /// # Errors
    ///
    /// The object has no name.
    pub fn of<K: Resource>(object: &K) -> Result<Self, KeyError> {
        let meta = object.meta();
        match meta.name.as_deref() {
            Some(name) if !name.is_empty() => {
                Ok(Self::namespaced(meta.namespace.as_deref().unwrap_or(""), name))
            }
            _ => Err(KeyError::no_name(object)),
        }
    }

    /// Returns the namespace; none for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        (self.namespace != CLUSTER).then(|| &self.text[..self.namespace as usize])
    }

    /// Returns the name within the namespace.
    pub fn name(&self) -> &str {
        match self.namespace {
            CLUSTER => &self.text,
            length => &self.text[length as usize + 1..],
        }
    }
}

impl FromStr for ObjectName {
    type Err = KeyFormatError;

    /// Parses `namespace/name` or `name`; `/name` is the cluster-scoped `name`.
    fn from_str(text: &str) -> Result<Self, KeyFormatError> {
        let bad = || KeyFormatError(text.to_owned());
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        if name.is_empty() || name.contains('/') {
            return Err(bad());
        }
        Ok(Self::namespaced(namespace, name))
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl PartialEq for ObjectName {
    fn eq(&self, other: &Self) -> bool {
        self.namespace == other.namespace && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for ObjectName {}

impl Hash for ObjectName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Real names never give two keys with the same text and different splits.
        self.text.hash(state);
    }
}

impl Ord for ObjectName {
    /// Orders by namespace, then by name.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // client-go: TestObjectNames
    #[test]
    fn keys_split_and_join() {
        for (text, namespace, name, printed) in [
            ("ns/name", Some("ns"), "name", "ns/name"),
            ("name", None, "name", "name"),
            ("/name", None, "name", "name"),
        ] {
            let key: ObjectName = text.parse().unwrap();
            assert_eq!((key.namespace(), key.name(), key.to_string().as_str()), (namespace, name, printed));
        }
    }

    #[test]
    fn malformed_keys_are_refused_by_name() {
        for text in ["a/b/c", "", "ns/", "/"] {
            assert_eq!(text.parse::<ObjectName>(), Err(KeyFormatError(text.to_owned())));
        }
    }

    #[test]
    fn order_is_by_namespace_then_name() {
        let mut keys: Vec<ObjectName> = ["b/a", "a-b/c", "a/z", "n"].map(|k| k.parse().unwrap()).into();
        keys.sort();
        assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ["n", "a/z", "a-b/c", "b/a"]);
    }

    #[test]
    fn a_sibling_shares_the_namespace() {
        let key = ObjectName::namespaced("ns", "a");
        assert_eq!(key.sibling("b"), ObjectName::namespaced("ns", "b"));
        assert_eq!(ObjectName::cluster("a").sibling("b"), ObjectName::cluster("b"));
        assert_ne!(key, ObjectName::cluster("ns/a"));
    }
}
