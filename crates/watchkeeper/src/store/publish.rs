//! Publication of states: one writer at a time builds the next state beside the current one, and swaps them.

use std::ops::Deref;
use std::sync::Arc;

use crate::object::ResourceVersion;
use crate::sync::{ArcSwap, Mutex, Notify};

/// A state with a version, and with cheap clones.
pub(super) trait Versioned: Clone {
    fn version(&self) -> &ResourceVersion;
}

pub(super) struct Published<T> {
    current: ArcSwap<T>,
    writing: Mutex<()>,
    /// Notified when a state of another version was published. Waiters wake in FIFO order, so that one seed gives one
    /// trace.
    moved: Notify,
}

impl<T: Versioned> Published<T> {
    pub(super) fn new(state: T) -> Self {
        Self { current: ArcSwap::from_pointee(state), writing: Mutex::new(()), moved: Notify::new() }
    }

    /// Returns the current state for a short look: cheaper than [`Published::read`] as long as few are held at once.
    pub(super) fn peek(&self) -> impl Deref<Target = Arc<T>> {
        self.current.load()
    }

    /// Returns the current state, to keep.
    pub(super) fn read(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Changes the state: readers see everything that `change` does or, if it panics, nothing.
    pub(super) fn write<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let writing = self.writing.lock();
        let mut next = T::clone(&self.current.load());
        let result = change(&mut next);
        let next = Arc::new(next);
        let old = self.current.swap(next.clone());
        drop(writing);
        // After the swap: a woken waiter finds the version that it waits for, or a later one.
        if next.version() != old.version() {
            self.moved.notify_waiters();
        }
        // Freed outside the lock, if it has no reader.
        drop(old);
        result
    }

    /// Wakes the waiters, for conditions that do not depend on the state alone.
    pub(super) fn wake(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until a state has been published whose version is `enough`, or a later one.
    pub(super) async fn wait(&self, mut enough: impl FnMut(&ResourceVersion) -> bool) {
        loop {
            // Registered before the check, so that no wake-up is lost in between.
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
