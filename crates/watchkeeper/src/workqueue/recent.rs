//! The last triggers of a key, and which of them led to the current run.

use super::tick::Tick;
use super::trigger::{Trigger, TriggerRecord};
use crate::clock::Instant;

/// The number of triggers that are kept for a key.
const KEPT: u32 = 4;

/// The last triggers of one key, in a ring.
///
/// The first trigger of a run is written without a look at the others. Only those that come while the run is pending
/// are compared with each other, and merged if they differ only in the version of the object.
#[derive(Default)]
pub(super) struct Recent {
    /// The first place of the ring; the others are allocated when they are needed.
    first: Entry,
    others: Option<Box<Others>>,
    /// The number of the newest entry that led to an earlier run than the last one.
    before: u32,
    /// The number of the newest entry when a worker last took the key.
    taken: u32,
    /// The number of the newest entry, counted from 1. Wraps, as all numbers: only their distances count.
    newest: u32,
}

type Others = [Entry; KEPT as usize - 1];

struct Entry {
    trigger: Trigger,
    at: Tick,
    /// Zero for a place that was never used.
    times: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Self { trigger: Trigger::External, at: Tick::EPOCH, times: 0 }
    }
}

impl Recent {
    /// Records a trigger.
    #[inline]
    pub(super) fn note(&mut self, trigger: &Trigger, at: Tick) {
        if self.newest == self.taken {
            self.push(trigger, at);
        } else {
            self.merge(trigger, at);
        }
    }

    #[inline]
    fn push(&mut self, trigger: &Trigger, at: Tick) {
        self.newest = self.newest.wrapping_add(1);
        // Field by field, so that the entry is not put together elsewhere first.
        let place = self.place_mut(self.newest);
        place.trigger = trigger.clone();
        place.at = at;
        place.times = 1;
    }

    /// Records a trigger of a pending run: a trigger of that run which differs only in the version is replaced.
    #[cold]
    fn merge(&mut self, trigger: &Trigger, at: Tick) {
        let (newest, pending) = (self.newest, self.newest.wrapping_sub(self.taken));
        let is_like = |entry: &Entry| entry.trigger.is_like(trigger);
        let age =
            (0..pending.min(KEPT)).find(|age| self.place(newest.wrapping_sub(*age)).is_some_and(is_like));
        let Some(age) = age else { return self.push(trigger, at) };
        let old = std::mem::take(self.place_mut(newest.wrapping_sub(age)));
        for age in (0..age).rev() {
            let newer = std::mem::take(self.place_mut(newest.wrapping_sub(age)));
            *self.place_mut(newest.wrapping_sub(age + 1)) = newer;
        }
        let times = old.times.saturating_add(1);
        *self.place_mut(newest) = Entry { trigger: trigger.clone(), at, times };
    }

    /// Notes that a worker takes the key.
    #[inline]
    pub(super) fn take(&mut self) {
        (self.before, self.taken) = (self.taken, self.newest);
    }

    /// Notes that the key is given back without a run: what led to this one leads to the next.
    pub(super) fn give_back(&mut self) {
        self.taken = self.before;
    }

    /// Returns all of them, the newest first.
    pub(super) fn records(&self, epoch: Instant) -> Vec<TriggerRecord> {
        self.entries().map(|(_, entry)| entry.record(epoch)).collect()
    }

    /// Returns those that led to the run for which a worker took the key, if they are still there, the newest first.
    pub(super) fn of_current_run(&self, epoch: Instant) -> Vec<TriggerRecord> {
        let led = self.taken.wrapping_sub(self.before);
        let led = self.entries().filter(|(number, _)| self.taken.wrapping_sub(*number) < led);
        led.map(|(_, entry)| entry.record(epoch)).collect()
    }

    /// Iterates over the entries and their numbers, the newest first.
    fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let numbers = (0..KEPT).map(|age| self.newest.wrapping_sub(age));
        numbers.filter_map(|number| Some((number, self.place(number)?)))
    }

    fn place(&self, number: u32) -> Option<&Entry> {
        let entry = match number.wrapping_sub(1) % KEPT {
            0 => &self.first,
            index => &self.others.as_ref()?[index as usize - 1],
        };
        (entry.times > 0).then_some(entry)
    }

    #[inline]
    fn place_mut(&mut self, number: u32) -> &mut Entry {
        match number.wrapping_sub(1) % KEPT {
            0 => &mut self.first,
            index => &mut self.others.get_or_insert_with(others)[index as usize - 1],
        }
    }
}

/// Allocates the other places of a ring, out of the way of the adds that find them.
#[cold]
#[inline(never)]
fn others() -> Box<Others> {
    Box::default()
}

impl Entry {
    fn record(&self, epoch: Instant) -> TriggerRecord {
        TriggerRecord { trigger: self.trigger.clone(), at: self.at.instant(epoch), times: self.times }
    }
}

#[cfg(test)]
mod tests;
