//! A state that many tasks change and one task waits for.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::sync::Mutex;

/// A state that many tasks change and one task waits for.
///
/// The waker is kept under the same lock as the state, so no change is missed between a check and the wait.
#[derive(Debug)]
pub(super) struct Handover<S>(Mutex<Shared<S>>);

#[derive(Debug)]
struct Shared<S> {
    state: S,
    waiting: Option<Waker>,
}

impl<S> Handover<S> {
    pub(super) fn new(state: S) -> Self {
        Self(Mutex::new(Shared { state, waiting: None }))
    }

    /// Changes the state, and wakes the waiter.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let mut shared = self.0.lock();
        let result = change(&mut shared.state);
        let waiting = shared.waiting.take();
        drop(shared);
        if let Some(waker) = waiting {
            waker.wake();
        }
        result
    }

    /// Reads the state, or changes it in a way that no waiter depends on.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut S) -> R) -> R {
        look(&mut self.0.lock().state)
    }

    /// Waits until `take` returns a value; it is called after every change. One task waits at a time. Cancel-safe.
    pub(super) async fn wait<R>(&self, mut take: impl FnMut(&mut S) -> Option<R>) -> R {
        poll_fn(|context| {
            let mut shared = self.0.lock();
            match take(&mut shared.state) {
                Some(taken) => Poll::Ready(taken),
                None => {
                    shared.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod model;
