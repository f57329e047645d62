//! Publishes states to readers: one writer at a time makes the next state beside the current one, and swaps them.

use std::ops::Deref;
use std::sync::Arc;

use crate::object::ResourceVersion;
use crate::sync::{ArcSwap, Mutex, Notify};

/// A state that says which version it reflects, and of which a copy costs next to nothing.
pub(super) trait Versioned: Clone {
    fn version(&self) -> &ResourceVersion;
}

pub(super) struct Published<T> {
    current: ArcSwap<T>,
    writing: Mutex<()>,
    /// Given when a state of another version was published. Waiters wake in FIFO order, so that one seed gives one trace.
    moved: Notify,
}

impl<T: Versioned> Published<T> {
    pub(super) fn new(state: T) -> Self {
        Self { current: ArcSwap::from_pointee(state), writing: Mutex::new(()), moved: Notify::new() }
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
        let next = Arc::new(next);
        let old = self.current.swap(next.clone());
        drop(writing);
        // Behind the swap: who is woken finds the version that it waits for, or a later one.
        if next.version() != old.version() {
            self.moved.notify_waiters();
        }
        // What nobody reads any more is freed outside the lock.
        drop(old);
        result
    }

    /// Lets those who wait look again, where what they look at is not the state alone.
    pub(super) fn wake(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until a state has been published whose version is `enough`, or a later one.
    pub(super) async fn wait(&self, mut enough: impl FnMut(&ResourceVersion) -> bool) {
        loop {
            // Before the look: what is published after it is not missed.
            let moved = self.moved.notified();
            if enough(self.current.load().version()) {
                return;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod model;
