//! Checking an operator: the settings, and the order of runs.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use watchkeeper::clock::Generator;
use watchkeeper::controller::{Manager, SetupError};
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::{ApiServer, Checkpoint};
use watchkeeper_controllers::garbage_collector::Kinds;

use crate::built_in::BuiltIn;
use crate::divergence;
use crate::failure::{Failure, Finding};
use crate::fault::FaultKind;
use crate::jobs::{Bench, Jobs};
use crate::objects::{Invariant, Objects};
use crate::outside::Outside;
use crate::plan;
use crate::replay::{Options, Part, Replay};
use crate::report::{Report, Tally};
use crate::shrink;
use crate::subject::{Life, Operator, Program, Subject};
use crate::user::{Patience, User};
use crate::violation::{Difference, Violation};
use crate::world::{Conditions, Known, Outcome, Reference};

/// Checks an operator with default settings: see [`Check`].
///
/// `outside` makes the world outside the cluster, once per run; `register` registers the operator's controllers, once per life; `story`
/// is what a user does.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use watchkeeper::controller::{Action, Controller, Manager, SetupError, Watch};
///
/// /// Keeps a Secret for each ConfigMap.
/// fn register(manager: &mut Manager) -> Result<(), SetupError> {
///     Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(|map, cx| async move {
///         let mut secret = Secret::default();
///         secret.metadata.name = map.metadata.name.clone();
///         cx.apply(&secret).await?;
///         Ok(Action::done())
///     })
/// }
///
/// let report = watchkeeper_sim::Check::builder()
///     .seeds(5)
///     .pairs(0)
///     .run(
///         |_outside| (),
///         |manager, ()| register(manager),
///         async |user| {
///             let mut map = ConfigMap::default();
///             (map.metadata.name, map.metadata.namespace) = (Some("web".into()), Some("default".into()));
///             user.create(&map).await;
///             user.eventually::<Secret>("default/web", |_| true).await;
///             user.delete::<Secret>("default/web").await;
///         },
///     )
///     .unwrap();
/// assert!(report.schedules() > 100);
/// ```
///
/// # Errors
///
/// The first run that goes wrong, reduced to as few faults and steps as show it.
pub fn check<E: 'static>(
    outside: impl Fn(&Outside) -> E + Send + Sync + 'static,
    register: impl Fn(&mut Manager, &E) -> Result<(), SetupError> + Send + Sync + 'static,
    story: impl AsyncFn(&User) + Send + Sync + 'static,
) -> Result<Report, Failure> {
    Check::builder().run(outside, register, story)
}

/// Settings of a check.
///
/// A check runs the story without faults first. Then it runs it with every single fault at every place of that run, with pairs of faults,
/// and with many faults drawn from seeds. After each run, the faults end, and the cluster must become as it is without them, and stay so.
#[derive(Clone, Debug)]
#[must_use = "a check does nothing before it is run"]
pub struct Check {
    name: String,
    singles: bool,
    pairs: usize,
    seeds: u64,
    schedules: Vec<String>,
    kinds: BTreeSet<FaultKind>,
    invariants: Vec<Invariant>,
    known: Vec<Known>,
    crds: Vec<CustomResourceDefinition>,
    without: BTreeSet<BuiltIn>,
    replicas: usize,
    converge: Duration,
    rest: Option<Duration>,
    patience: Duration,
    threads: usize,
}

