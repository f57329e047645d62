//! Running schedules on several threads, in the order of the plan.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use watchkeeper::clock::{Clock, Instant};

use crate::crew::Crew;
use crate::divergence;
use crate::failure::{Failure, Finding};
use crate::fault::{FaultKind, Planned};
use crate::replay::{Options, Part, Replay};
use crate::report::{Report, Tally};
use crate::script::Script;
use crate::shrink;
use crate::subject::Subject;
use crate::trace::Entry;
use crate::violation::Violation;
use crate::world::{self, Conditions, Outcome, Reference, Schedule};

/// Everything that a run needs, apart from its schedule.
pub(crate) struct Bench {
    subject: Arc<dyn Subject>,
    conditions: Conditions,
    pub(crate) name: String,
    pub(crate) kinds: Vec<FaultKind>,
    reference: OnceLock<Reference>,
    /// A schedule that takes longer, in real time, does not end: the code under test never awaits.
    patience: Duration,
}

impl Bench {
    pub(crate) fn new(
        subject: Arc<dyn Subject>,
        conditions: Conditions,
        name: &str,
        kinds: Vec<FaultKind>,
        patience: Duration,
    ) -> Arc<Self> {
        let (name, reference) = (name.to_owned(), OnceLock::new());
        Arc::new(Self { subject, conditions, name, kinds, reference, patience })
    }

    /// Runs a schedule on this thread, and compares it with the reference run.
    pub(crate) fn run(&self, replay: &Replay) -> Outcome {
        let script = replay.script(&self.kinds);
        let Replay { seed, part, .. } = replay;
        self.execute(Schedule { seed: *seed, script, part, reference: self.reference.get() })
    }

    /// Runs the story without faults, or a part of it.
    pub(crate) fn calm(&self, seed: u64, part: &Part, reference: Option<&Reference>) -> Outcome {
        self.execute(Schedule { seed, script: Script::calm(), part, reference })
    }

    pub(crate) fn execute(&self, schedule: Schedule<'_>) -> Outcome {
        world::run(&*self.subject, &self.conditions, schedule)
    }

    pub(crate) fn set_reference(&self, reference: Reference) {
        let _is_set_once = self.reference.set(reference);
    }

    /// Runs `work` on a thread of its own; an error if it never ends.
    pub(crate) fn attended<T: Send + 'static>(
        self: &Arc<Self>,
        replay: &Replay,
        work: impl FnOnce(&Self, &Beat) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let crew = Crew::new(1, self.patience);
        let result = Arc::new(Mutex::new(None));
        let (bench, slot, theirs) = (self.clone(), result.clone(), crew.clone());
        let line = replay.to_string();
        crew.spawn(0, move || {
            let beat = Beat { crew: theirs, line };
            beat.next();
            let done = work(&bench, &beat);
            *slot.lock() = Some(done);
        });
        crew.wait().map_err(|trouble| Failure::trouble(&self.name, trouble))?;
        let done = result.lock().take();
        done.ok_or_else(|| Failure::settings("a thread died".to_owned()))
    }
}

/// Tells the watcher that the next run begins.
pub(crate) struct Beat {
    crew: Arc<Crew>,
    line: String,
}

impl Beat {
    pub(crate) fn next(&self) {
        self.crew.begin(0, self.line.clone());
    }
}

/// All schedules of a check with faults.
pub(crate) struct Jobs {
    /// Schedules that were found once.
    pub(crate) lines: Vec<Replay>,
    pub(crate) singles: Vec<Planned>,
    pub(crate) pairs: Vec<[Planned; 2]>,
    pub(crate) seeds: u64,
    pub(crate) options: Options,
}

/// What the threads share.
struct Work {
    jobs: Jobs,
    /// Keeps how far the check has come.
    file: Option<PathBuf>,
    begun: Instant,
    bench: Arc<Bench>,
    crew: Arc<Crew>,
    /// The next schedule of this shard.
    next: AtomicU64,
    is_over: AtomicBool,
    progress: Mutex<Progress>,
    /// What ends the check: the first by the order of schedules.
    found: Mutex<Option<Found>>,
}

/// The schedules that have been run, counted in their order: those before `next` are in the report.
struct Progress {
    report: Report,
    next: u64,
    /// Run before one with a lower number.
    early: BTreeMap<u64, Tally>,
}

/// A schedule that ends the check.
struct Found {
    /// In the plan of all shards.
    index: u64,
    replay: Replay,
    what: What,
}

/// Why a schedule ends the check.
enum What {
    /// It went wrong. The entries say what happened, if it cannot be shown again.
    Violation(Violation, Option<Vec<Entry>>),
    /// It is a line that was given, and tests nothing any more.
    Void(String),
}

/// One schedule of a shard in so many is run twice.
const TWICE: u64 = 100;
/// After so many schedules of a shard, a file keeps how far it has come.
const SAVED: u64 = 1000;

impl Jobs {
    fn count(&self) -> u64 {
        (self.lines.len() + self.singles.len() + self.pairs.len()) as u64 + self.seeds
    }

    /// Whether a schedule is one of the lines that were given.
    fn is_line(&self, index: u64) -> bool {
        index < self.lines.len() as u64
    }

