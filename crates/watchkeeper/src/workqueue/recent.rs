//! The last triggers of a key, and which of them led to the current run.

use super::tick::Tick;
use super::trigger::{Trigger, TriggerRecord};
use crate::clock::Instant;

/// The number of triggers that are kept for a key.
const KEPT: u32 = 4;

/// The last triggers of one key, in a ring.
///
/// The first trigger of a run is written without a look at the others. Only those that come while the run is pending
/// are compared with each other, and merged if they differ only in the version of the object. All numbers wrap.
#[derive(Default)]
pub(super) struct Recent {
    /// The first place of the ring; the others are allocated when they are needed.
    first: Entry,
    others: Option<Box<Others>>,
    /// The number of the next entry.
    next: u32,
    /// The number of the current run or, if there is none, of the last one.
    run: u32,
    /// The run to which the newest entry leads.
    noted: u32,
    /// When the first change of an object arrived that leads to the next run.
    arrived: Option<Tick>,
    /// The same of the current run, or of the last one.
    taken: Option<Tick>,
}

type Others = [Entry; KEPT as usize - 1];

struct Entry {
    trigger: Trigger,
    at: Tick,
    /// Zero for a place that was never used.
    times: u32,
    /// The run to which it leads.
    run: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Self { trigger: Trigger::External, at: Tick::EPOCH, times: 0, run: 0 }
    }
}

impl Recent {
    /// Records a trigger of the next run. It leaves the one that it displaces, which the caller drops: it may be the
    /// last reference to a name, and the queue is locked.
    #[inline(always)]
    pub(super) fn note(&mut self, trigger: &mut Trigger, at: Tick) {
        let run = self.run.wrapping_add(1);
        if self.noted == run {
            return self.merge(trigger, at);
        }
        self.noted = run;
        self.arrived = trigger.is_arrival().then_some(at);
        self.push(trigger, at, 1);
    }

    #[inline(always)]
    fn push(&mut self, trigger: &mut Trigger, at: Tick, times: u32) {
        let (number, run) = (self.next, self.noted);
        self.next = number.wrapping_add(1);
        let place = self.place_mut(number);
        std::mem::swap(&mut place.trigger, trigger);
        (place.at, place.times, place.run) = (at, times, run);
    }

    /// Records a trigger of a pending run: a trigger of that run which differs only in the version is replaced.
    #[cold]
    #[inline(never)]
    fn merge(&mut self, trigger: &mut Trigger, at: Tick) {
        if self.arrived.is_none() && trigger.is_arrival() {
            self.arrived = Some(at);
        }
        let is_like = |entry: &Entry| entry.run == self.noted && entry.trigger.is_like(trigger);
        let like = self.entries().find(|(_, entry)| is_like(entry));
        let like = like.map(|(number, entry)| (number, entry.times));
        let times = like.map_or(1, |(number, times)| {
            self.remove(number);
            times.saturating_add(1)
        });
        self.push(trigger, at, times);
    }

    /// Removes an entry: the newer ones move to the places before them.
    fn remove(&mut self, mut number: u32) {
        self.next = self.next.wrapping_sub(1);
        while number != self.next {
            let newer = std::mem::take(self.place_mut(number.wrapping_add(1)));
            *self.place_mut(number) = newer;
            number = number.wrapping_add(1);
        }
    }

    /// Notes that a worker takes the key.
    #[inline]
    pub(super) fn take(&mut self) {
        self.run = self.run.wrapping_add(1);
        self.taken = self.arrived.take();
    }

    /// Returns when the first change of an object arrived that led to the current run.
    #[inline]
    pub(super) fn arrival(&self) -> Option<Tick> {
        self.taken
    }

    /// Notes that the key is given back without a run: what led to this one leads to the next, as does what came since.
    pub(super) fn give_back(&mut self) {
        let (run, later) = (self.run, self.run.wrapping_add(1));
        for age in 1..=KEPT {
            let number = self.next.wrapping_sub(age);
            if self.place(number).is_some_and(|entry| entry.run == later) {
                self.place_mut(number).run = run;
            }
        }
        if self.noted == later {
            self.noted = run;
        }
        self.arrived = self.taken.or(self.arrived);
        self.run = run.wrapping_sub(1);
    }

    /// Returns all of them, the newest first.
    pub(super) fn records(&self, epoch: Instant) -> Vec<TriggerRecord> {
        self.entries().map(|(_, entry)| entry.record(epoch)).collect()
    }

    /// Returns those that led to the run for which a worker took the key, if they are still there, the newest first.
    pub(super) fn of_current_run(&self, epoch: Instant) -> Vec<TriggerRecord> {
        let led = self.entries().filter(|(_, entry)| entry.run == self.run);
        led.map(|(_, entry)| entry.record(epoch)).collect()
    }

    /// Iterates over the entries and their numbers, the newest first.
    fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let numbers = (1..=KEPT).map(|age| self.next.wrapping_sub(age));
        numbers.filter_map(|number| Some((number, self.place(number)?)))
    }

    fn place(&self, number: u32) -> Option<&Entry> {
        let entry = match number % KEPT {
            0 => &self.first,
            index => &self.others.as_ref()?[index as usize - 1],
        };
        (entry.times > 0).then_some(entry)
    }

    #[inline(always)]
    fn place_mut(&mut self, number: u32) -> &mut Entry {
        match number % KEPT {
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
