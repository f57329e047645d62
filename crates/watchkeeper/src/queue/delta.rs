//! Changes to objects on their way into the store.

use crate::object::{Object, ObjectName, ResourceVersion};

/// One change on its way from the reflector to the store.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delta<K> {
    /// A new object from the watch.
    Added(Object<K>),
    /// A new state of an object from the watch.
    Updated(Object<K>),
    /// A deleted object.
    Deleted(Deleted<K>),
    /// An object from a list.
    Replaced(Object<K>),
    /// An object of the store, in a resync.
    Sync(Object<K>),
    /// The whole state from a list, to be applied in one step.
    ReplacedAll {
        /// All existing objects.
        items: Vec<Object<K>>,
        /// The version of the list.
        version: ResourceVersion,
    },
    /// All objects of the store, in a resync.
    SyncAll,
    /// A bookmark: nothing else happened up to this version.
    Bookmark(ResourceVersion),
}

impl<K> Delta<K> {
    /// Returns the key of the object; none for a change of all objects or of none.
    pub fn key(&self) -> Option<ObjectName> {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Replaced(object) | Self::Sync(object) => {
                Some(object.key())
            }
            Self::Deleted(deleted) => Some(deleted.key()),
            Self::ReplacedAll { .. } | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// Returns the state of the object, for a change of one object.
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Replaced(object) | Self::Sync(object) => {
                Some(object)
            }
            Self::Deleted(deleted) => deleted.last_known(),
            Self::ReplacedAll { .. } | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// Returns the version of the stream after this change. A tombstone and a resync have none: they carry old states.
    pub fn version(&self) -> Option<&ResourceVersion> {
        let version = match self {
            Self::Added(object) | Self::Updated(object) => object.version(),
            Self::Deleted(Deleted::Final(object)) => object.version(),
            Self::ReplacedAll { version, .. } | Self::Bookmark(version) => version,
            Self::Deleted(Deleted::Unknown { .. }) | Self::Replaced(_) | Self::Sync(_) | Self::SyncAll => {
                return None;
            }
        };
        (!version.is_unset()).then_some(version)
    }

    /// Returns the bytes that the delta keeps in memory while it is queued: its own, and those of its objects.
    pub fn bytes(&self) -> usize {
        let objects = match self {
            Self::ReplacedAll { items, .. } => items.iter().map(Object::size).sum(),
            _ => self.object().map_or(0, Object::size),
        };
        size_of::<Self>() + objects
    }

    pub(super) fn is_delete(&self) -> bool {
        matches!(self, Self::Deleted(_))
    }
}

impl<K> Clone for Delta<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Updated(object) => Self::Updated(object.clone()),
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
            Self::Replaced(object) => Self::Replaced(object.clone()),
            Self::Sync(object) => Self::Sync(object.clone()),
            Self::ReplacedAll { items, version } => {
                Self::ReplacedAll { items: items.clone(), version: version.clone() }
            }
            Self::SyncAll => Self::SyncAll,
            Self::Bookmark(version) => Self::Bookmark(version.clone()),
        }
    }
}

/// A deleted object: with its final state, or a tombstone if the delete itself was missed.
#[derive(Debug)]
pub enum Deleted<K> {
    /// The state in which the server deleted it.
    Final(Object<K>),
    /// A tombstone: the delete was missed, and a later list shows that the object does not exist.
    Unknown {
        /// The key of the object.
        key: ObjectName,
        /// The last state seen, which may be old.
        last_known: Option<Object<K>>,
    },
}

impl<K> Deleted<K> {
    /// Returns the key of the object, known in both cases.
    pub fn key(&self) -> ObjectName {
        match self {
            Self::Final(object) => object.key(),
            Self::Unknown { key, .. } => key.clone(),
        }
    }

    /// Returns the final state, or the last one seen.
    pub fn last_known(&self) -> Option<&Object<K>> {
        match self {
            Self::Final(object) => Some(object),
            Self::Unknown { last_known, .. } => last_known.as_ref(),
        }
    }

    /// Returns whether the delete itself was missed.
    pub fn is_tombstone(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    pub(crate) fn tombstone(object: &Object<K>) -> Self {
        Self::Unknown { key: object.key(), last_known: Some(object.clone()) }
    }
}

impl<K> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Final(object) => Self::Final(object.clone()),
            Self::Unknown { key, last_known } => {
                Self::Unknown { key: key.clone(), last_known: last_known.clone() }
            }
        }
    }
}
