//! Running schedules on several threads, watched by one that notices when a schedule does not end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use watchkeeper::clock::{Clock, Instant};

use crate::failure::{Failure, Finding};
use crate::fault::{FaultKind, Planned};
use crate::replay::{Options, Part, Replay};
use crate::report::Report;
use crate::script::Script;
use crate::shrink;
use crate::subject::Subject;
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
        let crew = Arc::new(Crew::new(1, self.patience));
        let result = Arc::new(Mutex::new(None));
        let (bench, slot, theirs) = (self.clone(), result.clone(), crew.clone());
        let line = replay.to_string();
        spawn(move || {
            let beat = Beat { crew: theirs.clone(), line };
            beat.next();
            let done = work(&bench, &beat);
            *slot.lock() = Some(done);
            theirs.leave();
        });
        match crew.wait() {
            Ok(()) => result.lock().take().ok_or_else(|| Failure::settings("a thread died".to_owned())),
            Err(stuck) => Err(Failure::stuck(&self.name, &stuck)),
        }
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

/// Threads of a check are small in number, and their code may need deep stacks.
fn spawn(work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().stack_size(16 << 20).spawn(work);
    // Without threads there is nothing to check with.
    drop(started.expect("cannot start a thread"));
}

/// The threads that are at work, and since when each is at its present schedule.
struct Crew {
    state: Mutex<CrewState>,
    changed: Condvar,
    clock: Clock,
    patience: Duration,
}

struct CrewState {
    at_work: usize,
    slots: Vec<Option<(String, Instant)>>,
}

impl Crew {
    fn new(threads: usize, patience: Duration) -> Self {
        let state = CrewState { at_work: threads, slots: (0..threads).map(|_| None).collect() };
        Self { state: Mutex::new(state), changed: Condvar::new(), clock: Clock::system(), patience }
    }

    fn begin(&self, thread: usize, schedule: String) {
        self.state.lock().slots[thread] = Some((schedule, self.clock.now()));
    }

    fn leave(&self) {
        self.state.lock().at_work -= 1;
        self.changed.notify_all();
    }

    /// Waits until all threads have left; an error is the schedule that does not end.
    fn wait(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        while state.at_work > 0 {
            self.changed.wait_for(&mut state, Duration::from_secs(1));
            let now = self.clock.now();
            let mut slots = state.slots.iter().flatten();
            if state.at_work > 0
                && let Some((schedule, _)) = slots.find(|(_, since)| now - *since > self.patience)
            {
                return Err(schedule.clone());
            }
        }
        Ok(())
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
    /// The digest of the run without faults.
    pub(crate) digest: u64,
}

/// What the threads share.
struct Work {
    jobs: Jobs,
    /// Keeps how far the check has come.
    file: Option<PathBuf>,
    begun: Instant,
    bench: Arc<Bench>,
    next: AtomicU64,
    is_over: AtomicBool,
    report: Mutex<Report>,
    /// The first violation by the order of schedules.
    found: Mutex<Option<(u64, Replay, Violation)>>,
}

impl Jobs {
    fn count(&self) -> u64 {
        (self.lines.len() + self.singles.len() + self.pairs.len()) as u64 + self.seeds
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

    /// Runs all schedules, or until one goes wrong.
    pub(crate) fn run(self, bench: &Arc<Bench>, threads: usize, report: Report) -> Result<Report, Failure> {
        let clock = Clock::system();
        let begun = clock.now();
        let mut report = report;
        let file = self.options.state_of(&bench.name);
        let done = match &file {
            Some(file) => report.resume(file).map_err(Failure::settings)?,
            None => 0,
        };
        let work = Arc::new(Work {
            jobs: self,
            file,
            begun,
            bench: bench.clone(),
            next: AtomicU64::new(done),
            is_over: AtomicBool::new(false),
            report: Mutex::new(report),
            found: Mutex::new(None),
        });
        let crew = Arc::new(Crew::new(threads, bench.patience));
        for thread in 0..threads {
            let (work, crew) = (work.clone(), crew.clone());
            spawn(move || {
                work.run(thread, &crew);
                crew.leave();
            });
        }
        crew.wait().map_err(|stuck| Failure::stuck(&bench.name, &stuck))?;
        if let Some((index, replay, violation)) = work.found.lock().take() {
            let line = replay.clone();
            let finding: Finding =
                bench.attended(&line, move |bench, beat| shrink::shrink(bench, beat, &replay, violation))?;
            return Err(Failure::of(&bench.name, Finding { schedules: index + 1, ..finding }));
        }
        let mut report = work.report.lock().clone();
        report.finish(clock.now() - begun);
        Ok(report)
    }
}

impl Work {
    fn run(&self, thread: usize, crew: &Crew) {
        while !self.is_over.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.jobs.count() {
                break;
            }
            if !self.jobs.options.takes(index) {
                continue;
            }
            let replay = self.jobs.replay(index);
            crew.begin(thread, replay.to_string());
            let mut outcome = shrink::judge_or_run(&self.bench, &replay);
            // One in a hundred is run twice.
            if index.is_multiple_of(100)
                && outcome.violation.is_none()
                && shrink::judge_or_run(&self.bench, &replay).digest != outcome.digest
            {
                outcome.violation = Some(Violation::NotDeterministic);
            }
            if let Some(violation) = outcome.violation.take() {
                self.is_over.store(true, Ordering::Relaxed);
                let mut found = self.found.lock();
                if found.as_ref().is_none_or(|(earlier, ..)| index < *earlier) {
                    *found = Some((index, replay, violation));
                }
                break;
            }
            let mut report = self.report.lock();
            report.add(&outcome, self.jobs.digest);
            if index % 1000 == 999
                && let Some(file) = &self.file
            {
                let wall_time = crew.clock.now() - self.begun;
                if let Err(error) = report.save(file, index + 1, wall_time) {
                    tracing::warn!(file = %file.display(), %error, "cannot keep how far the check has come");
                }
            }
        }
    }
}
