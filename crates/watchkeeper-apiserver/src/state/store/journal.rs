//! What must outlive the process? The changes since they were last written down, for whoever writes them, and the way back.
//!
//! Every version of an object is kept under its revision, as long as it is the newest or a change in the log speaks of it. So the
//! versions in order give back both objects and log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Change, Store, Stored, Window};
use crate::kinds::kind::ResourceId;

/// What a store with a journal knows more.
#[derive(Debug)]
pub(super) struct Journal {
    batch: Batch,
    /// Changes up to this revision are safe, and may be told.
    safe: u64,
}

/// Changes that belong together: all of them are written down, or none.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// New versions; the flag tells that the object is gone with it.
    pub(crate) versions: Vec<(ResourceId, Arc<Stored>, bool)>,
    /// Revisions of versions that nobody can ask for any more; some may be among the new ones.
    pub(crate) forgotten: Vec<u64>,
    /// Whose watches are to be woken, and how far those logs reach.
    pub(crate) resources: BTreeMap<ResourceId, Reach>,
    /// The revision after these changes.
    pub(crate) revision: u64,
    /// Versions before this one are gone.
    pub(crate) floor: u64,
}

/// How far back the log of a resource reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    AsBefore,
    /// Not to this revision, nor to those before.
    After(u64),
    /// The resource is no more.
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

    /// A change has left the log, and with it the state before; of an object that is gone also the state after.
    pub(super) fn forget(&mut self, id: &ResourceId, change: &Change) {
        self.batch.forgotten.extend(change.before.iter().map(|before| before.revision));
        self.batch.forgotten.extend(change.removed.then_some(change.revision));
        self.batch.resources.insert(id.clone(), Reach::After(change.revision));
    }
}

impl Store {
    /// A store as it was kept; its versions are to follow in the order of their revisions, with [`Store::restore`].
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

    /// Puts a version back where it was.
    pub(crate) fn restore(&mut self, id: &ResourceId, stored: Stored, removed: bool) {
        let after = Arc::new(stored);
        let resource = self.resources.entry(id.clone()).or_default();
        let before = match removed {
            true => resource.objects.remove(&after.key),
            false => resource.objects.insert(after.key.clone(), after.clone()),
        };
        if after.revision > resource.dropped {
            resource.append(Change::new(before, after, removed));
            resource.trim(id, self.window, self.journal.as_mut());
        }
    }

    /// The newest revision that may be told to anybody: the newest of all, unless changes are still to be written down.
    pub(crate) fn safe_revision(&self) -> u64 {
        self.journal.as_ref().map_or(self.revision, |journal| journal.safe)
    }

    /// Whether there is something to write down.
    pub(crate) fn has_batch(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| !journal.batch.resources.is_empty())
    }

    /// Takes what is to be written down.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        if !self.has_batch() {
            return None;
        }
        let (revision, floor) = (self.revision, self.floor);
        let journal = self.journal.as_mut()?;
        let batch = std::mem::take(&mut journal.batch);
        Some(Batch { revision, floor, ..batch })
    }

    /// A batch has been written down: its changes are told from now on.
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