impl Check {
    /// A check with all kinds of faults: every single fault, 200 pairs and 500 seeds.
    pub fn builder() -> Self {
        Self {
            name: thread_name(),
            singles: true,
            pairs: 200,
            seeds: 500,
            schedules: Vec::new(),
            kinds: FaultKind::ALL.into(),
            invariants: Vec::new(),
            known: Vec::new(),
            crds: Vec::new(),
            without: BTreeSet::new(),
            replicas: 1,
            converge: Duration::from_secs(45 * 60),
            rest: None,
            patience: Duration::from_secs(60),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Names the check in reports and files. By default it is named after its thread, and `cargo test` names threads after tests.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Whether to run every single fault at every place; true by default.
    pub fn singles(mut self, all: bool) -> Self {
        self.singles = all;
        self
    }

    /// How many pairs of faults to run. The variable `SIM_PAIRS` overrides it.
    pub fn pairs(mut self, pairs: usize) -> Self {
        self.pairs = pairs;
        self
    }

    /// How many seeds to run, each with many faults. The variable `SIM_SEEDS` overrides it.
    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds = seeds;
        self
    }

    /// Also runs this schedule, before all others: a line as `SIM_REPLAY` takes it, of a mistake that was found once.
    ///
    /// A line that tests nothing any more ends the check with an error that names the fault: its place does not occur, or the fault has
    /// no effect there.
    pub fn schedule(mut self, line: &str) -> Self {
        self.schedules.push(line.to_owned());
        self
    }

    /// Only faults of these kinds.
    pub fn faults(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// No faults of these kinds.
    pub fn without(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        for kind in kinds {
            self.kinds.remove(&kind);
        }
        self
    }

    /// Something that must hold after every change, with and without faults: of the controller's, of the story's, and of the cluster's own
    /// controllers. The error says what is wrong. It sees the objects that the server has at that moment, of all kinds.
    pub fn always(
        mut self,
        name: &str,
        holds: impl Fn(&Objects) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.invariants.push(Invariant { name: name.to_owned(), holds: Arc::new(holds) });
        self
    }

    /// Accepts the differences that `covers` returns true for, as they are right, for this reason.
    ///
    /// It is also asked about what was done more often than without faults. Such a [`Difference`] has a name like
    /// `created pods default/web-*`, and the numbers.
    pub fn known(
        mut self,
        reason: &str,
        covers: impl Fn(&Difference) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.known.push(Known { reason: reason.to_owned(), covers: Arc::new(covers) });
        self
    }

    /// Installs the definition of a kind before every run; it is compiled only once.
    pub fn crd<K: CustomResourceExt>(self) -> Self {
        self.definition(K::crd())
    }

    /// Installs a definition before every run; it is compiled only once.
    pub fn definition(mut self, definition: CustomResourceDefinition) -> Self {
        self.crds.push(definition);
        self
    }

    /// Leaves a controller of the cluster out, for a check of one that does its work.
    pub fn without_built_in(mut self, controller: BuiltIn) -> Self {
        self.without.insert(controller);
        self
    }

    /// Runs so many replicas of the program, each with a process of its own; 1 by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// How long the controller must not write anything at the end. By default it is a minute more than two of the longest requeues that
    /// its reconciles have asked for: at least 11 minutes, so that every watch is opened again once, and at most six hours.
    pub fn rest(mut self, rest: Duration) -> Self {
        self.rest = Some(rest);
        self
    }

    /// How long a single run may take in real time before it counts as one that never ends: 60 s by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long the controller may take to converge when the faults have ended: longer than its longest backoff. 45 minutes by default.
    pub fn converge(mut self, converge: Duration) -> Self {
        self.converge = converge;
        self
    }

    /// How many threads to use; all processors by default.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Checks an operator: see [`check`].
    ///
    /// # Errors
    ///
    /// The first run that goes wrong, reduced to as few faults and steps as show it.
    pub fn run<E: 'static>(
        self,
        outside: impl Fn(&Outside) -> E + Send + Sync + 'static,
        register: impl Fn(&mut Manager, &E) -> Result<(), SetupError> + Send + Sync + 'static,
        story: impl AsyncFn(&User) + Send + Sync + 'static,
    ) -> Result<Report, Failure> {
        self.run_subject(Arc::new(Operator { outside, register, story, external: PhantomData }))
    }

    /// Checks a program that is not run by a manager; `program` is called once per life.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_program<E: 'static>(
        self,
        outside: impl Fn(&Outside) -> E + Send + Sync + 'static,
        program: impl AsyncFn(Life, &E) + Send + Sync + 'static,
        story: impl AsyncFn(&User) + Send + Sync + 'static,
    ) -> Result<Report, Failure> {
        self.run_subject(Arc::new(Program { outside, program, story, external: PhantomData }))
    }

    fn run_subject(self, subject: Arc<dyn Subject>) -> Result<Report, Failure> {
        let options = Options::from_env().map_err(Failure::settings)?;
        self.run_with(options, subject)
    }

    pub(crate) fn run_with(self, options: Options, subject: Arc<dyn Subject>) -> Result<Report, Failure> {
        self.validate(&options).map_err(Failure::settings)?;
        let kinds = self.kinds.iter().copied().collect::<Vec<_>>();
        let bench = Bench::new(subject, self.conditions()?, &self.name, kinds.clone(), self.patience);
        let calm = Self::reference(&bench)?;
        let report = Report::new(&self.name, calm.requests, calm.steps, kinds);
        if let Some(replay) = options.replay {
            return self.replay(&bench, replay, report);
        }
        let all = plan::singles(&calm.places, &self.kinds);
        let pairs = plan::pairs(&all, options.pairs.unwrap_or(self.pairs), &Generator::seeded(1));
        let singles = if self.singles { all } else { Vec::new() };
        let seeds = options.seeds.unwrap_or(self.seeds);
        let lines = self.schedules.iter().map(|line| line.parse::<Replay>());
        let lines = lines.collect::<Result<Vec<_>, _>>().map_err(Failure::settings)?;
        let jobs = Jobs { lines, singles, pairs, seeds, options };
        jobs.run(&bench, self.threads, report)
    }

