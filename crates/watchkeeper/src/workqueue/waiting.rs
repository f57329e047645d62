//! Who keeps the time while all workers wait? One of them, and another as soon as that one leaves.

use super::item::Key;
use super::rate_limiting::{Found, Shared};
use crate::clock::Instant;

/// One waiting `get`.
///
/// At most one timer is set per queue, by the `get` that found the earliest due time unattended. When it takes a key or is cancelled, it
/// notifies another `get`, which then finds the due time unattended. So no due key is missed while anyone waits.
pub(super) struct Waiting<'a, T: Key> {
    shared: &'a Shared<T>,
    /// The time for which this `get` must set its timer; it is then the one that keeps the time.
    armed: Option<Instant>,
}

impl<'a, T: Key> Waiting<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>) -> Self {
        Self { shared, armed: None }
    }

    pub(super) fn look(&mut self) -> Found<T> {
        self.shared.look(&mut self.armed)
    }

    pub(super) fn timer(&self) -> Option<Instant> {
        self.armed
    }
}

impl<T: Key> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        // A look that found a key has taken the timer back already.
        if let Some(due) = self.armed {
            self.shared.abandon(due);
        }
    }
}
