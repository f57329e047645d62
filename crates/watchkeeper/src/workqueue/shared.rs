//! How do many tasks use one queue? Under one lock; and whoever has work then, or no more, is woken once it is released.

use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::delaying::Delays;
use super::item::Key;
use super::known::LastError;
use super::limiter::RateLimiter;
use super::metrics::QueueFigures;
use super::priority::Priority;
use super::queue::{Added, Queue, Taken, Ticket};
use super::slots::Number;
use super::tick::Tick;
use super::waiting::{Place, Waiters, Waiting};
use crate::clock::Instant;

/// What guards the state: a mutex, or in tests one that tries all orders of the tasks that want it.
pub(super) trait Lock<S> {
    fn with<R>(&self, operation: impl FnOnce(&mut S) -> R) -> R;
}

impl<S> Lock<S> for Mutex<S> {
    fn with<R>(&self, operation: impl FnOnce(&mut S) -> R) -> R {
        operation(&mut self.lock())
    }
}

/// Where the time comes from that a waiting `get` keeps.
pub(super) trait Time {
    fn now(&self) -> Tick;
    fn sleep_until(&self, due: Tick) -> impl Future<Output = ()> + Send;
}

/// The queue and those who wait for it.
pub(super) struct Shared<T: Key, M: Lock<State<T>> = Mutex<State<T>>> {
    pub(super) state: M,
    marker: std::marker::PhantomData<fn(T)>,
}

pub(super) struct State<T> {
    pub(super) queue: Queue<T>,
    delays: Delays,
    limiter: Box<dyn RateLimiter<T>>,
    epoch: Instant,
    /// Those that change by events; the others are read off when asked for.
    figures: QueueFigures,
    pub(super) gets: Waiters,
    /// How many `get`s were woken and have not looked yet. While any waits, no less than there is work for.
    on_their_way: usize,
    /// The earliest time for which a waiting `get` has set its timer.
    armed: Option<Tick>,
    /// Someone waits for a drain, and no plain shutdown told them not to.
    draining: bool,
    drains: Waiters,
}

/// How a run ended, and so what becomes of its key.
pub(super) enum Outcome {
    /// Perhaps to be run again after a time.
    Success(Option<Duration>),
    Failure(Box<str>),
    /// A failure for good.
    GivenUp(Box<str>),
}

/// What a `get` finds.
pub(super) enum Found<T> {
    Key(Taken<T>),
    Nothing,
    ShutDown,
}

impl<T: Key, M: Lock<State<T>>> Shared<T, M> {
    pub(super) fn new(state: M) -> Self {
        Self { state, marker: std::marker::PhantomData }
    }

    /// Runs one operation at `now`, after letting in what is due.
    pub(super) fn with<R>(&self, now: Tick, operation: impl FnOnce(&mut State<T>) -> R) -> R {
        self.change(|state| {
            state.figures.adds += state.delays.advance(&mut state.queue, now);
            operation(state)
        })
    }

    /// Runs one operation under the lock, then wakes those for whom there is work now.
    pub(super) fn change<R>(&self, operation: impl FnOnce(&mut State<T>) -> R) -> R {
        let (result, wakers) = self.state.with(|state| {
            let result = operation(state);
            (result, state.anyone_waits().then(|| state.whom_to_wake()))
        });
        if let Some(wakers) = wakers {
            wakers.into_iter().for_each(Waker::wake);
        }
        result
    }

    /// Waits for the next key. Cancel-safe: a key leaves the queue only when this returns.
    pub(super) async fn get(&self, time: &impl Time) -> Option<Taken<T>> {
        // Most often one is there: no need to prepare for a wait.
        let now = time.now();
        if let Some(taken) = self.with(now, |state| state.get(now)) {
            return Some(taken);
        }
        let mut waiting = Waiting::new(self);
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
            state.queue.shut_down();
            state.delays.clear(&mut state.queue);
            state.draining = drain;
        });
    }

    /// Waits until no key is with a worker, or a plain shutdown says not to.
    pub(super) async fn drained(&self) {
        let mut drain = Drain { shared: self, place: None };
        poll_fn(|context| {
            self.state.with(|state| {
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
        })
        .await;
    }
}

/// One who waits for a drain.
struct Drain<'a, T: Key, M: Lock<State<T>>> {
    shared: &'a Shared<T, M>,
    place: Option<Place>,
}

impl<T: Key, M: Lock<State<T>>> Drop for Drain<'_, T, M> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.state.with(|state| state.drains.leave(place));
        }
    }
}

