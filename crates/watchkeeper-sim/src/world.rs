//! One run: a server, the network, the replicas of a program and the story, on virtual time.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use watchkeeper::clock::Clock;
use watchkeeper::report::Incident;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::{ApiServer, Checkpoint};
use watchkeeper_controllers::garbage_collector::{self, Kinds};
use watchkeeper_controllers::namespace_controller;

use crate::built_in::BuiltIn;
use crate::canonical::State;
use crate::counts::{Counts, Excess};
use crate::crew;
use crate::fault::Planned;
use crate::net::Net;
use crate::objects::Invariant;
use crate::outside::Outside;
use crate::replay::Part;
use crate::script::{Place, Script};
use crate::site::Target;
use crate::subject::{Actors, Life, Subject};
use crate::trace::{Entry, Event, Trace};
use crate::user::{Patience, Steps, User};
use crate::view::View;
use crate::violation::{Difference, Violation, panic_message};

/// The conditions of all runs of a check.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    /// What the server has at the start.
    pub(crate) prepared: Checkpoint,
    /// The kinds that it serves.
    pub(crate) kinds: Kinds,
    /// The controllers of the cluster that do not run.
    pub(crate) without: BTreeSet<BuiltIn>,
    pub(crate) replicas: usize,
    pub(crate) invariants: Arc<[Invariant]>,
    pub(crate) known: Arc<[Known]>,
    pub(crate) patience: Patience,
    /// How long the program may take to converge after the story.
    pub(crate) converge: Duration,
    /// How long it must not write anything then; by its longest requeue if it is not set.
    pub(crate) rest: Option<Duration>,
}

/// Informers open their watches again after 5 to 10 minutes: each does so once while the controller rests.
const SHORTEST_REST: Duration = Duration::from_secs(11 * 60);
/// Longer rests cost more than they show: each watch gets a bookmark every minute.
const LONGEST_REST: Duration = Duration::from_secs(6 * 3600);
/// How long a story may take, apart from what the controller may take to converge.
const LONGEST_STORY: Duration = Duration::from_secs(24 * 3600);
/// How often a controller may write again when all is right, until it counts as restless.
const MOST_RESTS: u32 = 3;

/// Differences that are known, with the reason why they are right.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) reason: String,
    pub(crate) covers: Arc<dyn Fn(&Difference) -> bool + Send + Sync>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Known").field(&self.reason).finish()
    }
}

impl Conditions {
    /// What differs between two states, apart from what is known.
    pub(crate) fn differences(&self, expected: &State, found: &State) -> Vec<Difference> {
        if expected == found {
            return Vec::new();
        }
        let mut differences = Violation::differences(expected, found);
        differences.retain(|difference| !self.is_known(difference));
        differences
    }

    /// What was done more often, apart from what is known.
    fn unknown(&self, mut excess: Vec<Excess>) -> Vec<Excess> {
        excess.retain(|excess| !self.is_known(&excess.difference()));
        excess
    }

    fn is_known(&self, difference: &Difference) -> bool {
        let covers = |known: &Known| {
            let name = || format!("`known` of {:?}", known.reason);
            crew::call(name, || (known.covers)(difference))
        };
        self.known.iter().any(covers)
    }
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) entries: Vec<Entry>,
    pub(crate) digest: u64,
    pub(crate) hits: Vec<Planned>,
    /// Those of the hits that had an effect.
    pub(crate) effects: Vec<Planned>,
    pub(crate) places: Vec<Place>,
    pub(crate) state: Arc<State>,
    pub(crate) counts: Counts,
    pub(crate) steps: u32,
    pub(crate) violation: Option<Violation>,
    /// What was wrong became right when something made the controller look again.
    pub(crate) is_mended_by_nudge: bool,
    /// How long the controller had to rest.
    pub(crate) rest: Duration,
    /// Virtual time.
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
}

/// What a run without faults came to.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) state: Arc<State>,
    pub(crate) counts: Counts,
    pub(crate) digest: u64,
    /// What objects there were of.
    pub(crate) resources: BTreeSet<String>,
    pub(crate) rest: Duration,
}

impl Reference {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let mut resources: BTreeSet<String> = outcome.state.resources().collect();
        resources.extend(outcome.entries.iter().filter_map(|entry| match &entry.event {
            Event::Step { what, .. } | Event::Sent { what, .. } => resource_of(what),
            _ => None,
        }));
        let Outcome { state, counts, digest, rest, .. } = outcome;
        Self { state: state.clone(), counts: counts.clone(), digest: *digest, resources, rest: *rest }
    }
}

