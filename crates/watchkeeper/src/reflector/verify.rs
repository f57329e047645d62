//! Anti-entropy: the cache is compared with the server from time to time, or on request, and listed again if it differs.
//!
//! A periodic comparison takes the list at the cache's own version, so that events under way do not matter. Where the
//! server does not have that version any more, or sends no bookmarks that would move it on, and on request, it takes the
//! newest state, and lets the watch catch up before it judges: an object about which an event has arrived meanwhile is
//! not judged at all.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use futures::future::BoxFuture;
use hashbrown::HashSet;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::bad::Failure;
use super::compare::{Compared, Comparison, Difference, compare};
use super::run::Reflector;
use crate::clock::{Clock, Generator, Instant};
use crate::object::{Kind, ObjectName, ResourceVersion};
use crate::report::WithCauses;
use crate::source::ListerWatcher;
use crate::wire::{ApiError, Class};

/// The result of comparing a cache with the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The version that the cache has reached.
    pub version: ResourceVersion,
    /// The number of objects that differed. They have been listed again.
    pub differences: usize,
}

/// The reason why a cache was not compared with the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The informer has stopped.
    #[error("cannot verify {0}: the informer has stopped")]
    Stopped(String),
    /// The server could not be asked.
    #[error("cannot verify {name}: {why}")]
    Failed {
        /// The informer.
        name: String,
        /// The error of the list.
        why: String,
    },
}

type Answer = Result<Verified, VerifyError>;

/// Requests to compare a cache with the server, from any task.
#[derive(Debug, Default)]
pub(crate) struct VerifyRequests {
    waiting: Mutex<Vec<oneshot::Sender<Answer>>>,
    added: Notify,
}

impl VerifyRequests {
    /// Adds a request, and returns its answer, which never comes if the reflector has stopped.
    pub(crate) fn add(&self) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().push(sender);
        self.added.notify_one();
        receiver
    }

    fn take(&self) -> Vec<oneshot::Sender<Answer>> {
        std::mem::take(&mut self.waiting.lock())
    }

    async fn added(&self) {
        while self.waiting.lock().is_empty() {
            self.added.notified().await;
        }
    }
}

/// The comparisons of one reflector.
pub(super) struct Verifier {
    /// Zero for never.
    period: Duration,
    generator: Generator,
    requests: Arc<VerifyRequests>,
    due: Option<Instant>,
    /// The time before which nothing begins, as changes are on their way into the cache.
    busy_until: Option<Instant>,
    running: Option<Running>,
    /// Requests that the running comparison, or the list under way, answers.
    asked: Vec<oneshot::Sender<Answer>>,
    /// The number of differences that the list under way mends.
    found: usize,
    /// What a list did not mend, such as the state of an object that is too large to be cached.
    unmended: HashSet<Difference, FixedState>,
}

struct Running {
    stage: Stage,
    /// The objects about which events have arrived since it began.
    touched: HashSet<ObjectName, FixedState>,
}

enum Stage {
    /// The mutex is never locked: it lets other tasks refer to the reflector.
    Comparing {
        at: At,
        result: Mutex<BoxFuture<'static, Result<Compared, ApiError>>>,
    },
    CatchingUp {
        compared: Compared,
        until: Instant,
    },
}

/// The version of the list to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Own,
    Newest,
}

/// What a verifier has to do next.
pub(super) enum Step {
    Begin(At),
    Compared(At, Result<Compared, ApiError>),
    CaughtUp,
}

/// The cache differs from the server: the watch ends, and a list follows.
#[derive(Debug)]
pub(super) struct Differs;

/// The longest time for which a watch may catch up with a list, if no event or bookmark shows that it has.
const CATCH_UP: Duration = Duration::from_secs(10);
/// The delay of a comparison while changes are on their way into the cache.
const BUSY: Duration = Duration::from_millis(100);
/// The part of a period by which comparisons are spread.
const SPREAD: f64 = 0.1;
/// The number of differences in a report.
const NAMED: usize = 5;

impl Verifier {
    pub(super) fn new(period: Duration, requests: Arc<VerifyRequests>, generator: &Generator) -> Self {
        let generator = generator.fork("verifier");
        let unmended = HashSet::with_hasher(generator.hasher());
        Self {
            period,
            generator,
            requests,
            due: None,
            busy_until: None,
            running: None,
            asked: Vec::new(),
            found: 0,
            unmended,
        }
    }

    /// Returns the next step. Cancel-safe.
    pub(super) async fn next(&mut self, clock: &Clock) -> Step {
        match self.running.as_mut().map(|running| &mut running.stage) {
            Some(Stage::Comparing { at, result }) => Step::Compared(*at, result.get_mut().await),
            Some(Stage::CatchingUp { until, .. }) => {
                clock.sleep_until(*until).await;
                Step::CaughtUp
            }
            None => {
                if let Some(until) = self.busy_until {
                    clock.sleep_until(until).await;
                }
                let (due, requests) = (self.due, &self.requests);
                tokio::select! {
                    biased;
                    () = requests.added() => Step::Begin(At::Newest),
                    () = clock.sleep_until(due.unwrap_or_else(|| clock.now())), if due.is_some() => Step::Begin(At::Own),
                }
            }
        }
    }

    /// Records an event about an object.
    pub(super) fn touch(&mut self, key: impl FnOnce() -> ObjectName) {
        if let Some(running) = &mut self.running {
            running.touched.insert(key());
        }
    }

    /// Returns whether a watch at `version` has caught up with the list that it is compared with.
    pub(super) fn has_caught_up(&self, version: &ResourceVersion) -> bool {
        let stage = self.running.as_ref().map(|running| &running.stage);
        matches!(stage, Some(Stage::CatchingUp { compared, .. }) if *version >= compared.version)
    }

