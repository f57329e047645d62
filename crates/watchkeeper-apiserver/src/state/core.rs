//! The state of the server behind one lock: objects, kinds, clock and randomness. Synchronous, and without IO.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use serde_json::Value;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};

use crate::failure::{Failure, Result};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::kinds::registry::Registry;
use crate::state::duty::Duty;
use crate::state::store::{Key, Store, Stored, Window};

/// The whole state of one server.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Store,
    /// Shared with readers that need it for longer than they hold the lock.
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Clock,
    pub(crate) generator: Generator,
    /// The duties that writes left behind, to be done in slices.
    pub(crate) duties: VecDeque<Duty>,
}

/// Revisions start at the wall time in microseconds: a server that restarts without its data never repeats a version
/// that clients have seen. On a clock before 1970 they start at 1, because 0 has a meaning of its own.
pub(crate) fn first_revision(env: &Env) -> u64 {
    u64::try_from(env.clock.wall().as_microsecond()).unwrap_or(0).max(1)
}

/// Runs a change on a core, then wakes the watches that it affects.
pub(crate) fn commit_change<T>(core: &Mutex<Core>, change: impl FnOnce(&mut Core) -> T) -> T {
    let (result, wakers) = {
        let mut core = core.lock();
        #[cfg(test)]
        let _held = held::Held::begin();
        (change(&mut core), core.store.take_wakers())
    };
    wakers.into_iter().for_each(Waker::wake);
    result
}

impl Core {
    /// A fresh core, without any object.
    pub(crate) fn new(env: &Env, window: usize) -> Self {
        Self::empty(env, Store::new(first_revision(env), Window::of(window)), "apiserver")
    }

    /// A core with the built-in kinds and without any object. `label` names its stream of random numbers.
    pub(crate) fn empty(env: &Env, store: Store, label: &str) -> Self {
        Self::of(env, store, Arc::new(Registry::new()), label)
    }

    /// A core of these kinds and objects.
    pub(crate) fn of(env: &Env, store: Store, registry: Arc<Registry>, label: &str) -> Self {
        Self {
            store,
            registry,
            clock: env.clock.clone(),
            generator: env.generator.fork(label),
            duties: VecDeque::new(),
        }
    }

    pub(crate) fn now(&self) -> String {
        meta::timestamp(self.clock.wall())
    }

    pub(crate) fn get(&self, kind: &Kind, key: &Key) -> Result<Arc<Stored>> {
        let found = self.store.get(&kind.storage, key).cloned();
        found.ok_or_else(|| Failure::not_found(kind, &key.name))
    }

    /// Stores `value`, which is in its stored form, as the next revision.
    pub(crate) fn put_value(&mut self, kind: &Kind, key: &Key, mut value: Value) -> Arc<Stored> {
        let revision = self.store.next_revision();
        meta::set(&mut value, "resourceVersion", &revision.to_string());
        let stored = Stored::encode(kind, key.clone(), revision, &value);
        self.store.put(&kind.storage, stored)
    }
}

/// Counts the work that is done under the lock, for tests.
#[cfg(test)]
pub(crate) mod held {
    use std::cell::Cell;

    use crate::state::store::{PARSED, TOUCHED};

    thread_local! {
        /// The most objects that were changed while the core was held, and the most bytes that were parsed.
        static MOST: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    pub(super) struct Held(usize, usize);

    impl Held {
        pub(super) fn begin() -> Self {
            Self(TOUCHED.with(Cell::get), PARSED.with(Cell::get))
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let (touched, parsed) = (TOUCHED.with(Cell::get) - self.0, PARSED.with(Cell::get) - self.1);
            MOST.with(|most| most.set((most.get().0.max(touched), most.get().1.max(parsed))));
        }
    }

    /// Forgets what was done so far.
    pub(crate) fn reset() {
        MOST.with(|most| most.set((0, 0)));
    }

    /// The most objects that were changed at once since then, and the most bytes that were parsed.
    pub(crate) fn most() -> (usize, usize) {
        MOST.with(Cell::get)
    }
}