impl<T: Key> State<T> {
    pub(super) fn new(queue: Queue<T>, limiter: Box<dyn RateLimiter<T>>, epoch: Instant) -> Self {
        Self {
            queue,
            delays: Delays::default(),
            limiter,
            epoch,
            figures: QueueFigures::default(),
            gets: Waiters::default(),
            on_their_way: 0,
            armed: None,
            draining: false,
            drains: Waiters::default(),
        }
    }

    pub(super) fn add(&mut self, key: T, priority: Priority, now: Tick) {
        if let Some(number) = self.queue.claim(key) {
            self.add_slot(number, priority, now);
        }
    }

    pub(super) fn add_after(&mut self, key: T, delay: Duration, now: Tick) {
        if let Some(number) = self.queue.claim(key) {
            self.add_slot_after(number, delay, Priority::Normal, now);
        }
    }

    pub(super) fn add_rate_limited(&mut self, key: T, now: Tick) {
        if let Some(number) = self.queue.claim(key) {
            self.back_off(number, Priority::Normal, now);
        }
    }

    fn add_slot(&mut self, number: Number, priority: Priority, now: Tick) {
        let added = self.queue.add(number, priority, now);
        self.figures.adds += u64::from(added != Added::Collapsed);
    }

    fn add_slot_after(&mut self, number: Number, delay: Duration, priority: Priority, now: Tick) {
        self.figures.retries += 1;
        if delay.is_zero() {
            self.add_slot(number, priority, now);
        } else {
            self.delays.delay(&mut self.queue, number, now.after(delay), priority);
        }
    }

    /// Counts a failure, and adds the key when the limiter says so.
    fn back_off(&mut self, number: Number, priority: Priority, now: Tick) {
        let slot = &mut self.queue.slots[number];
        let Some(key) = &slot.key else { return };
        let delay = self.limiter.when(key, slot.failures, now.instant(self.epoch));
        slot.failures = slot.failures.saturating_add(1);
        slot.backing_off = !delay.is_zero();
        self.add_slot_after(number, delay, priority, now);
    }

    pub(super) fn get(&mut self, now: Tick) -> Option<Taken<T>> {
        let (taken, waited) = self.queue.get(now)?;
        self.figures.queue_duration.record(waited);
        Some(taken)
    }

    /// Takes a key back from its worker. Another run keeps the priority of this one.
    pub(super) fn settle(&mut self, ticket: Ticket, priority: Priority, outcome: Outcome, now: Tick) {
        let (number, open) = (ticket.number(), !self.queue.is_shutting_down());
        let slot = &mut self.queue.slots[number];
        match outcome {
            Outcome::Success(again) => {
                (slot.failures, slot.last_success) = (0, Some(now));
                if let Some(delay) = again
                    && open
                {
                    self.add_slot_after(number, delay, priority, now);
                }
            }
            Outcome::GivenUp(message) => {
                slot.failures = 0;
                slot.last_error = Some(Box::new(LastError { at: now, message }));
            }
            Outcome::Failure(message) => {
                slot.last_error = Some(Box::new(LastError { at: now, message }));
                if open && slot.backing_off {
                    // This run did not wait for the backoff: it does not show that a longer one is needed.
                    self.figures.retries += 1;
                } else if open {
                    self.back_off(number, priority, now);
                }
            }
        }
        let worked = self.queue.done(ticket, now);
        self.figures.work_duration.record(worked);
    }

    pub(super) fn figures(&self, now: Tick) -> QueueFigures {
        QueueFigures {
            depth: self.queue.depth(),
            running: self.queue.running(now),
            delayed: self.delays.len(),
            ..self.figures.clone()
        }
    }

    /// A `get` that was in the line, and may keep the time, looks again or is gone.
    pub(super) fn leave(&mut self, place: Option<Place>, armed: Option<Tick>) {
        if let Some(place) = place
            && !self.gets.leave(place)
        {
            self.on_their_way -= 1;
        }
        if armed.is_some() && self.armed == armed {
            self.armed = None;
        }
    }

    /// The time for which a `get` that found nothing must set its timer, if no other has.
    pub(super) fn arm(&mut self) -> Option<Tick> {
        let due = self.unattended();
        self.armed = due.or(self.armed);
        due
    }

    /// The next due time, if no waiting `get` has set its timer that early.
    fn unattended(&self) -> Option<Tick> {
        let due = self.delays.next()?;
        self.armed.is_none_or(|armed| due < armed).then_some(due)
    }

    fn is_drained(&self) -> bool {
        self.queue.working() == 0 || !self.draining
    }

    fn anyone_waits(&self) -> bool {
        !self.gets.is_empty() || !self.drains.is_empty()
    }

    fn whom_to_wake(&mut self) -> Vec<Waker> {
        let work = self.queue.len() + usize::from(self.unattended().is_some());
        let wanted = if self.queue.is_shutting_down() { usize::MAX } else { work };
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
