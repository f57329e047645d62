//! Waiting workers: as many are woken as there is work for, and one of them keeps the time.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use super::item::Key;
use super::shared::{Found, Shared};
use super::tick::Tick;

/// Tasks that wait for something, in the order in which they came.
#[derive(Default)]
pub(super) struct Waiters {
    /// Every place but those woken or left. Few: there are as many as workers.
    line: VecDeque<(Place, Waker)>,
    /// Counts the places given.
    given: Place,
}

/// A place in the line of the waiters.
pub(super) type Place = u64;

impl Waiters {
    pub(super) fn join(&mut self, waker: &Waker) -> Place {
        self.given += 1;
        self.line.push_back((self.given, waker.clone()));
        self.given
    }

    /// Whether `place` is still in the line; its task is then woken by `waker` from now on.
    pub(super) fn stay(&mut self, place: Place, waker: &Waker) -> bool {
        let entry = self.line.iter_mut().find(|entry| entry.0 == place);
        entry.map(|entry| entry.1.clone_from(waker)).is_some()
    }

    /// Gives up `place`; whether it was still in the line.
    pub(super) fn leave(&mut self, place: Place) -> bool {
        let position = self.line.iter().position(|entry| entry.0 == place);
        position.and_then(|at| self.line.remove(at)).is_some()
    }

    /// Takes the first out of the line, to be woken.
    pub(super) fn next(&mut self) -> Option<Waker> {
        self.line.pop_front().map(|(_, waker)| waker)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

/// One waiting `get`. When it is dropped, whatever it was woken for or kept the time of goes to another.
pub(super) struct Waiting<'a, T: Key> {
    shared: &'a Shared<T>,
    /// Its place in the line, if it found nothing at its last look.
    place: Option<Place>,
    /// The time for which it must set its timer: it is then the one that keeps the time.
    ///
    /// At most one timer is set per queue, by the `get` that found the earliest due time unattended.
    pub(super) armed: Option<Tick>,
}

impl<'a, T: Key> Waiting<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>) -> Self {
        Self { shared, place: None, armed: None }
    }

    /// Takes what is there; joins the line in the same step if there is nothing.
    pub(super) fn look(&mut self, waker: &Waker, now: Tick) -> Found<T> {
        let (place, armed) = (self.place.take(), self.armed.take());
        self.shared.with(now, |state| {
            state.leave(place, armed);
            if let Some(taken) = state.keys.get(now) {
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

    /// Ready when it was taken out of the line.
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
