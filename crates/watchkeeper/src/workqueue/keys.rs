//! The life of a key: added, processed, delayed or backing off, with all of it counted.

use std::num::NonZeroU64;
use std::time::Duration;

use super::delaying::Delays;
use super::item::Key;
use super::known::{Glance, KeyRecord, RunResult};
use super::limiter::RateLimiter;
use super::metrics::QueueFigures;
use super::priority::Priority;
use super::queue::{Added, Queue, Taken, Ticket};
use super::runs::{Run, Runs};
use super::slots::{Number, Slot};
use super::state::KeyState;
use super::tick::Tick;
use super::trigger::{Trigger, TriggerRecord};
use crate::clock::Instant;

/// The whole queue except for waiting: queue, delayed keys, limiter and figures. Pure: the time is an argument.
///
/// Every operation is preceded by an [`advance`](Self::advance) to its time.
pub(super) struct Keys<T> {
    pub(super) queue: Queue<T>,
    pub(super) delays: Delays,
    limiter: Box<dyn RateLimiter<T>>,
    epoch: Instant,
    /// The figures that change with events; the others are computed when they are read. Its `results` are those of
    /// `settle`.
    figures: QueueFigures,
    runs: Runs,
}

/// The outcome of a run, which decides about its key.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A success, with the delay of the next run if there is one.
    Success(Option<Duration>),
    Failure(Box<str>),
    /// A failure that is retried after this delay, which is not a backoff.
    FailureAfter(Box<str>, Duration),
    /// A failure for good.
    GivenUp(Box<str>),
}

impl Outcome {
    fn result(&self) -> RunResult {
        match self {
            Self::Success(None) => RunResult::Success,
            Self::Success(Some(_)) => RunResult::RequeueAfter,
            Self::Failure(_) | Self::FailureAfter(..) => RunResult::Error,
            Self::GivenUp(_) => RunResult::Terminal,
        }
    }
}

/// What a worker says about its run beside the outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remarks {
    pub(super) saw: Option<NonZeroU64>,
    /// That of the outcome if there is none.
    pub(super) result: Option<RunResult>,
}

impl<T: Key> Keys<T> {
    pub(super) fn new(queue: Queue<T>, limiter: Box<dyn RateLimiter<T>>, epoch: Instant) -> Self {
        let (delays, figures, runs) = (Delays::default(), QueueFigures::default(), Runs::default());
        Self { queue, delays, limiter, epoch, figures, runs }
    }

    /// Moves due keys into the queue.
    pub(super) fn advance(&mut self, now: Tick) {
        self.figures.adds += self.delays.advance(&mut self.queue, now);
    }

    pub(super) fn add(&mut self, key: T, priority: Priority, now: Tick) {
        if let Some(number) = self.queue.claim(key) {
            self.add_slot(number, priority, now);
        }
    }

    pub(super) fn add_because(&mut self, key: T, priority: Priority, trigger: &mut Trigger, now: Tick) {
        if let Some(number) = self.queue.claim(key) {
            self.queue.note(number, trigger, now);
            self.add_slot(number, priority, now);
        }
    }

