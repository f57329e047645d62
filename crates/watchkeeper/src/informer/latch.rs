//! How does one wait for something that happens once?

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Set once, seen by everyone, before or after. Those who wait are woken in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Latch {
    set: AtomicBool,
    signal: Notify,
}

impl Latch {
    pub(super) fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.signal.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits until it is set. Cancel-safe.
    pub(super) async fn wait(&self) {
        // Before the look: what is set after it is not missed.
        let signal = self.signal.notified();
        if !self.is_set() {
            signal.await;
        }
    }
}
