//! A flag that is set once and can be awaited.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Set once, for good. Waiters wake in FIFO order, so that one seed gives one trace.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    set: AtomicBool,
    signal: Notify,
}

impl Latch {
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.signal.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits until the latch is set. Cancel-safe.
    pub(crate) async fn wait(&self) {
        // Registered before the check, so that no wake-up is lost in between.
        let signal = self.signal.notified();
        if !self.is_set() {
            signal.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use futures::FutureExt;

    use super::*;

    #[test]
    fn waiters_from_before_and_after_it_is_set_go_on() {
        let latch = Latch::default();
        let mut early = Box::pin(latch.wait());
        let mut context = Context::from_waker(Waker::noop());
        assert!(early.poll_unpin(&mut context).is_pending() && !latch.is_set());
        latch.set();
        assert!(early.poll_unpin(&mut context).is_ready() && latch.is_set());
        assert!(latch.wait().now_or_never().is_some());
    }
}