/// The resource of a request, without a subresource.
fn resource_of(what: &str) -> Option<String> {
    let resource = what.split(' ').nth(1)?;
    resource.split('/').next().filter(|resource| !resource.is_empty()).map(str::to_owned)
}

/// One run to make.
pub(crate) struct Schedule<'a> {
    pub(crate) seed: u64,
    pub(crate) script: Script,
    pub(crate) part: &'a Part,
    /// `None` for the reference run itself.
    pub(crate) reference: Option<&'a Reference>,
}

/// Makes one run on a runtime of its own.
pub(crate) fn run(subject: &dyn Subject, conditions: &Conditions, schedule: Schedule<'_>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    // A runtime without IO needs nothing that can fail.
    let runtime = runtime.expect("a paused runtime");
    runtime.block_on(async {
        let env = Env::simulated(schedule.seed);
        let trace = Trace::new(&env.clock);
        let server = ApiServer::builder(&env.fork("server")).build_from(&conditions.prepared);
        let net = Net::scripted(&server, &env.clock, schedule.script, &trace, conditions.replicas);
        net.watch_invariants(&conditions.invariants);
        let outside = Outside::new(&net, &env.fork("outside"));
        let world = World {
            conditions,
            reference: schedule.reference,
            env,
            net: net.clone(),
            outside: outside.clone(),
            view: View::default(),
            steps: Steps::new(schedule.part),
            violation: Mutex::new(None),
            handles: (0..conditions.replicas).map(|_| Arc::default()).collect(),
        };
        let actors = crew::call(|| "`outside`".to_owned(), || subject.begin(&outside));
        world.live(&*actors).await;
        let (hits, places) = net.with_script(|script| (script.hits().to_vec(), script.take_places()));
        let digest = trace.digest();
        let elapsed = trace.elapsed();
        let entries = trace.take();
        let counts = Counts::of(&entries);
        let (state, rest) = (world.state(), world.rest());
        let mut violation = world.violation.into_inner().or_else(|| net.take_violation());
        if let Some(reference) = schedule.reference
            && violation.is_none()
        {
            let excess = conditions.unknown(counts.excess(&reference.counts));
            violation = (!excess.is_empty()).then_some(Violation::Doubled(excess));
        }
        let (steps, requests, is_mended_by_nudge) =
            (world.steps.count(), net.requests(), net.is_mended_by_nudge());
        // What happened is the same as without faults, so none of them had an effect.
        let is_calm = schedule.reference.is_some_and(|reference| reference.digest == digest);
        let effects = if is_calm { Vec::new() } else { net.effects() };
        Outcome {
            entries,
            digest,
            hits,
            effects,
            places,
            state,
            counts,
            steps,
            violation,
            is_mended_by_nudge,
            rest,
            elapsed,
            requests,
        }
    })
}

struct World<'a> {
    conditions: &'a Conditions,
    reference: Option<&'a Reference>,
    env: Env,
    net: Net,
    outside: Outside,
    view: View,
    steps: Steps,
    violation: Mutex<Option<Violation>>,
    handles: Vec<Arc<Mutex<Option<watchkeeper::controller::ManagerHandle>>>>,
}

