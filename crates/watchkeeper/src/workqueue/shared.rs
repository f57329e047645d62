//! The lock of the work queue, and the wake-ups once it is released.

use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

use super::item::Key;
use super::keys::Keys;
use super::queue::Taken;
use super::tick::Tick;
use super::waiting::{Place, Waiters, Waiting};
use crate::sync::{Mutex, MutexGuard};

/// The time source of a waiting `get`.
pub(super) trait Time {
    fn now(&self) -> Tick;
    fn sleep_until(&self, due: Tick) -> impl Future<Output = ()> + Send;
}

/// The queue and its waiters.
pub(super) struct Shared<T> {
    pub(super) state: Mutex<State<T>>,
}

pub(super) struct State<T> {
    pub(super) keys: Keys<T>,
    pub(super) gets: Waiters,
    /// The number of `get`s that were woken and have not looked yet. While any is waiting, it is at least the number of
    /// ready keys.
    on_their_way: usize,
    /// The earliest time for which a waiting `get` has set its timer.
    armed: Option<Tick>,
    /// Whether a caller waits for a drain, and no plain shutdown has released it.
    draining: bool,
    drains: Waiters,
}

/// The result of a `get`.
pub(super) enum Found<T> {
    Key(Taken<T>),
    Nothing,
    ShutDown,
}

impl<T: Key> Shared<T> {
    pub(super) fn new(keys: Keys<T>) -> Self {
        Self { state: Mutex::new(State::new(keys)) }
    }

    /// Locks the queue for one operation at `now`, after moving due keys into it. [`release`] must follow.
    ///
    /// For operations that are frequent: [`with`](Self::with) copies a key on its way through the closure.
    #[inline]
    pub(super) fn begin(&self, now: Tick) -> MutexGuard<'_, State<T>> {
        let mut state = self.state.lock();
        state.keys.advance(now);
        state
    }

    /// Runs one operation at `now`, after moving due keys into the queue.
    pub(super) fn with<R>(&self, now: Tick, operation: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = self.begin(now);
        let result = operation(&mut state);
        release(state);
        result
    }

    /// Runs one operation under the lock.
    pub(super) fn change<R>(&self, operation: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = self.state.lock();
        let result = operation(&mut state);
        release(state);
        result
    }

    /// Returns the next key, if one is ready.
    #[inline]
    pub(super) fn try_get(&self, worker: u16, now: Tick) -> Option<Taken<T>> {
        let mut state = self.begin(now);
        let taken = state.keys.get(worker, now);
        release(state);
        taken
    }

    /// Waits for the next key. Cancel-safe: a key leaves the queue only when this returns.
    pub(super) async fn get(&self, worker: u16, time: &impl Time) -> Option<Taken<T>> {
        let mut waiting = Waiting::new(self, worker);
        loop {
            let look = poll_fn(|context| Poll::Ready(waiting.look(context.waker(), time.now())));
            match look.await {
                Found::Key(taken) => return Some(taken),
                Found::ShutDown => return None,
                Found::Nothing => {}
            }
            let woken = poll_fn(|context| waiting.poll_woken(context));
            match waiting.armed {
                Some(due) => tokio::select! {
                    biased;
                    () = woken => {}
                    () = time.sleep_until(due) => {}
                },
                None => woken.await,
            }
        }
    }

    pub(super) fn shut_down(&self, now: Tick, drain: bool) {
        self.with(now, |state| {
            state.keys.shut_down();
            state.draining = drain;
        });
    }

    /// Waits until no key is with a worker, or until a plain shutdown.
    pub(super) async fn drained(&self) {
        let mut drain = Drain { shared: self, place: None };
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.is_drained() {
                drain.place = None;
                return Poll::Ready(());
            }
            let stays = drain.place.is_some_and(|place| state.drains.stay(place, context.waker()));
            if !stays {
                drain.place = Some(state.drains.join(context.waker()));
            }
            Poll::Pending
        })
        .await;
    }
}

/// Releases the lock after an operation, then wakes as many waiters as there is work for.
#[inline]
pub(super) fn release<T: Key>(state: MutexGuard<'_, State<T>>) {
    if state.anyone_waits() {
        wake(state);
    }
}

#[inline(never)]
fn wake<T: Key>(mut state: MutexGuard<'_, State<T>>) {
    let wakers = state.whom_to_wake();
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

/// A waiter for a drain.
struct Drain<'a, T> {
    shared: &'a Shared<T>,
    place: Option<Place>,
}

impl<T> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.state.lock().drains.leave(place);
        }
    }
}

impl<T: Key> State<T> {
    pub(super) fn new(keys: Keys<T>) -> Self {
        Self {
            keys,
            gets: Waiters::default(),
            on_their_way: 0,
            armed: None,
            draining: false,
            drains: Waiters::default(),
        }
    }

    /// Handles a `get` that was in the line, and possibly ran the timer, and now looks again or is dropped.
    pub(super) fn leave(&mut self, place: Option<Place>, armed: Option<Tick>) {
        if let Some(place) = place
            && !self.gets.leave(place)
        {
            self.on_their_way -= 1;
        }
        if self.armed == armed {
            self.armed = None;
        }
    }

    /// Returns the time for which a `get` that found nothing must set its timer, if no other has.
    pub(super) fn arm(&mut self) -> Option<Tick> {
        let due = self.unattended();
        self.armed = due.or(self.armed);
        due
    }

    /// Returns the next due time, if no waiting `get` has set its timer that early.
    fn unattended(&mut self) -> Option<Tick> {
        let due = self.keys.delays.next(&self.keys.queue)?;
        self.armed.is_none_or(|armed| due < armed).then_some(due)
    }

    fn is_drained(&self) -> bool {
        self.keys.queue.working() == 0 || !self.draining
    }

    fn anyone_waits(&self) -> bool {
        !self.gets.is_empty() || !self.drains.is_empty()
    }

    fn whom_to_wake(&mut self) -> Vec<Waker> {
        let work = self.keys.queue.len() + usize::from(self.unattended().is_some());
        let wanted = if self.keys.queue.is_shutting_down() { usize::MAX } else { work };
        let mut wakers = Vec::new();
        while self.on_their_way < wanted
            && let Some(waker) = self.gets.next()
        {
            self.on_their_way += 1;
            wakers.push(waker);
        }
        if self.is_drained() {
            wakers.extend(std::iter::from_fn(|| self.drains.next()));
        }
        wakers
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
