//! Waiting workers: as many are woken as there is work for, and one of them runs the timer.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use super::item::Key;
use super::shared::{Found, Shared};
use super::tick::Tick;

/// Waiting tasks, in FIFO order.
#[derive(Default)]
pub(super) struct Waiters {
    /// Every place except those woken or left. There are as many as workers, so they are few.
    line: VecDeque<(Place, Waker)>,
    /// The number of places given so far.
    given: Place,
}

/// A place in the line of waiters.
pub(super) type Place = u64;

impl Waiters {
    pub(super) fn join(&mut self, waker: &Waker) -> Place {
        self.given += 1;
        self.line.push_back((self.given, waker.clone()));
        self.given
    }

    /// Returns whether `place` is still in the line; if so, its task is woken by `waker` from now on.
    pub(super) fn stay(&mut self, place: Place, waker: &Waker) -> bool {
        let entry = self.line.iter_mut().find(|entry| entry.0 == place);
        entry.map(|entry| entry.1.clone_from(waker)).is_some()
    }

    /// Gives up `place`; returns whether it was still in the line.
    pub(super) fn leave(&mut self, place: Place) -> bool {
        let position = self.line.iter().position(|entry| entry.0 == place);
        position.and_then(|at| self.line.remove(at)).is_some()
    }

    /// Removes the first waiter from the line, to be woken.
    pub(super) fn next(&mut self) -> Option<Waker> {
        self.line.pop_front().map(|(_, waker)| waker)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

/// One waiting `get`. When it is dropped, its wake-up or its timer passes to another one.
pub(super) struct Waiting<'a, T: Key> {
    shared: &'a Shared<T>,
    /// The number of the worker that waits.
    worker: u16,
    /// Its place in the line, if it found nothing at its last look.
    place: Option<Place>,
    /// The time for which it must set its timer: then it is the one that runs the timer.
    ///
    /// At most one timer is set per queue, by the `get` that found the earliest due time unattended.
    pub(super) armed: Option<Tick>,
}

impl<'a, T: Key> Waiting<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>, worker: u16) -> Self {
        Self { shared, worker, place: None, armed: None }
    }

    /// Takes a key; joins the line in the same step if there is none.
    pub(super) fn look(&mut self, waker: &Waker, now: Tick) -> Found<T> {
        let (place, armed, worker) = (self.place.take(), self.armed.take(), self.worker);
        self.shared.with(now, |state| {
            state.leave(place, armed);
            if let Some(taken) = state.keys.get(worker, now) {
                return Found::Key(taken);
            }
            if state.keys.queue.is_shutting_down() {
                return Found::ShutDown;
            }
            self.place = Some(state.gets.join(waker));
            self.armed = state.arm();
            Found::Nothing
        })
    }

    /// Ready once it was removed from the line.
    pub(super) fn poll_woken(&self, context: &Context<'_>) -> Poll<()> {
        let stays =
            self.place.is_some_and(|place| self.shared.state.lock().gets.stay(place, context.waker()));
        if stays { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<T: Key> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.shared.change(|state| state.leave(self.place, self.armed));
        }
    }
}