    fn replay(&self, index: u64) -> Replay {
        let (at, singles) = (index as usize, self.singles.len());
        if let Some(line) = self.lines.get(at) {
            return line.clone();
        }
        let at = at - self.lines.len();
        if let Some(single) = self.singles.get(at) {
            Replay::planned(vec![single.clone()])
        } else if let Some(pair) = self.pairs.get(at - singles) {
            Replay::planned(pair.to_vec())
        } else {
            Replay::drawn(1 + (at - singles - self.pairs.len()) as u64)
        }
    }

    /// Identifies the plan, apart from the number of seeds, which come last.
    fn fingerprint(&self, kinds: &[FaultKind]) -> String {
        let mut hasher = foldhash::quality::FixedState::with_seed(7).build_hasher();
        let mut add = |text: String| text.hash(&mut hasher);
        kinds.iter().for_each(|kind| add(kind.to_string()));
        self.lines.iter().for_each(|line| add(line.to_string()));
        self.singles.iter().for_each(|single| add(single.to_string()));
        self.pairs.iter().flatten().for_each(|one| add(one.to_string()));
        [self.lines.len(), self.singles.len(), self.pairs.len()].hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// Runs all schedules of this shard, or until one goes wrong.
    pub(crate) fn run(self, bench: &Arc<Bench>, threads: usize, report: Report) -> Result<Report, Failure> {
        if self.count() == 0 {
            let nothing = "the plan has no schedules: the story has no place for a fault of these kinds";
            return Err(Failure::settings(format!("{}: {nothing}", bench.name)));
        }
        let clock = Clock::system();
        let begun = clock.now();
        let mut report = report.of_plan(self.fingerprint(&bench.kinds));
        let file = self.options.state_of(&bench.name);
        let next = match &file {
            Some(file) => report.resume(file).map_err(Failure::settings)?,
            None => 0,
        };
        let crew = Crew::new(threads, bench.patience);
        let work = Arc::new(Work {
            jobs: self,
            file,
            begun,
            bench: bench.clone(),
            crew: crew.clone(),
            next: AtomicU64::new(next),
            is_over: AtomicBool::new(false),
            progress: Mutex::new(Progress { report, next, early: BTreeMap::new() }),
            found: Mutex::new(None),
        });
        for thread in 0..threads {
            let work = work.clone();
            crew.spawn(thread, move || work.run(thread));
        }
        let outcome = crew.wait();
        work.is_over.store(true, Ordering::Relaxed);
        work.save(&work.progress.lock());
        let found = work.found.lock().take();
        // What was found says more than that another thread has not come to its end since.
        if let Some(found) = found {
            return Err(found.into_failure(bench)?);
        }
        outcome.map_err(|trouble| Failure::trouble(&bench.name, trouble))?;
        let mut report = work.progress.lock().report.clone();
        report.finish(clock.now() - begun);
        Ok(report)
    }
}

impl Found {
    fn into_failure(self, bench: &Arc<Bench>) -> Result<Failure, Failure> {
        let Self { index, replay, what } = self;
        let finding = match what {
            What::Void(why) => {
                return Ok(Failure::settings(format!("{}: {why}: {replay}", bench.name)));
            }
            What::Violation(violation, Some(entries)) => Finding::shown(&replay, violation, entries),
            What::Violation(violation, None) => {
                let line = replay.clone();
                bench.attended(&line, move |bench, beat| shrink::shrink(bench, beat, &replay, violation))?
            }
        };
        Ok(Failure::of(&bench.name, Finding { schedules: index + 1, ..finding }))
    }
}

impl Work {
    fn run(&self, thread: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let index = self.jobs.options.index(number);
            if index >= self.jobs.count() {
                break;
            }
            let replay = self.jobs.replay(index);
            self.crew.begin(thread, replay.to_string());
            let mut outcome = shrink::judge_or_run(&self.bench, &replay);
            let mut entries = None;
            if number.is_multiple_of(TWICE) && outcome.violation.is_none() {
                self.crew.begin(thread, replay.to_string());
                let again = shrink::judge_or_run(&self.bench, &replay);
                if again.digest != outcome.digest {
                    outcome.violation = Some(Violation::NotDeterministic);
                    entries = Some(divergence::mark(&outcome.entries, again.entries));
                }
            }
            let what = match outcome.violation.take() {
                Some(violation) => Some(What::Violation(violation, entries)),
                None if self.jobs.is_line(index) => replay.void(&outcome).map(What::Void),
                None => None,
            };
            if let Some(what) = what {
                self.is_over.store(true, Ordering::Relaxed);
                let mut found = self.found.lock();
                if found.as_ref().is_none_or(|earlier| index < earlier.index) {
                    *found = Some(Found { index, replay, what });
                }
                break;
            }
            let mut progress = self.progress.lock();
            progress.add(number, Tally::of(&outcome));
            if number % SAVED == SAVED - 1 {
                self.save(&progress);
            }
        }
    }

    fn save(&self, progress: &Progress) {
        let Some(file) = &self.file else { return };
        let wall_time = self.crew.now() - self.begun;
        if let Err(error) = progress.report.save(file, progress.next, wall_time) {
            tracing::warn!(file = %file.display(), %error, "cannot keep how far the check has come");
        }
    }
}

impl Progress {
    fn add(&mut self, number: u64, tally: Tally) {
        self.early.insert(number, tally);
        while let Some(tally) = self.early.remove(&self.next) {
            self.report.add(&tally);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests;
