//! Reducing a schedule that goes wrong to as few faults and steps as show it.

use crate::failure::Finding;
use crate::fault::Planned;
use crate::jobs::{Beat, Bench};
use crate::replay::{Faults, Part, Replay};
use crate::violation::Violation;
use crate::world::{Outcome, Reference, Schedule};

/// The most runs to spend on a finding.
const MOST_RUNS: u32 = 400;

/// Runs a schedule, compared with the same story without faults; `None` if that goes wrong itself.
pub(crate) fn judge(bench: &Bench, replay: &Replay) -> Option<Outcome> {
    if replay.part.is_whole() {
        return Some(bench.run(replay));
    }
    let part = &replay.part;
    let calm = bench.calm(0, part, None);
    if calm.violation.is_some() {
        return None;
    }
    let script = replay.script(&bench.kinds);
    let reference = Reference::of(&calm);
    let schedule = Schedule { seed: replay.seed, script, part, reference: Some(&reference) };
    Some(bench.execute(schedule))
}

/// The same, compared with the whole story if the part goes wrong without faults.
pub(crate) fn judge_or_run(bench: &Bench, replay: &Replay) -> Outcome {
    judge(bench, replay).unwrap_or_else(|| bench.run(replay))
}

/// The smallest schedule that goes wrong in the same way.
pub(crate) fn shrink(bench: &Bench, beat: &Beat, replay: &Replay, violation: Violation) -> Finding {
    let mut shrinker = Shrinker { bench, beat, violation, runs: 0 };
    let mut best = replay.clone();
    let first = judge_or_run(bench, replay);
    if let Faults::Drawn(_) = best.faults {
        best.faults = Faults::Planned(first.hits.clone());
    }
    if shrinker.try_run(&best).is_none() {
        // The faults were drawn in another order than they are planned: the schedule stays as it was.
        best = replay.clone();
    }
    if best.seed != 0 {
        let plain = Replay { seed: 0, ..best.clone() };
        if shrinker.try_run(&plain).is_some() {
            best = plain;
        }
    }
    if let Faults::Planned(faults) = &best.faults {
        let fewer = shrinker.fewer_faults(&best, faults.clone());
        best.faults = Faults::Planned(fewer);
    }
    best = shrinker.fewer_steps(best, first.steps);
    beat.next();
    let (replay, mut outcome) = match judge(bench, &best) {
        Some(outcome) if outcome.violation.is_some() => (best, outcome),
        _ => (replay.clone(), first),
    };
    let violation = outcome.violation.take().unwrap_or(Violation::NotDeterministic);
    finding(&replay, violation, outcome)
}

/// A finding of one run.
pub(crate) fn finding(replay: &Replay, violation: Violation, outcome: Outcome) -> Finding {
    let Outcome { entries, is_mended_by_nudge, .. } = outcome;
    Finding { is_mended_by_nudge, ..Finding::shown(replay, violation, entries) }
}

struct Shrinker<'a> {
    bench: &'a Bench,
    beat: &'a Beat,
    violation: Violation,
    runs: u32,
}

impl Shrinker<'_> {
    /// Runs a schedule; `Some` if it still goes wrong in the same way.
    fn try_run(&mut self, replay: &Replay) -> Option<Outcome> {
        if self.runs >= MOST_RUNS {
            return None;
        }
        self.runs += 1;
        self.beat.next();
        let outcome = judge(self.bench, replay)?;
        let is_same = outcome.violation.as_ref().is_some_and(|found| found.is_like(&self.violation));
        // A line must not name a fault that has no place any more.
        (is_same && replay.missed(&outcome.hits).is_none()).then_some(outcome)
    }

    /// Takes out halves, quarters and so on, as long as the rest goes wrong.
    fn fewer_faults(&mut self, replay: &Replay, mut faults: Vec<Planned>) -> Vec<Planned> {
        let mut size = faults.len().div_ceil(2);
        while size > 0 && faults.len() > 1 {
            let mut at = 0;
            while at < faults.len() && faults.len() > 1 {
                let mut fewer = faults.clone();
                fewer.drain(at..(at + size).min(faults.len()));
                let candidate = Replay { faults: Faults::Planned(fewer.clone()), ..replay.clone() };
                if !fewer.is_empty() && self.try_run(&candidate).is_some() {
                    faults = fewer;
                } else {
                    at += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        faults
    }

    /// The shortest beginning of the story that goes wrong, without the steps in it that are not needed.
    fn fewer_steps(&mut self, replay: Replay, steps: u32) -> Replay {
        let last = replay.part.steps.unwrap_or(steps);
        let shorter = |fewer| {
            let part = Part { steps: Some(fewer), ..replay.part.clone() };
            (Replay { part, ..replay.clone() }, fewer)
        };
        let shortest = (1..last).map(shorter).find(|(shorter, _)| self.try_run(shorter).is_some());
        let (mut best, last) = shortest.unwrap_or((replay, last));
        // From the end, as a step may need those before it. Where the story cannot go on without one, it goes wrong without
        // faults, too, and the step stays.
        for step in (1..last).rev() {
            let mut fewer = best.clone();
            if fewer.part.without.insert(step) && self.try_run(&fewer).is_some() {
                best = fewer;
            }
        }
        best
    }
}
