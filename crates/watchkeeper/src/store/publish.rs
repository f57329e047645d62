//! How does a new state reach its readers? One writer at a time makes it beside the old one, and puts it in its place.
//!
//! `tests/indexer_model.rs` compiles this file a second time, on the primitives of a model checker.

use std::ops::Deref;
use std::sync::Arc;

use super::sync::{Lock, Place, Told};
use crate::object::ResourceVersion;

/// A state that says which version it reflects, and of which a copy costs next to nothing.
pub(super) trait Versioned: Clone {
    fn version(&self) -> &ResourceVersion;
}

pub(super) struct Published<T> {
    current: Place<T>,
    writing: Lock<()>,
    /// The version of the current state, or of the one before while a writer is about to tell of it.
    told: Told<ResourceVersion>,
}

impl<T: Versioned> Published<T> {
    pub(super) fn new(state: T) -> Self {
        let told = Told::new(state.version().clone());
        Self { current: Place::from_pointee(state), writing: Lock::new(()), told }
    }

    /// The current state, for a short look: cheaper than [`Published::read`], as long as few are held at once.
    pub(super) fn peek(&self) -> impl Deref<Target = Arc<T>> {
        self.current.load()
    }

    /// The current state, to keep.
    pub(super) fn read(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Changes the state: readers see all that `change` does, or nothing of it, as when it panics.
    pub(super) fn write<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let writing = self.writing.lock();
        let mut next = T::clone(&self.current.load());
        let result = change(&mut next);
        let version = next.version().clone();
        let old = self.current.swap(Arc::new(next));
        // Behind the swap: who hears of a version finds it. Within the lock: what is told last is what was published last.
        self.told.send_if_modified(|told| {
            let moved = *told != version;
            *told = version;
            moved
        });
        drop(writing);
        // What nobody reads any more is freed outside the lock.
        drop(old);
        result
    }

    /// Waits until a state has been published whose version is `enough`, or a later one.
    pub(super) async fn wait(&self, enough: impl FnMut(&ResourceVersion) -> bool) {
        let mut told = self.told.subscribe();
        // The sender lives as long as `self`.
        let _closed = told.wait_for(enough).await;
    }
}
