//! Who follows a resource? Watches, and what is kept for them of a resource that was closed.

use std::task::Waker;

use super::{Change, Forgotten, Resource, Store, Window};
use crate::kinds::kind::ResourceId;

/// What a watch follows: a resource from its beginning to its end. One that begins again under its name is another.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    id: ResourceId,
    began: u64,
    watch: u64,
}

/// What a watch leaves behind, to be dropped once the store is unlocked: with a waker a task may go, and with that a watch, which locks the
/// store to say good-bye.
#[derive(Debug)]
pub(crate) struct Left {
    _waker: Option<Waker>,
    _resource: Option<(ResourceId, Resource)>,
}

impl Store {
    /// Begins to follow a resource, until [`Store::leave`].
    pub(crate) fn follow(&mut self, id: &ResourceId, watch: u64) -> Followed {
        let resource = self.resources.entry(id.clone()).or_default();
        resource.watches += 1;
        Followed { id: id.clone(), began: resource.began, watch }
    }

    /// The watch is over.
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

    /// The changes after a watch's cursor that everybody may know; no further ones once there are so many `bytes` of them.
    ///
    /// Fails when changes between the two have left the log, as happens to a reader that is too slow.
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

    /// Wakes `waker` at the next change of the resource, or when watches are ended.
    ///
    /// Returns the waker it replaces, to be dropped once the store is unlocked, as [`Left`].
    pub(crate) fn wake_on_change(&mut self, followed: &Followed, waker: &Waker) -> Option<Waker> {
        self.followed_mut(followed)?.wakers.insert(followed.watch, waker.clone())
    }

    /// Whether the resource was closed, and everybody may know.
    pub(crate) fn is_over(&self, followed: &Followed) -> bool {
        let closed_at = self.followed(followed).map_or(Some(0), |resource| resource.closed_at);
        closed_at.is_some_and(|revision| revision <= self.safe_revision())
    }

    /// Begins a resource whose kind is new: of what had its name before nothing is known.
    pub(crate) fn begin(&mut self, id: &ResourceId) {
        let began = self.revision;
        self.resources.insert(id.clone(), Resource { began, dropped: began, ..Resource::default() });
        if let Some(journal) = &mut self.journal {
            journal.begin(id, began);
        }
    }

    /// Ends the watches of a resource whose objects read otherwise than its log tells, and forgets that: a list shows how they read.
    pub(crate) fn expire(&mut self, id: &ResourceId) {
        let Some(resource) = self.resources.get_mut(id) else { return };
        resource.trim(id, Window::of(0), self.journal.as_mut());
        // Who has followed it so far does not find it any more.
        (resource.began, resource.dropped, resource.watches) = (self.revision, self.revision, 0);
        self.to_wake.append(&mut resource.take_wakers());
        if let Some(journal) = &mut self.journal {
            journal.begin(id, self.revision);
        }
    }

    /// Ends a resource whose kind and objects are gone. Watches end once they have seen every change so far; then its log goes too.
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

    /// Closes what is left of resources whose kind is gone: an earlier version kept their logs.
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