    pub(super) fn add_after(&mut self, key: T, delay: Duration, now: Tick) {
        if let Some(number) = self.queue.claim(key) {
            self.add_slot_after(number, delay, Priority::Normal, Trigger::Requeue, now);
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

    fn add_slot_after(
        &mut self,
        number: Number,
        delay: Duration,
        priority: Priority,
        trigger: Trigger,
        now: Tick,
    ) {
        self.figures.retries += 1;
        if delay.is_zero() {
            self.queue.note_own(number, trigger, now);
            self.add_slot(number, priority, now);
        } else {
            self.delays.delay(&mut self.queue, number, now.after(delay), priority, &trigger);
        }
    }

    /// Counts a failure, and adds the key after the limiter's delay.
    fn back_off(&mut self, number: Number, priority: Priority, now: Tick) {
        let slot = &mut self.queue.slots[number];
        let Some(key) = &slot.key else { return };
        let delay = self.limiter.when(key, slot.failures, now.instant(self.epoch));
        slot.failures = slot.failures.saturating_add(1);
        slot.backing_off = !delay.is_zero();
        self.add_slot_after(number, delay, priority, Trigger::Retry, now);
    }

    /// Hands out the next key to the worker of that number.
    pub(super) fn get(&mut self, worker: u16, now: Tick) -> Option<Taken<T>> {
        let (taken, waited) = self.queue.get(worker, now)?;
        self.figures.queue_duration.record(waited);
        Some(taken)
    }

    /// Takes a key back from its worker. Another run keeps the priority of this one.
    ///
    /// Returns the number of retries in a row that a failure causes; zero for none.
    pub(super) fn settle(
        &mut self,
        ticket: Ticket,
        priority: Priority,
        outcome: Outcome,
        remarks: Remarks,
        now: Tick,
    ) -> u32 {
        let (number, open) = (ticket.number(), !self.queue.is_shutting_down());
        let result = remarks.result.unwrap_or(outcome.result());
        self.figures.results[result as usize] += 1;
        let slot = &mut self.queue.slots[number];
        let mut retry = 0;
        match outcome {
            Outcome::Success(again) => {
                slot.succeeded(now);
                if let Some(delay) = again
                    && open
                {
                    self.add_slot_after(number, delay, priority, Trigger::Requeue, now);
                }
            }
            Outcome::GivenUp(message) => {
                slot.forgive();
                slot.failed(now, message);
            }
            Outcome::FailureAfter(message, delay) => {
                slot.forgive();
                slot.failed(now, message);
                if open {
                    self.add_slot_after(number, delay, priority, Trigger::Requeue, now);
                }
            }
            Outcome::Failure(message) => {
                slot.failed(now, message);
                if open && slot.backing_off {
                    // This run did not wait for the backoff, so it does not prove that a longer one is needed.
                    self.figures.retries += 1;
                } else if open {
                    self.back_off(number, priority, now);
                    retry = self.queue.slots[number].failures;
                }
            }
        }
        self.end(ticket, result, remarks.saw, now);
        retry
    }

    /// Takes a key back from its worker after a success: [`settle`](Self::settle) for the most frequent outcome.
    #[inline]
    pub(super) fn succeed(&mut self, ticket: Ticket, saw: Option<NonZeroU64>, now: Tick) {
        self.queue.slots[ticket.number()].succeeded(now);
        self.end(ticket, RunResult::Success, saw, now);
    }

    /// Ends a run whose outcome is entered in the slot.
    #[inline]
    fn end(&mut self, ticket: Ticket, result: RunResult, saw: Option<NonZeroU64>, now: Tick) {
        let slot = &mut self.queue.slots[ticket.number()];
        let took = slot.worked(now);
        let run = Run { ended: now, took, result, saw };
        if let Some(arrived) = slot.ran(run, &mut self.runs) {
            self.figures.latency.record(now.since(arrived));
        }
        self.queue.done(ticket);
        self.figures.work_duration.record(took);
    }

    /// Takes a key back from a worker that could not begin its run, which does not count as one.
    pub(super) fn park(&mut self, ticket: Ticket, priority: Priority, until: Tick, now: Tick) {
        if self.queue.is_shutting_down() {
            self.queue.slots[ticket.number()].end_parking();
            self.queue.done(ticket);
        } else {
            self.delays.park(&mut self.queue, ticket, priority, until, now);
        }
    }

    /// Makes a parked key ready. If a worker has the key, this is remembered until the worker returns it.
    pub(super) fn unpark(&mut self, key: &T, now: Tick) {
        if let Some(number) = self.queue.slots.find(key)
            && !planted!(ParkedForever)
        {
            self.queue.slots[number].unparked = true;
            if self.queue.slots[number].parked().is_some() {
                self.queue.note_own(number, Trigger::OwnWrites, now);
            }
            self.queue.unpark(number, Priority::Low, now);
        }
    }

    pub(super) fn figures(&self, now: Tick) -> QueueFigures {
        // The runs that `succeed` has ended, which counts nothing beside their duration, are the rest.
        let mut results = self.figures.results;
        let settled: u64 = results.iter().sum();
        results[RunResult::Success as usize] += self.figures.work_duration.count().saturating_sub(settled);
        QueueFigures {
            results,
            depth: self.queue.depth(),
            running: self.queue.running(now),
            delayed: self.delays.len(),
            parked: self.queue.parked(),
            triggers: self.queue.triggers(),
            oldest_waiting: self.queue.oldest().map(|since| Duration::from_nanos(now.since(since))),
            ..self.figures.clone()
        }
    }

    /// Forgets the failures of `key`.
    pub(super) fn forget(&mut self, key: &T) {
        if let Some(number) = self.queue.slots.find(key) {
            self.queue.slots[number].forgive();
        }
    }

    /// Returns the triggers that led to the current run of a key.
    pub(super) fn triggers(&self, ticket: &Ticket) -> Vec<TriggerRecord> {
        let extra = self.queue.slots[ticket.number()].extra.as_ref();
        extra.map_or_else(Vec::new, |extra| extra.triggers.of_current_run(self.epoch))
    }

    /// Returns the record of a key without what is looked for in a list: `behind` and `runs`.
    pub(super) fn brief(&self, key: &T) -> Option<KeyRecord<T>> {
        self.slot(key)?.record(self.epoch)
    }

    /// Returns the slot of a key, if the queue knows it.
    pub(super) fn slot(&self, key: &T) -> Option<&Slot<T>> {
        self.queue.slots.find(key).map(|number| &self.queue.slots[number])
    }

    /// Returns the first `count` keys with a worker, the one that has had it for longest first, and since when.
    pub(super) fn running(&self, count: usize) -> Vec<(T, Instant)> {
        let slots = self.queue.with_workers().take(count);
        slots.filter_map(|slot| Some((slot.key.clone()?, slot.started?.instant(self.epoch)))).collect()
    }

    pub(super) fn explain(&self, key: &T) -> Option<KeyRecord<T>> {
        let number = self.queue.slots.find(key)?;
        let slot = &self.queue.slots[number];
        let record = slot.record(self.epoch)?;
        let behind = self.queue.before(number);
        let last = slot.failures.checked_sub(1).filter(|_| record.is_backing_off);
        let own_backoff = last.and_then(|failures| self.limiter.own_delay(key, failures));
        let newest = slot.extra.as_ref().map_or(0, |extra| extra.run_number);
        Some(KeyRecord { behind, own_backoff, runs: self.runs.of_key(newest, self.epoch), ..record })
    }

    /// Returns the keys in `count` slots from `start` on at a glance; nothing behind the last one.
    pub(super) fn glances(&self, start: usize, count: usize) -> Option<Vec<Glance<T>>> {
        let slots = self.queue.slots.range(start, count);
        (!slots.is_empty()).then(|| slots.iter().filter_map(|slot| slot.glance(self.epoch)).collect())
    }

    /// Adds the states of `count` slots from `start` on to `states`; returns whether there are more.
    pub(super) fn count_states(
        &self,
        start: usize,
        count: usize,
        states: &mut [usize; KeyState::QUEUED],
    ) -> bool {
        for slot in self.queue.slots.range(start, count) {
            if let Some(counted) = states.get_mut(slot.state() as usize) {
                *counted += 1;
            }
        }
        start.saturating_add(count) < self.queue.slots.capacity()
    }

    /// Returns the records of the keys in `count` slots from `start` on; nothing behind the last one.
    pub(super) fn records(&self, start: usize, count: usize) -> Option<Vec<KeyRecord<T>>> {
        let slots = self.queue.slots.range(start, count);
        (!slots.is_empty()).then(|| slots.iter().filter_map(|slot| slot.record(self.epoch)).collect())
    }

    /// Refuses every add from now on, and drops the keys that are not due yet or parked.
    pub(super) fn shut_down(&mut self) {
        self.queue.shut_down();
        self.delays.clear(&mut self.queue);
    }
}
