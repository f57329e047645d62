//! The result of a check that found nothing wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use crate::fault::FaultKind;
use crate::world::Outcome;

/// What a check has run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    name: String,
    /// Identifies the plan.
    plan: String,
    /// The runs of the story without faults.
    calm_requests: u64,
    steps: u32,
    schedules: u64,
    traces: BTreeSet<u64>,
    /// Counted before the check was continued.
    earlier_traces: u64,
    hits: BTreeMap<FaultKind, u64>,
    enabled: Vec<FaultKind>,
    requests: u64,
    virtual_time: Duration,
    wall_time: Duration,
}

/// What a file keeps of a check that is to be continued.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The plan that `next` is a place in.
    #[serde(default)]
    plan: String,
    /// The next schedule of this shard.
    next: u64,
    schedules: u64,
    traces: u64,
    requests: u64,
    virtual_seconds: u64,
    wall_seconds: u64,
    hits: BTreeMap<String, u64>,
}

/// What counts of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    digest: u64,
    requests: u64,
    elapsed: Duration,
    /// Of the faults that had an effect.
    hits: Vec<FaultKind>,
}

impl Tally {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let Outcome { digest, requests, elapsed, effects, .. } = outcome;
        let hits = effects.iter().map(|planned| planned.fault.kind()).collect();
        Self { digest: *digest, requests: *requests, elapsed: *elapsed, hits }
    }
}

impl Report {
    pub(crate) fn new(name: &str, calm_requests: u64, steps: u32, enabled: Vec<FaultKind>) -> Self {
        Self { name: name.to_owned(), calm_requests, steps, enabled, ..Self::default() }
    }

    /// Says which plan this is a report of.
    pub(crate) fn of_plan(self, plan: String) -> Self {
        Self { plan, ..self }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, tally: &Tally) {
        self.schedules += 1;
        self.traces.insert(tally.digest);
        self.requests += tally.requests;
        self.virtual_time += tally.elapsed;
        for kind in &tally.hits {
            *self.hits.entry(*kind).or_default() += 1;
        }
    }

    /// Continues a check from what a file has kept of it; returns the number of the next schedule.
    pub(crate) fn resume(&mut self, file: &Path) -> Result<u64, String> {
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        };
        let kept: Kept = serde_json::from_slice(&text)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        if kept.plan != self.plan {
            return Err(format!(
                "{} is of another plan, with other faults, pairs or lines, or of another story: \
                 remove it to begin again",
                file.display()
            ));
        }
        (self.schedules, self.earlier_traces, self.requests) = (kept.schedules, kept.traces, kept.requests);
        (self.virtual_time, self.wall_time) =
            (Duration::from_secs(kept.virtual_seconds), Duration::from_secs(kept.wall_seconds));
        let hits = FaultKind::ALL.iter().filter_map(|kind| Some((*kind, *kept.hits.get(kind.name())?)));
        self.hits = hits.collect();
        Ok(kept.next)
    }

    /// Keeps in a file how far the check has come.
    pub(crate) fn save(&self, file: &Path, next: u64, wall_time: Duration) -> io::Result<()> {
        let kept = Kept {
            plan: self.plan.clone(),
            next,
            schedules: self.schedules,
            traces: self.distinct_traces(),
            requests: self.requests,
            virtual_seconds: self.virtual_time.as_secs(),
            wall_seconds: (self.wall_time + wall_time).as_secs(),
            hits: self.hits.iter().map(|(kind, hits)| (kind.name().to_owned(), *hits)).collect(),
        };
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(&kept)?)?;
        fs::rename(new, file)
    }

    pub(crate) fn finish(&mut self, wall_time: Duration) {
        self.wall_time += wall_time;
    }

    /// The number of runs with faults.
    pub fn schedules(&self) -> u64 {
        self.schedules
    }

    /// The number of runs that differed from all others.
    pub fn distinct_traces(&self) -> u64 {
        self.earlier_traces + self.traces.len() as u64
    }

    /// How often faults of a kind happened and had an effect.
    pub fn hits(&self, kind: FaultKind) -> u64 {
        self.hits.get(&kind).copied().unwrap_or_default()
    }

    /// The kinds of faults that were enabled and never had an effect.
    pub fn unused(&self) -> Vec<FaultKind> {
        self.enabled.iter().copied().filter(|kind| self.hits(*kind) == 0).collect()
    }

    /// The number of requests that the controller made in all runs together.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The time that passed in all runs together.
    pub fn virtual_time(&self) -> Duration {
        self.virtual_time
    }

    /// The time that the check took.
    pub fn wall_time(&self) -> Duration {
        self.wall_time
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.wall_time.as_secs_f64();
        writeln!(
            f,
            "{}: {} schedules, {} distinct traces, {:.1} days of virtual time in {seconds:.1} s ({:.0} schedules/s)",
            self.name,
            self.schedules,
            self.distinct_traces(),
            self.virtual_time.as_secs_f64() / 86_400.0,
            self.schedules as f64 / seconds.max(0.001),
        )?;
        writeln!(
            f,
            "  without faults: {} steps, {} requests; in all: {} requests",
            self.steps, self.calm_requests, self.requests
        )?;
        let hits: Vec<String> = self.hits.iter().map(|(kind, hits)| format!("{kind} {hits}")).collect();
        write!(f, "  faults that had an effect: {}", hits.join(", "))?;
        match &self.unused()[..] {
            [] => Ok(()),
            unused => {
                let names: Vec<_> = unused.iter().map(|kind| kind.name()).collect();
                write!(f, "\n  faults that never had an effect: {}", names.join(", "))
            }
        }
    }
}