impl World<'_> {
    async fn live(&self, actors: &dyn Actors) {
        let stop = CancellationToken::new();
        let over = CancellationToken::new();
        let client =
            |label: &str| Client::from_kube(unhurried(&self.net, &self.env.clock), &self.env.fork(label));
        let (collector, namespaces) = (client("collector"), client("namespaces"));
        let replicas =
            join_all((0..self.conditions.replicas).map(|replica| self.replica(replica, actors, &stop)));
        let story = async {
            self.net.after_step(0);
            // The program has read the initial state by then, and learns of the steps by its watches.
            self.env.clock.sleep(Duration::from_millis(1)).await;
            self.tell(actors).await;
            self.settle_and_judge().await;
            stop.cancel();
            // A program has half a minute to stop, as a pod has; what comes later is not waited for.
            self.env.clock.sleep(Duration::from_secs(35)).await;
        };
        let runaway = self.net.runaway();
        let runs = |controller| !self.conditions.without.contains(&controller);
        let built_in = async {
            let collect = async {
                if runs(BuiltIn::GarbageCollector) {
                    garbage_collector::run_with(&collector, self.collection(), over.clone()).await;
                }
            };
            let empty = async {
                if runs(BuiltIn::NamespaceController) {
                    namespace_controller::run_with(&namespaces, emptying(), over.clone()).await;
                }
            };
            tokio::join!(collect, empty)
        };
        let everything = async {
            tokio::select! {
                biased;
                () = runaway.cancelled() => self.fail(Violation::Runaway(self.net.requests())),
                () = story => {}
                _ = async { tokio::join!(built_in, replicas) } => {}
            }
        };
        everything.await;
    }

    /// The garbage collector watches what a run without faults has used, instead of all kinds, and starts with what is known of them.
    fn collection(&self) -> garbage_collector::Options {
        let mut options = garbage_collector::Options::default();
        options.watch = Some(LASTING);
        options.kinds = Some(self.conditions.kinds.clone());
        options.discovery = LASTING;
        options.only = self.reference.map(|reference| reference.resources.clone());
        options
    }

    fn fail(&self, violation: Violation) {
        self.violation.lock().get_or_insert(violation);
    }

    fn has_failed(&self) -> bool {
        self.violation.lock().is_some()
    }

    async fn tell(&self, actors: &dyn Actors) {
        // The story is the same in every run.
        let env = Env::new(self.env.clock.clone(), watchkeeper::clock::Generator::seeded(0));
        let user = User::new(&self.net, &env, self.conditions.patience, &self.steps);
        let told = AssertUnwindSafe(async { actors.tell(&user).await }).catch_unwind();
        let longest = self.conditions.converge + LONGEST_STORY;
        let ended = tokio::select! {
            biased;
            () = self.steps.is_over.cancelled() => Some(Ok(())),
            ended = told => Some(ended),
            () = self.env.clock.sleep(longest) => None,
        };
        match ended {
            Some(Ok(())) => user.settle().await,
            None => self.fail(Violation::Unended(longest)),
            Some(Err(panic)) => self.fail(Violation::Story(panic_message(panic.as_ref()).to_owned())),
        }
    }

    /// One replica: started again whenever it ends, as a kubelet does.
    async fn replica(&self, replica: usize, actors: &dyn Actors, stop: &CancellationToken) {
        let mut life = 0;
        while !stop.is_cancelled() {
            life += 1;
            let over = self.net.begin_life(replica);
            let env = self.env_of(replica, life);
            let generator = env.generator.clone();
            let panics = self.listen(&env, replica);
            let service = self.net.service_of(replica);
            let client = Client::from_kube(kube_client::Client::new(service, "default"), &env);
            let handle = self.handles[replica].clone();
            self.net.trace().add(Event::Begins { replica, life });
            let life_of = Life { client, stop: stop.clone(), replica, handle };
            let alive = async { actors.live(life_of).await };
            let mut is_early = false;
            let why = tokio::select! {
                biased;
                () = over.cancelled() => "crashes".to_owned(),
                ended = AssertUnwindSafe(alive).catch_unwind() => match ended {
                    Ok(ended) => {
                        is_early = !stop.is_cancelled() && self.net.with_script(|script| script.is_of_reference());
                        ended.err().map_or_else(|| "ends".to_owned(), |error| format!("ends: {error}"))
                    }
                    Err(panic) => {
                        self.fail(Violation::Panic(panic_message(panic.as_ref()).to_owned()));
                        "panics".to_owned()
                    }
                },
            };
            self.net.trace().add(Event::Ends { replica, life, why: why.as_str().into() });
            self.net.kill(replica);
            if let Some(panic) = panics.lock().take() {
                self.fail(Violation::Panic(panic));
            }
            self.look_for_mistakes(replica);
            if is_early {
                self.fail(Violation::Ended(why));
                return;
            }
            self.env.clock.sleep(Duration::from_secs(5).mul_f64(generator.unit())).await;
        }
    }

    /// The clock, randomness and reporter of one life.
    fn env_of(&self, replica: usize, life: u32) -> Env {
        let generator = self.env.generator.fork(&format!("replica {replica} life {life}"));
        let (rate, offset) = self.net.clock_of(replica);
        let pauses = self.net.pauses_of(replica);
        if rate == 1.0 && offset == 0 {
            return Env::new(self.env.clock.pausable(&pauses), generator);
        }
        let anchor = self.env.clock.wall() + jiff::SignedDuration::from_secs(offset);
        Env::new(Clock::virtual_with_rate(anchor, rate).pausable(&pauses), generator)
    }

    /// How long the controller must not write anything at the end: two of its longest requeues, here and without faults.
    fn rest(&self) -> Duration {
        if let Some(rest) = self.conditions.rest {
            return rest;
        }
        let handles = self.handles.iter().filter_map(|handle| handle.lock().clone());
        let requeues = handles.flat_map(|handle| handle.figures()).map(|figures| figures.longest_requeue);
        let longest = requeues.max().unwrap_or_default().min(LONGEST_REST);
        let here = (2 * longest + Duration::from_secs(60)).clamp(SHORTEST_REST, LONGEST_REST);
        self.reference.map_or(here, |reference| here.max(reference.rest))
    }

    /// Puts what the toolkit reports into the trace, and keeps the first panic that it catches.
    fn listen(&self, env: &Env, replica: usize) -> Arc<Mutex<Option<String>>> {
        let first = Arc::<Mutex<Option<String>>>::default();
        let (keep, trace) = (first.clone(), self.net.trace().clone());
        env.reporter.add_hook(move |report| {
            let what = format!("{}: {}", report.subject, report.incident).into();
            trace.add(Event::Reported { replica, what });
            if let Incident::Panic(message) = report.incident {
                keep.lock().get_or_insert_with(|| format!("{}: {message}", report.subject));
            }
        });
        first
    }

    fn look_for_mistakes(&self, replica: usize) {
        let handle = self.handles[replica].lock().clone();
        if let Some(mistake) = handle.and_then(|handle| handle.mistakes().into_iter().next()) {
            self.fail(Violation::Mistake(mistake));
        }
    }

    fn state(&self) -> Arc<State> {
        self.view.state(self.net.server(), &self.outside)
    }

    /// Ends all faults, and waits until the state is that of the reference run and stays so.
    async fn settle_and_judge(&self) {
        self.net.calm();
        if self.has_failed() {
            return;
        }
        self.net.trace().note("the faults end");
        let Conditions { patience, converge, .. } = self.conditions;
        let clock = &self.env.clock;
        let deadline = clock.now() + *converge;
        let (mut seen, mut rests) = (None, 0);
        loop {
            let late = deadline.max(clock.now() + patience.settle);
            let is_quiet = self.net.quiet(patience.quiet, late).await;
            let now = Some((self.net.server().revision(), self.outside.values()));
            let is_right = match self.reference {
                None => is_quiet,
                Some(_) if !is_quiet => false,
                // Nothing has changed since the last look.
                Some(_) if seen == now => false,
                Some(reference) => self.differences(reference).is_empty(),
            };
            seen = now;
            if is_right {
                let last = self.net.last_change();
                let until = clock.now().max(last) + self.rest();
                clock.sleep_until(until).await;
                if self.net.last_change() == last {
                    break;
                }
                (seen, rests) = (None, rests + 1);
            }
            // A rest may be longer than the time to converge.
            if clock.now() >= deadline && (!is_right || rests >= MOST_RESTS) {
                self.judge_late().await;
                return;
            }
            if !is_right {
                clock.sleep(Duration::from_secs(1)).await;
            }
        }
        self.compare();
        for replica in 0..self.conditions.replicas {
            self.look_for_mistakes(replica);
        }
    }

    /// Says what is wrong when the time is up, and tries whether the controller only has to look again.
    async fn judge_late(&self) {
        self.compare();
        if !self.has_failed() {
            self.fail(Violation::restless(self.net.trace(), self.rest()));
        } else if let Some(reference) = self.reference {
            self.net.nudge(async || self.differences(reference).is_empty()).await;
        }
    }

    /// Fails if the state is not that of the reference run.
    fn compare(&self) {
        let differences = self.reference.map(|reference| self.differences(reference)).unwrap_or_default();
        if !differences.is_empty() {
            self.fail(Violation::Differs(differences));
        }
    }

    fn differences(&self, reference: &Reference) -> Vec<Difference> {
        self.conditions.differences(&reference.state, &self.state())
    }
}

/// Longer than any run. Connections of built-in controllers do not break: with such watches they make no requests while nothing happens.
const LASTING: Duration = Duration::from_secs(24 * 3600);

fn emptying() -> namespace_controller::Options {
    let mut options = namespace_controller::Options::default();
    options.watch = Some(LASTING);
    options
}

/// Returns a client of a built-in controller, whose requests take half a second each. Without a delay, a collector and a controller with
/// a stale cache could delete and create one object over and over, and virtual time would not advance.
fn unhurried(net: &Net, clock: &Clock) -> kube_client::Client {
    let (net, clock) = (net.clone(), clock.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (net, clock) = (net.clone(), clock.clone());
        async move {
            clock.sleep(Duration::from_millis(500)).await;
            let target = Target::of(request.method(), request.uri(), request.headers());
            let answer = net.server().service().bookmark_period(LASTING).oneshot(request).await;
            if let (true, Ok(answer)) = (target.is_write(), &answer) {
                let (what, status) = (target.to_string().into(), answer.status().as_u16());
                net.trace().add(Event::BuiltIn { what, status });
                net.check_invariants();
            }
            answer
        }
    });
    kube_client::Client::new(service, "default")
}
