//! How does one wait for something that happens once?

use tokio::sync::watch;

/// Set once, seen by everyone, before or after.
#[derive(Debug)]
pub(super) struct Latch(watch::Sender<bool>);

impl Default for Latch {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Latch {
    pub(super) fn set(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is set. Cancel-safe.
    pub(super) async fn wait(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as `self`.
        let _closed = receiver.wait_for(|set| *set).await;
    }
}
