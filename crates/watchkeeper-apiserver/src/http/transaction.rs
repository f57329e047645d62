//! Access to the state: reads, writes that work without the lock, and commits under it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::codec::media_type::content_type;
use crate::failure::{Failure, Result};
use crate::http::backlog::Backlog;
use crate::http::body::LARGE;
use crate::http::handler::Call;
use crate::http::route::Target;
use crate::http::shared::Shared;
use crate::kinds::kind::Kind;
use crate::state::core::{Core, commit_change};
use crate::state::duty::Duty;
use crate::state::store::Stored;
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::update::MODIFIED;

/// The maximum number of attempts of a write whose object changes each time meanwhile.
pub(crate) const TRIES: usize = 100;

/// The same for large data, where each attempt takes long. The real server allows a patch as many conflicts.
pub(crate) const LARGE_TRIES: usize = 5;

/// The size above which work runs outside the worker thread. Defaulting can make an object many times as large as its
/// body.
const ASIDE: usize = 8 * 1024;

impl Call {
    /// Writes an object: reads the core, works without the lock, and stores the result if what was read is current.
    /// Otherwise the request starts over, and fails with a conflict after too many attempts.
    pub(crate) fn write(
        &self,
        kind: &Arc<Kind>,
        see: impl FnOnce(&Core) -> Result<Seen>,
        work: impl FnOnce(&Seen) -> Result<Draft>,
    ) -> Result<(Arc<Stored>, bool)> {
        let tries = 1 + self.tries.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.read(kind, |core| see(core))?;
        if let Some(session) = &self.admission {
            seen.fix(session);
        }
        let old = seen.old.as_ref().map_or(0, |old| old.bytes.len());
        let bytes = self.body.get().map_or(0, Bytes::len).max(old);
        let mut draft = self.work(if self.may_grow(kind) { usize::MAX } else { bytes }, || work(&seen))?;
        self.check_grants(kind, &draft)?;
        self.check_node(kind, &draft)?;
        if let Some(session) = &self.admission {
            draft.charge(session.take_charges());
        }
        let limit = if bytes > LARGE || kind.is_definition() { LARGE_TRIES } else { TRIES };
        let stored = self.commit_if_current(kind, |core| core.store(&draft));
        if tries < limit || !stored.as_ref().is_err_and(|failure| failure.outdated) {
            return stored;
        }
        let name = draft.key.name.clone();
        let stored = match kind.is_definition() {
            true => self.commit_if_current(kind, |core| core.store_definition(draft)),
            false => stored,
        };
        stored.map_err(|failure| match failure.outdated {
            true => Failure::conflict(kind, &name, MODIFIED),
            false => failure,
        })
    }

    /// Reads the core, if `kind` is still the kind of the URL: its definition may have changed meanwhile.
    pub(super) fn read<T>(&self, kind: &Arc<Kind>, read: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut core = self.shared.core.lock();
        self.check(&core, kind)?;
        read(&mut core)
    }

    /// Commits a change of the core, under the same condition.
    pub(super) fn commit_if_current<T>(
        &self,
        kind: &Arc<Kind>,
        write: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.commit(|core| self.check(core, kind).and_then(|()| write(core)))
    }

    /// Fails with [`Failure::outdated`] if `kind` is no longer the kind of the URL.
    fn check(&self, core: &Core, kind: &Arc<Kind>) -> Result<()> {
        let Target { group, version, resource, .. } = &self.target;
        match core.registry.find(group, version, resource) {
            Some(found) if Arc::ptr_eq(found, kind) => Ok(()),
            _ => Err(Failure::outdated()),
        }
    }

    /// Commits a change of the core, and keeps the duties that it leaves behind.
    pub(super) fn commit<T>(&self, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, duties) = self.shared.commit(write);
        self.backlog.lock().extend(duties);
        result
    }

    /// Runs work on so many bytes. Over a socket, a multi-threaded runtime serves other requests on another thread
    /// meanwhile; in process the order of execution is kept.
    pub(crate) fn work<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        aside(self.stop.is_some(), bytes, work)
    }

    /// Returns whether a small write may take long: definitions are compiled, custom objects are defaulted and checked
    /// by rules of any cost, and JSON patches copy values.
    fn may_grow(&self, kind: &Kind) -> bool {
        kind.is_definition()
            || kind.custom.is_some()
            || content_type(&self.headers) == "application/json-patch+json"
    }
}

impl Shared {
    /// Changes the core under its lock, then wakes everybody who waits for changes: watches, the writer of the data
    /// directory, and requests for a future revision. Returns the duties that the change leaves behind.
    pub(crate) fn commit<T>(&self, write: impl FnOnce(&mut Core) -> T) -> (T, VecDeque<Duty>) {
        let (result, duties, has_batch) = commit_change(&self.core, |core| {
            (write(core), std::mem::take(&mut core.duties), core.store.has_batch())
        });
        if let Some(durable) = self.durable.as_ref().filter(|_| has_batch) {
            durable.wake();
        }
        self.changed.notify_waiters();
        (result, duties)
    }

    /// Commits a change, and does the work that it leaves behind.
    pub(crate) fn run<T>(self: &Arc<Self>, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, duties) = self.commit(write);
        // Dropping the backlog does the remaining work.
        Backlog::new(self).extend(duties);
        result
    }
}

/// Runs work on so many bytes, see [`Call::work`].
pub(super) fn aside<T>(socket: bool, bytes: usize, work: impl FnOnce() -> T) -> T {
    let several = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > ASIDE && socket && several() { block_in_place(work) } else { work() }
}