    /// Records that a list begins, which answers the requests made so far.
    pub(super) fn list_begins(&mut self) {
        self.running = None;
        self.asked.append(&mut self.requests.take());
    }

    /// Records a whole state: it is the server's.
    pub(super) fn listed(&mut self, version: &ResourceVersion, now: Instant) {
        self.running = None;
        let found = std::mem::take(&mut self.found);
        self.answer(version, found);
        self.schedule(now);
    }

    fn schedule(&mut self, now: Instant) {
        let early = self.period.mul_f64(1.0 - SPREAD);
        let delay = early + self.period.mul_f64(SPREAD * self.generator.unit());
        self.due = (!self.period.is_zero()).then(|| now + delay);
    }

    fn answer(&mut self, version: &ResourceVersion, differences: usize) {
        for asked in self.asked.drain(..) {
            // Who asked may have gone.
            let _gone = asked.send(Ok(Verified { version: version.clone(), differences }));
        }
    }
}

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Takes the next step of the verifier.
    pub(super) fn verify(&mut self, step: Step) -> Result<(), Differs> {
        let now = self.env.clock.now();
        match step {
            // The cache is at the version of the watch only if nothing is queued.
            Step::Begin(at) if self.queue.is_empty() => {
                // Without bookmarks, the cache's own version may be that before the event that was lost.
                let is_own = at == At::Own && self.plan.history.is_bookmarked();
                self.begin(if is_own { At::Own } else { At::Newest });
            }
            Step::Begin(_) => self.verifier.busy_until = Some(now + BUSY),
            Step::Compared(At::Own, Err(error)) if is_version_refused(&error) => self.begin(At::Newest),
            Step::Compared(_, Err(error)) => self.unverified(&error),
            Step::Compared(at, Ok(compared)) => {
                let is_behind = at == At::Newest && !self.left(&compared.differences).is_empty();
                let until = if is_behind { now + CATCH_UP } else { now };
                if let Some(running) = &mut self.verifier.running {
                    running.stage = Stage::CatchingUp { compared, until };
                }
                if !is_behind || self.verifier.has_caught_up(self.plan.history.last()) {
                    return self.judge();
                }
            }
            Step::CaughtUp => return self.judge(),
        }
        Ok(())
    }

    fn begin(&mut self, at: At) {
        let verifier = &mut self.verifier;
        verifier.busy_until = None;
        verifier.asked.append(&mut verifier.requests.take());
        let hasher = verifier.unmended.hasher().clone();
        let version = match at {
            At::Own => self.plan.history.last().clone(),
            At::Newest => ResourceVersion::UNSET,
        };
        let comparison = Comparison::new(self.queue.all_known(), hasher.clone());
        let (limit, cap) = (self.options.page_size, self.options.object_cap);
        let (source, clock) = (self.source.clone(), self.env.clock.clone());
        let result = Mutex::new(
            Box::pin(compare(source, clock, limit, cap, version, comparison)) as BoxFuture<'static, _>
        );
        let touched = HashSet::with_hasher(hasher);
        verifier.running = Some(Running { stage: Stage::Comparing { at, result }, touched });
    }

    /// Returns the differences that no event has mended.
    fn left(&self, differences: &[Difference]) -> Vec<Difference> {
        let touched = self.verifier.running.as_ref().map(|running| &running.touched);
        let is_left = |difference: &&Difference| {
            let is_touched = touched.is_some_and(|touched| touched.contains(&difference.key));
            !is_touched && !difference.is_mended_by(self.queue.known(&difference.key).as_ref())
        };
        differences.iter().filter(is_left).cloned().collect()
    }

    /// Decides what becomes of the differences.
    pub(super) fn judge(&mut self) -> Result<(), Differs> {
        let stage = self.verifier.running.as_ref().map(|running| &running.stage);
        let Some(Stage::CatchingUp { compared, .. }) = stage else { return Ok(()) };
        let left = self.left(&compared.differences);
        let now = self.env.clock.now();
        self.verifier.running = None;
        self.verifier.schedule(now);
        let is_known = left.iter().all(|difference| self.verifier.unmended.contains(difference));
        self.verifier.unmended.clear();
        self.verifier.unmended.extend(left.iter().cloned());
        let news = if is_known { 0 } else { left.len() };
        self.options.metrics.verified(news);
        {
            let mut health = self.health.lock();
            (health.verified, health.differences) = (Some(now), health.differences + news as u64);
        }
        if is_known {
            let version = self.plan.history.last().clone();
            self.verifier.answer(&version, left.len());
            return Ok(());
        }
        self.verifier.found = news;
        let why = described(&left);
        self.env.reporter.error("reflector", &self.name, &Failure { phase: "the cache differed", why });
        Err(Differs)
    }

    fn unverified(&mut self, error: &ApiError) {
        self.verifier.running = None;
        self.verifier.schedule(self.env.clock.now());
        let why = WithCauses(error).to_string();
        for asked in self.verifier.asked.drain(..) {
            let failed = VerifyError::Failed { name: self.name.clone(), why: why.clone() };
            // Who asked may have gone.
            let _gone = asked.send(Err(failed));
        }
        self.env.reporter.error("reflector", &self.name, &Failure { phase: "cannot verify the cache", why });
    }
}

/// Returns whether the server cannot list at a given version, at all or any more.
fn is_version_refused(error: &ApiError) -> bool {
    error.is_version_unusable() || error.class() == Class::Invalid
}

fn described(differences: &[Difference]) -> String {
    let named: Vec<_> = differences.iter().take(NAMED).map(ToString::to_string).collect();
    let more = differences.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the server may have lost events; on the server {}{more}", named.join(", "))
}
