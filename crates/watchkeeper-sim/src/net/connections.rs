//! The connections of replicas, which faults break: all of them, or those of the watches of one resource.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::MOST_RESOURCES;
use crate::site::{Target, Verb};

/// The connections that are open, and those that will be.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// Cancelled to break all connections.
    all: CancellationToken,
    /// For each resource that is watched, a token that breaks its watches.
    watches: BTreeMap<String, CancellationToken>,
}

impl Connections {
    /// The token that is cancelled when the connection of a request breaks.
    pub(super) fn of(&mut self, target: &Target) -> CancellationToken {
        if target.verb != Verb::Watch {
            return self.all.clone();
        }
        if let Some(watches) = self.watches.get(&target.resource) {
            return watches.clone();
        }
        let watches = self.all.child_token();
        if self.watches.len() < MOST_RESOURCES {
            self.watches.insert(target.resource.clone(), watches.clone());
        }
        watches
    }

    /// Breaks all connections.
    pub(super) fn break_all(self) {
        self.all.cancel();
    }

    /// The token to cancel so that the watches of a resource break: those opened later have another.
    pub(super) fn take_watches(&mut self, resource: &str) -> Option<CancellationToken> {
        self.watches.remove(resource)
    }
}
