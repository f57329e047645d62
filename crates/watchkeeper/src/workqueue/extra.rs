//! The part of a slot that few keys need, in an allocation of its own.

use std::num::NonZeroU64;

use super::known::{LastError, RunResult};
use super::priority::Priority;
use super::recent::Recent;
use super::runs::{Run, Runs};
use super::slots::{Place, Slot};
use super::tick::Tick;
use super::trigger::Trigger;

/// What is known of some keys only.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) last_error: Option<Box<LastError<Tick>>>,
    /// From the first park on until a run ends, also while the key is ready or with a worker in between.
    pub(super) parking: Option<Box<Parking>>,
    pub(super) last_run: Option<Run>,
    /// The number of that run in [`Runs`].
    pub(super) run_number: u64,
    /// The version that the last successful run saw.
    pub(super) succeeded: Option<NonZeroU64>,
    /// Empty in a queue to which no key was added with a trigger.
    pub(super) triggers: Recent,
}

/// A key that was given back without a run, and perhaps still is where it was put.
#[derive(Debug)]
pub(super) struct Parking {
    /// When it was parked first since its last run.
    pub(super) since: Tick,
    /// When it becomes ready at the latest, in which order among equal times, and with which priority. Good only in
    /// [`Place::Parked`].
    pub(super) until: Tick,
    pub(super) order: u32,
    pub(super) priority: Priority,
}

/// Allocated out of the way of the adds that find it.
#[cold]
#[inline(never)]
fn new_extra() -> Box<Extra> {
    Box::default()
}

impl<T> Slot<T> {
    #[inline]
    pub(super) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(new_extra)
    }

    pub(super) fn last_error(&self) -> Option<&LastError<Tick>> {
        self.extra.as_ref()?.last_error.as_deref()
    }

    pub(super) fn failed(&mut self, at: Tick, message: Box<str>) {
        self.extra_mut().last_error = Some(Box::new(LastError { at, message }));
    }

    /// When it was parked first since its last run.
    pub(super) fn parked_since(&self) -> Option<Tick> {
        Some(self.extra.as_ref()?.parking.as_ref()?.since)
    }

    /// Where it is put while it is parked.
    pub(super) fn parked(&self) -> Option<&Parking> {
        if self.place == Place::Parked { self.extra.as_ref()?.parking.as_deref() } else { None }
    }

    /// Notes that it is parked; a time that stands from the parkings before in a row is kept.
    pub(super) fn park(&mut self, until: Tick, order: u32, priority: Priority, now: Tick) {
        let since = self.parked_since().unwrap_or(now);
        let extra = self.extra_mut();
        extra.parking = Some(Box::new(Parking { since, until, order, priority }));
        extra.triggers.give_back();
    }

    /// Ends the row of parkings without a run, because the queue shuts down.
    pub(super) fn end_parking(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.parking = None;
        }
    }

    /// Notes how a run ended, and with it the row of parkings, if anything else is known of the key; returns when the
    /// change arrived that led to it.
    #[inline]
    pub(super) fn ran(&mut self, run: Run, runs: &mut Runs) -> Option<Tick> {
        let extra = self.extra.as_mut()?;
        extra.parking = None;
        let error = match run.result {
            RunResult::Success | RunResult::RequeueAfter => {
                extra.succeeded = run.saw;
                None
            }
            _ => extra.last_error.as_ref().map(|error| &*error.message),
        };
        extra.run_number = runs.push(run, error, extra.run_number);
        extra.last_run = Some(run);
        extra.triggers.arrival()
    }

    #[inline(always)]
    pub(super) fn note(&mut self, trigger: &mut Trigger, at: Tick) {
        self.extra_mut().triggers.note(trigger, at);
    }

    /// Notes that a worker takes the key; returns when it was parked first since its last run.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Tick> {
        let extra = self.extra.as_mut()?;
        extra.triggers.take();
        Some(extra.parking.as_ref()?.since)
    }
}
