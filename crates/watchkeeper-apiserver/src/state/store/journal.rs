//! The journal: changes that are not yet durable, and the restore of a store.
//!
//! Every version of an object is kept under its revision as long as it is the newest or part of a change in the log.
//! Reading the versions in order therefore restores both objects and log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Change, Store, Stored, Window};
use crate::kinds::kind::ResourceId;

/// The journal of a store with a data directory.
#[derive(Debug)]
pub(super) struct Journal {
    batch: Batch,
    /// Changes up to this revision are durable and visible to watches.
    safe: u64,
}

/// Changes that are written atomically.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// New versions; the flag marks a removal.
    pub(crate) versions: Vec<(ResourceId, Arc<Stored>, bool)>,
    /// Revisions of versions that are no longer reachable; some may be among the new ones.
    pub(crate) forgotten: Vec<u64>,
    /// The resources whose watches to wake, and the reach of their logs.
    pub(crate) resources: BTreeMap<ResourceId, Reach>,
    /// The revision after these changes.
    pub(crate) revision: u64,
    /// Revisions before this one are compacted.
    pub(crate) floor: u64,
}

/// The reach of a resource's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    AsBefore,
    /// The log starts after this revision.
    After(u64),
    /// The resource was removed.
    Gone,
}

impl Journal {
    pub(super) fn keep(&mut self, id: &ResourceId, after: &Arc<Stored>, removed: bool) {
        self.batch.versions.push((id.clone(), after.clone(), removed));
        self.touch(id);
    }

    fn touch(&mut self, id: &ResourceId) {
        self.batch.resources.entry(id.clone()).or_default();
    }

    pub(super) fn begin(&mut self, id: &ResourceId, revision: u64) {
        self.batch.resources.insert(id.clone(), Reach::After(revision));
    }

    pub(super) fn close(&mut self, id: &ResourceId, log: &VecDeque<Change>) {
        log.iter().for_each(|change| self.forget(id, change));
        self.batch.resources.insert(id.clone(), Reach::Gone);
    }

    /// A change was dropped from the log, and with it the state before; for a removal also the state after.
    pub(super) fn forget(&mut self, id: &ResourceId, change: &Change) {
        self.batch.forgotten.extend(change.before.iter().map(|before| before.revision));
        self.batch.forgotten.extend(change.removed.then_some(change.revision));
        self.batch.resources.insert(id.clone(), Reach::After(change.revision));
    }
}

impl Store {
    /// Creates a store from saved counters. Its versions follow in revision order, with [`Store::restore`].
    pub(crate) fn kept(
        revision: u64,
        floor: u64,
        window: Window,
        dropped: impl IntoIterator<Item = (ResourceId, u64)>,
    ) -> Self {
        let mut store = Self::new(revision, window);
        store.floor = floor;
        store.journal = Some(Journal { batch: Batch::default(), safe: revision });
        for (id, dropped) in dropped {
            store.resources.entry(id).or_default().dropped = dropped;
        }
        store
    }

    /// Restores a version.
    pub(crate) fn restore(&mut self, id: &ResourceId, stored: Stored, removed: bool) {
        let after = Arc::new(stored);
        let resource = self.resources.entry(id.clone()).or_default();
        let before = match removed {
            true => resource.objects.remove(&after.key),
            false => resource.objects.insert(after.key.clone(), after.clone()),
        };
        resource.changed = after.revision;
        if after.revision > resource.dropped {
            resource.append(Change::new(before, after, removed));
            resource.trim(id, self.window, self.journal.as_mut());
        }
    }

    /// The newest durable revision, which is the newest that clients may see.
    pub(crate) fn safe_revision(&self) -> u64 {
        self.journal.as_ref().map_or(self.revision, |journal| journal.safe)
    }

    /// Returns whether there are changes to write.
    pub(crate) fn has_batch(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| !journal.batch.resources.is_empty())
    }

    /// Takes the changes to write.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        if !self.has_batch() {
            return None;
        }
        let (revision, floor) = (self.revision, self.floor);
        let journal = self.journal.as_mut()?;
        let batch = std::mem::take(&mut journal.batch);
        Some(Batch { revision, floor, ..batch })
    }

    /// Marks a batch as durable and wakes its watches.
    pub(crate) fn settle(&mut self, batch: &Batch) {
        let Some(journal) = &mut self.journal else { return };
        journal.safe = batch.revision;
        for id in batch.resources.keys() {
            let closed = self.closed.iter_mut().filter(|(closed, _)| closed == id);
            let both = self.resources.get_mut(id).into_iter().chain(closed.map(|(_, resource)| resource));
            both.for_each(|resource| self.to_wake.append(&mut resource.take_wakers()));
        }
    }
}
