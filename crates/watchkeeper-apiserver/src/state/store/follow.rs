//! Watches of a resource, and the state kept for them after the resource is closed.

use std::sync::Arc;
use std::task::Waker;

use super::{Change, Forgotten, Resource, Store, Stored, Window};
use crate::kinds::kind::ResourceId;

/// The resource that a watch follows, identified by its lifetime. A resource created again under the same name is a
/// different one.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    id: ResourceId,
    began: u64,
    watch: u64,
}

/// Values to drop after the store is unlocked. Dropping a waker may drop a task and with it another watch, which locks
/// the store in its own destructor.
#[derive(Debug)]
pub(crate) struct Left {
    _waker: Option<Waker>,
    _resource: Option<(ResourceId, Resource)>,
}

impl Store {
    /// Registers a watch of a resource, until [`Store::leave`].
    pub(crate) fn follow(&mut self, id: &ResourceId, watch: u64) -> Followed {
        let resource = self.resources.entry(id.clone()).or_default();
        resource.watches += 1;
        Followed { id: id.clone(), began: resource.began, watch }
    }

    /// Deregisters a watch.
    pub(crate) fn leave(&mut self, followed: &Followed) -> Left {
        let mut left = Left { _waker: None, _resource: None };
        if let Some(resource) = self.followed_mut(followed) {
            resource.watches -= 1;
            left._waker = resource.wakers.remove(&followed.watch);
        }
        let unused = self.closed.iter().position(|(_, resource)| resource.watches == 0);
        left._resource = unused.map(|at| self.closed.swap_remove(at));
        left
    }

    /// Returns the durable changes after the cursor of a watch, up to about `bytes` of them.
    ///
    /// Fails if changes after the cursor have been dropped from the log: the watch is too slow.
    pub(crate) fn next_changes(
        &self,
        followed: &Followed,
        cursor: u64,
        bytes: usize,
    ) -> Result<Vec<Change>, Forgotten> {
        let Some(resource) = self.followed(followed) else { return Ok(Vec::new()) };
        if cursor < resource.dropped {
            return Err(Forgotten { oldest: resource.dropped.max(self.floor) });
        }
        let safe = self.safe_revision();
        let mut size = 0;
        let changes = resource.changes_after(cursor).take_while(|change| {
            let fits = change.revision <= safe && size < bytes;
            size += change.after.bytes.len();
            fits
        });
        Ok(changes.cloned().collect())
    }

    /// Returns the changes of a resource after a revision, durable or not, and for each whether it removed its object;
    /// `None` if they are no longer in the history.
    pub(crate) fn changes(&self, id: &ResourceId, after: u64) -> Option<Vec<(Arc<Stored>, bool)>> {
        let resource = self.resources.get(id).filter(|resource| resource.dropped <= after)?;
        let changes = resource.changes_after(after);
        Some(changes.map(|change| (change.after.clone(), change.removed)).collect())
    }

    /// Wakes `waker` at the next change of the resource, or when watches are ended.
    ///
    /// Returns the replaced waker, to be dropped after the store is unlocked, like [`Left`].
    pub(crate) fn wake_on_change(&mut self, followed: &Followed, waker: &Waker) -> Option<Waker> {
        self.followed_mut(followed)?.wakers.insert(followed.watch, waker.clone())
    }

    /// Returns whether the resource was closed by a change that is durable.
    pub(crate) fn is_over(&self, followed: &Followed) -> bool {
        let closed_at = self.followed(followed).map_or(Some(0), |resource| resource.closed_at);
        closed_at.is_some_and(|revision| revision <= self.safe_revision())
    }

    /// Starts a resource whose kind is new, without the history of an earlier one of the same name.
    pub(crate) fn begin(&mut self, id: &ResourceId) {
        let began = self.revision;
        self.resources.insert(id.clone(), Resource { began, dropped: began, ..Resource::default() });
        if let Some(journal) = &mut self.journal {
            journal.begin(id, began);
        }
    }

    /// Ends the watches of a resource and drops its history, because its stored objects now read differently from their
    /// logged changes. Clients relist.
    pub(crate) fn expire(&mut self, id: &ResourceId) {
        let Some(resource) = self.resources.get_mut(id) else { return };
        resource.trim(id, Window::of(0), self.journal.as_mut());
        // The new lifetime disconnects the present watches.
        (resource.began, resource.dropped, resource.watches) = (self.revision, self.revision, 0);
        self.to_wake.append(&mut resource.take_wakers());
        if let Some(journal) = &mut self.journal {
            journal.begin(id, self.revision);
        }
    }

    /// Closes a resource whose kind and objects are gone. Its watches end after the last change; then the log is
    /// dropped.
    pub(crate) fn close(&mut self, id: &ResourceId) {
        let Some(mut resource) = self.resources.remove(id) else { return };
        debug_assert!(resource.objects.is_empty(), "a kind goes after its objects");
        if let Some(journal) = &mut self.journal {
            journal.close(id, &resource.log);
        }
        self.to_wake.append(&mut resource.take_wakers());
        if resource.watches > 0 {
            resource.closed_at = Some(self.revision);
            self.closed.push((id.clone(), resource));
        }
    }

    /// Closes resources whose kind is gone but whose log an earlier version of this program kept.
    pub(crate) fn close_others(&mut self, known: impl Fn(&ResourceId) -> bool) {
        let empty = self.resources.iter().filter(|(id, resource)| !known(id) && resource.objects.is_empty());
        let others: Vec<_> = empty.map(|(id, _)| id.clone()).collect();
        others.iter().for_each(|id| self.close(id));
    }

    fn followed(&self, followed: &Followed) -> Option<&Resource> {
        let closed = self.closed.iter().filter(|(id, _)| *id == followed.id).map(|(_, resource)| resource);
        let mut both = self.resources.get(&followed.id).into_iter().chain(closed);
        both.find(|resource| resource.began == followed.began)
    }

    fn followed_mut(&mut self, followed: &Followed) -> Option<&mut Resource> {
        let closed = self.closed.iter_mut().filter(|(id, _)| *id == followed.id);
        let closed = closed.map(|(_, resource)| resource);
        let mut both = self.resources.get_mut(&followed.id).into_iter().chain(closed);
        both.find(|resource| resource.began == followed.began)
    }
}
