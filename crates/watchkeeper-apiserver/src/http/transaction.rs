//! Access to the state: reads, writes that work without the lock, and the slices that a write leaves behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body::Body;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::codec::media_type::content_type;
use crate::failure::{Failure, Result};
use crate::http::handler::{BoxError, Call};
use crate::http::parameters::collect_body;
use crate::http::route::Target;
use crate::kinds::kind::Kind;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};
use crate::verbs::delete::{DeleteOptions, Deleted, Departure};
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::update::MODIFIED;

/// How often a write is worked out before it is given up, as the object was changed each time meanwhile. Small writes get by.
pub(crate) const TRIES: usize = 100;

/// The same for a write of large data, of which each try takes long. The real server gives up a patch after as many conflicts.
pub(crate) const LARGE_TRIES: usize = 5;

/// From which size on a body or an object is large.
pub(crate) const LARGE: usize = 64 * 1024;

/// From which size on something is worked on aside. Defaults can make a built-in object many times as large as it was sent.
const ASIDE: usize = 8 * 1024;

/// Works on so many bytes, see [`Call::work`].
pub(super) fn aside<T>(socket: bool, bytes: usize, work: impl FnOnce() -> T) -> T {
    let several = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > ASIDE && socket && several() { block_in_place(work) } else { work() }
}

impl Call {
    /// The whole body; kept, as a request that begins anew cannot read it again.
    pub(crate) async fn read_body<B>(&self, body: B) -> Result<Bytes>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let read = collect_body(&self.shared.clock, body).await?;
        // It is waited for over a socket alone, where others are to be served meanwhile.
        if self.stop.is_some() && read.len() > LARGE && self.turn.get().is_none() {
            let turn = self.shared.large_turn(read.len()).await?;
            // No other turn has been set.
            let _set = self.turn.set(turn);
        }
        Ok(self.body.get_or_init(|| read).clone())
    }

    /// Works on so many bytes. Over a socket the runtime goes on with other requests on another thread if it has several; in process
    /// everything stays in its order.
    pub(crate) fn work<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        aside(self.stop.is_some(), bytes, work)
    }

    /// Runs a write on the core if `kind` is still what the URL names: its definition may have changed while the body came.
    pub(super) fn commit_if_current<T>(
        &self,
        kind: &Arc<Kind>,
        write: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.run(|core| self.check(core, kind).and_then(|()| write(core)))
    }

    /// Runs a write on the core, and notes what it leaves to do.
    pub(super) fn run<T>(&self, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, duties) = self.shared.run_part(write);
        self.backlog.lock().extend(duties);
        result
    }

    /// Does what the writes have left to do. Over a socket that goes on though the client leaves.
    pub(super) async fn work_off(&self) {
        let backlog = self.backlog.lock().take();
        if backlog.is_empty() {
            return;
        }
        let socket = self.stop.is_some();
        let finish = backlog.finish(move |backlog| aside(socket, usize::MAX, || backlog.advance()));
        if socket {
            // Its panic, if any, has been printed already.
            let _ended = tokio::spawn(finish).await;
        } else {
            finish.await;
        }
    }

    /// Writes an object: looks at the core, works without it, and stores what came out if nothing of what was seen has changed meanwhile.
    /// Otherwise the request begins anew, and fails with a conflict once that has happened too often: the core is never held for longer.
    pub(crate) fn write(
        &self,
        kind: &Arc<Kind>,
        see: impl FnOnce(&Core) -> Result<Seen>,
        work: impl FnOnce(&Seen) -> Result<Draft>,
    ) -> Result<(Arc<Stored>, bool)> {
        let tries = 1 + self.tries.fetch_add(1, Ordering::Relaxed);
        let seen = self.read(kind, |core| see(core))?;
        let old = seen.old.as_ref().map_or(0, |old| old.bytes.len());
        let bytes = self.body.get().map_or(0, Bytes::len).max(old);
        let draft = self.work(if self.may_grow(kind) { usize::MAX } else { bytes }, || work(&seen))?;
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
        stored.map_err(
            |failure| {
                if failure.outdated { Failure::conflict(kind, &name, MODIFIED) } else { failure }
            },
        )
    }

    /// Deletes an object: looks at the core, works without it, and lets the object go if it has not changed meanwhile. Otherwise the request
    /// begins anew; once that has happened too often it holds the core for as long as it takes.
    pub(super) fn delete(&self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<Deleted> {
        let tries = 1 + self.tries.fetch_add(1, Ordering::Relaxed);
        let old = self.read(kind, |core| core.get(kind, key))?;
        if tries > if old.bytes.len() > LARGE { LARGE_TRIES } else { TRIES } {
            return self.commit_if_current(kind, |core| core.delete_one(kind, key, options));
        }
        let plan = || Departure::plan(kind, &old, options, self.now());
        let departure = self.work(old.bytes.len(), plan)?;
        self.commit_if_current(kind, |core| core.depart(&departure))
    }

    /// Whether the sizes of a write do not tell how long it takes: definitions are compiled, custom objects get defaults and are checked by
    /// rules of any cost, and operations of a JSON patch copy what they find.
    pub(super) fn may_grow(&self, kind: &Kind) -> bool {
        kind.is_definition()
            || kind.custom.is_some()
            || content_type(&self.headers) == "application/json-patch+json"
    }

    /// Looks at the core under the same condition.
    pub(super) fn read<T>(&self, kind: &Arc<Kind>, read: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut core = self.shared.core.lock();
        self.check(&core, kind)?;
        read(&mut core)
    }

    pub(super) fn check(&self, core: &Core, kind: &Arc<Kind>) -> Result<()> {
        let Target { group, version, resource, .. } = &self.target;
        match core.registry.find(group, version, resource) {
            Some(found) if Arc::ptr_eq(found, kind) => Ok(()),
            _ => Err(Failure::outdated()),
        }
    }
}
