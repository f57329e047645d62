//! Work that a write leaves behind and that spans a collection.

use std::collections::BTreeSet;

use crate::state::store::{Key, Stored};

/// A task that spans a collection.
#[derive(Clone, Debug)]
pub(crate) enum Duty {
    /// Delete the objects of a terminating definition, then the definition itself.
    Empty { definition: String, uid: String, after: Option<Key> },
    /// Prune and default the objects of a definition by its current schemas.
    Renew { definition: String, after: Option<Key>, any: bool, expire: bool },
    /// Decide again on the names of these definitions, and of those that the decisions affect.
    Decide(BTreeSet<String>),
}

impl Duty {
    pub(crate) fn empty(marked: &Stored) -> Self {
        Self::Empty { definition: marked.key.name.clone(), uid: marked.uid.clone(), after: None }
    }

    pub(crate) fn renew(definition: &str) -> Self {
        Self::Renew { definition: definition.to_owned(), after: None, any: false, expire: true }
    }
}