    /// Runs only one schedule.
    fn replay(&self, bench: &Arc<Bench>, replay: Replay, mut report: Report) -> Result<Report, Failure> {
        let line = replay.clone();
        let judged = bench.attended(&line, move |bench, _| shrink::judge(bench, &replay))?;
        let mut outcome =
            judged.ok_or_else(|| Failure::settings(format!("{line}: goes wrong without faults")))?;
        report.add(&Tally::of(&outcome));
        match outcome.violation.take() {
            None => match line.missed(&outcome.hits) {
                Some(missed) => {
                    Err(Failure::settings(format!("SIM_REPLAY: there was no place for {missed}")))
                }
                None => Ok(report),
            },
            Some(violation) => Err(Failure::of(&self.name, shrink::finding(&line, violation, outcome))),
        }
    }

    fn validate(&self, options: &Options) -> Result<(), String> {
        let (pairs, seeds) = (options.pairs.unwrap_or(self.pairs), options.seeds.unwrap_or(self.seeds));
        if !self.singles && pairs == 0 && seeds == 0 && self.schedules.is_empty() {
            return Err("a check without single faults, pairs and seeds checks nothing".to_owned());
        }
        if self.kinds.is_empty() {
            return Err("a check without any kind of fault checks nothing".to_owned());
        }
        if self.replicas == 0 || self.threads == 0 {
            return Err("a check needs at least one replica and one thread".to_owned());
        }
        let times = [Some(self.converge), self.rest, Some(self.patience)];
        if times.into_iter().flatten().any(|time| time.is_zero()) {
            return Err("the times to converge, to rest and for a run must not be zero".to_owned());
        }
        Ok(())
    }

    fn conditions(&self) -> Result<Conditions, Failure> {
        let patience = Patience {
            quiet: Duration::from_secs(10),
            settle: Duration::from_secs(120),
            eventually: self.converge,
        };
        let (prepared, kinds) = prepare(&self.crds).map_err(Failure::settings)?;
        Ok(Conditions {
            prepared,
            kinds,
            without: self.without.clone(),
            replicas: self.replicas,
            invariants: self.invariants.clone().into(),
            known: self.known.clone().into(),
            patience,
            converge: self.converge,
            rest: self.rest,
        })
    }

    /// Runs the story without faults; twice with one seed, and with two other seeds.
    fn reference(bench: &Arc<Bench>) -> Result<Outcome, Failure> {
        let runs = bench.attended(&Replay::calm(0), |bench, beat| {
            let calm = |seed, reference: Option<&Reference>| {
                beat.next();
                bench.calm(seed, &Part::default(), reference)
            };
            let [mut first, again] = [0, 0].map(|seed| calm(seed, None));
            if let Some(violation) = first.violation.take() {
                return Err(Box::new(Finding::calm(0, violation, first.entries)));
            }
            if again.digest != first.digest {
                let entries = divergence::mark(&first.entries, again.entries);
                return Err(Box::new(Finding::calm(0, Violation::NotDeterministic, entries)));
            }
            let reference = Reference::of(&first);
            bench.set_reference(reference.clone());
            for seed in [1, 2] {
                let mut other = calm(seed, Some(&reference));
                if let Some(violation) = other.violation.take() {
                    return Err(Box::new(Finding::calm(seed, violation, other.entries)));
                }
            }
            Ok(first)
        })?;
        runs.map_err(|wrong| Failure::of(&bench.name, *wrong))
    }
}

/// The name of the thread, which for a test is that of the test.
fn thread_name() -> String {
    let thread = std::thread::current();
    thread.name().filter(|name| *name != "main").unwrap_or("check").to_owned()
}

/// A server with these definitions, from which that of every run is forked: nothing is built or compiled again.
fn prepare(crds: &[CustomResourceDefinition]) -> Result<(Checkpoint, Kinds), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    runtime.block_on(async {
        let env = Env::simulated(0);
        let server = ApiServer::new(&env);
        let client = Client::from_kube(server.client(), &env);
        for crd in crds {
            let created = client.api::<CustomResourceDefinition>().create(crd).await;
            created.map_err(|error| format!("cannot install {:?}: {error}", crd.metadata.name))?;
        }
        let kinds = Kinds::discover(&client).await;
        let kinds = kinds.map_err(|error| format!("cannot discover the kinds: {error}"))?;
        Ok((server.checkpoint(), kinds))
    })
}
