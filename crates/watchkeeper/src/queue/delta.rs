//! What can happen to an object on its way into the store?

use crate::object::{Object, ObjectName, ResourceVersion};

/// One change on its way from the reflector to the store.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delta<K> {
    /// The watch brought a new object.
    Added(Object<K>),
    /// The watch brought a new state of an object.
    Updated(Object<K>),
    /// An object is gone.
    Deleted(Deleted<K>),
    /// A list brought an object.
    Replaced(Object<K>),
    /// An object of the store is told again.
    Sync(Object<K>),
    /// A list brought the whole state, to be applied in one step.
    ReplacedAll {
        /// All objects there are.
        items: Vec<Object<K>>,
        /// The version of the list.
        version: ResourceVersion,
    },
    /// All objects of the store are told again.
    SyncAll,
    /// Nothing else happened up to this version.
    Bookmark(ResourceVersion),
}

impl<K> Delta<K> {
    /// The key it is about; none for those about all objects or none.
    pub fn key(&self) -> Option<ObjectName> {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Replaced(object) | Self::Sync(object) => {
                Some(object.key())
            }
            Self::Deleted(deleted) => Some(deleted.key()),
            Self::ReplacedAll { .. } | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// The state it carries of one object.
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Replaced(object) | Self::Sync(object) => {
                Some(object)
            }
            Self::Deleted(deleted) => deleted.last_known(),
            Self::ReplacedAll { .. } | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// The version of the stream after it, where it has one: a tombstone's object may be old, and a resync is nothing new.
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

    /// Bytes that it keeps in memory while it waits: its own, and those of the objects it carries.
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

/// An object that is gone: with its final state, or a tombstone where the delete itself was missed.
#[derive(Debug)]
pub enum Deleted<K> {
    /// The state in which the server deleted it.
    Final(Object<K>),
    /// The delete was missed; a later list shows that the object is gone.
    Unknown {
        /// Which object.
        key: ObjectName,
        /// The last state seen, which may be old.
        last_known: Option<Object<K>>,
    },
}

impl<K> Deleted<K> {
    /// The key of the object, known in both cases.
    pub fn key(&self) -> ObjectName {
        match self {
            Self::Final(object) => object.key(),
            Self::Unknown { key, .. } => key.clone(),
        }
    }

    /// The final state, or the last one seen.
    pub fn last_known(&self) -> Option<&Object<K>> {
        match self {
            Self::Final(object) => Some(object),
            Self::Unknown { last_known, .. } => last_known.as_ref(),
        }
    }

    /// Whether the delete itself was missed.
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
