//! A state that many tasks change and one waits for.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::sync::Mutex;

/// A state that many change and one waits for.
///
/// The waker is kept under the same lock as the state: between a look that found nothing and the wait no change goes unnoticed.
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

    /// Changes the state, and wakes whoever waits for it.
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

    /// Looks at the state, or changes it in a way that nobody waits for.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut S) -> R) -> R {
        look(&mut self.0.lock().state)
    }

    /// Waits until `take` gives something; it is asked after every change. One task waits at a time. Cancel-safe.
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
