//! The last runs of all keys of a queue, in one ring, where those of one key are linked.

use std::num::NonZeroU64;
use std::time::Duration;

use super::known::{LastRun, PastRun, RunResult};
use super::tick::Tick;
use crate::clock::Instant;

/// The number of runs that a queue remembers, of all keys together: at most 128 KB, and the errors of those that failed.
const KEPT: u64 = 2_048;
/// The number of runs of one key that are shown.
const SHOWN: usize = 16;
/// The number of bytes of an error.
const ERROR: usize = 200;

/// A [`LastRun`], as it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) ended: Tick,
    /// In nanoseconds.
    pub(super) took: u64,
    pub(super) result: RunResult,
    pub(super) saw: Option<NonZeroU64>,
}

impl Run {
    pub(super) fn at(self, epoch: Instant) -> LastRun {
        let Self { ended, took, result, saw } = self;
        LastRun { ended: ended.instant(epoch), took: Duration::from_nanos(took), result, saw }
    }
}

/// A ring of runs, which grows up to its bound. Runs are numbered from 1 on.
#[derive(Default)]
pub(super) struct Runs {
    ring: Vec<Past>,
    /// The number of the last run.
    last: u64,
}

struct Past {
    run: Run,
    error: Option<Box<str>>,
    /// The number of the run of the same key before; 0 if there is none.
    before: u64,
}

impl Runs {
    /// Adds a run, and returns its number. `before` is the number of the last run of its key; 0 if there is none.
    #[inline]
    pub(super) fn push(&mut self, run: Run, error: Option<&str>, before: u64) -> u64 {
        let error = error.map(|text| text[..text.floor_char_boundary(ERROR)].into());
        let past = Past { run, error, before };
        match self.ring.get_mut((self.last % KEPT) as usize) {
            Some(place) => *place = past,
            None => self.grow(past),
        }
        self.last += 1;
        self.last
    }

    /// Out of the way of the runs that find a place.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, past: Past) {
        self.ring.push(past);
    }

    /// Returns the runs of a key, the newest first, as far as they are remembered; `newest` is the number of that one.
    pub(super) fn of_key(&self, newest: u64, epoch: Instant) -> Vec<PastRun> {
        let find = |number: u64| {
            let is_kept = number > 0 && self.last - number < KEPT;
            is_kept.then(|| self.ring.get(((number - 1) % KEPT) as usize)).flatten()
        };
        let runs = std::iter::successors(find(newest), |past| find(past.before)).take(SHOWN);
        runs.map(|past| PastRun { run: past.run.at(epoch), error: past.error.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn run(millis: u64) -> Run {
        let took = Duration::from_millis(millis);
        let ended = Tick::EPOCH.after(took);
        Run { ended, took: took.as_nanos() as u64, result: RunResult::Success, saw: None }
    }

    #[test]
    fn the_runs_of_a_key_are_told_apart_from_those_of_others() {
        let (mut runs, epoch) = (Runs::default(), Clock::system().now());
        let first = runs.push(run(1), None, 0);
        let other = runs.push(run(2), Some("disk full"), 0);
        let second = runs.push(run(3), None, first);
        let took = |newest| -> Vec<_> {
            runs.of_key(newest, epoch).iter().map(|past| past.run.took.as_millis()).collect()
        };
        assert_eq!((took(second), took(other), took(0)), (vec![3, 1], vec![2], vec![]));
        assert_eq!(runs.of_key(other, epoch)[0].error.as_deref(), Some("disk full"));
    }

    #[test]
    fn runs_are_bounded_and_a_run_that_was_displaced_ends_the_row() {
        let (mut runs, epoch) = (Runs::default(), Clock::system().now());
        let old = runs.push(run(1), None, 0);
        for _ in 1..KEPT {
            runs.push(run(2), Some(&"ü".repeat(1_000)), 0);
        }
        let newest = runs.push(run(3), None, old);
        assert_eq!(runs.ring.len() as u64, KEPT);
        assert_eq!(runs.of_key(newest, epoch).len(), 1, "the one before was displaced");
        assert!(runs.of_key(old, epoch).is_empty());
        assert!(runs.ring.iter().all(|past| past.error.as_ref().is_none_or(|error| error.len() <= ERROR)));
    }

    #[test]
    fn of_many_runs_of_one_key_the_last_ones_are_shown() {
        let (mut runs, mut last) = (Runs::default(), 0);
        for millis in 0..100 {
            last = runs.push(run(millis), None, last);
        }
        let shown = runs.of_key(last, Clock::system().now());
        assert_eq!((shown.len(), shown[0].run.took.as_millis()), (SHOWN, 99));
    }
}
