//! The IO of a reflector: sends requests, reads bytes, makes objects, and queues them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::bad::{Bad, BadBookmark, Skipped, UnknownEvent};
use super::initial::Initial;
use super::metrics::ListReason;
use super::options::Options;
use super::plan::{Ask, Due, Ended, Plan, Probed, SetBack, VERY_SHORT};
use crate::clock::Instant;
use crate::env::Env;
use crate::object::{IdentityError, Kind, Maker, Object, ResourceVersion, name_hint};
use crate::queue::{Deleted, Delta, DeltaQueue};
use crate::report::WithCauses;
use crate::source::{ByteStream, ListOptions, ListerWatcher, WatchOptions};
use crate::wire::{
    ApiError, BadEvent, Class, ListMeta, ListSplitter, Pages, WatchEventType, WatchLine, WatchSplitter,
};

/// Mirrors one kind from a source into a queue.
pub(crate) struct Reflector<K: Kind, S> {
    source: Arc<S>,
    queue: Arc<DeltaQueue<K>>,
    maker: Maker<K>,
    plan: Plan,
    env: Env,
    name: String,
    health: Arc<Mutex<Health>>,
    options: Options,
}

/// The activity of a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Not yet started.
    #[default]
    Idle,
    /// Reading a list.
    Listing,
    /// Reading a watch.
    Watching,
    /// Waiting to try again.
    Waiting,
    /// Stopped for good.
    Stopped,
}

/// The health of a reflector, readable at any time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// The current activity.
    pub phase: Phase,
    /// The version of the last change that was passed on.
    pub version: ResourceVersion,
    /// The time of the last answer or event of the server.
    pub last_contact: Option<Instant>,
    /// The time since which the cache has not been kept up to date, and the reason. It is cleared when something
    /// arrives again: a list if lists failed; an event, a bookmark or a watch that lasts if watches failed. A watch
    /// that is merely opened does not clear it, nor does one that lasts after one that delivered nothing while lists
    /// failed.
    pub degraded: Option<(Instant, String)>,
    /// Whether watches failed: another list alone does not clear the problem.
    watch_failed: bool,
    /// Whether a watch lasted without delivering anything, and a list failed: another watch that merely lasts proves
    /// nothing.
    unheard: bool,
    /// The number of complete lists; all but the first are relists.
    pub lists: u64,
    /// The number of complete lists by reason.
    pub lists_by_reason: BTreeMap<ListReason, u64>,
    /// The number of opened watches.
    pub watches: u64,
    /// How often the server's history turned out to be rewritten, for example by a restore from a backup.
    pub rewritten: u64,
}

/// A watch that lasts this much longer than its timeout is dead.
const GRACE: Duration = Duration::from_secs(15);
/// The maximum wait for the first byte of an answer, and for each further chunk of a list.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum wait for the next chunk of a streamed list, and for its end after the first change.
const STREAM_PATIENCE: Duration = Duration::from_secs(30);
/// A watch that ends by so much before its timeout has still ended at its time.
const EARLY: Duration = Duration::from_secs(1);

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Returns a reflector called `name` in reports. `maker` makes objects of bytes, and `health` is kept up to date.
    pub(crate) fn new(
        name: String,
        source: S,
        queue: Arc<DeltaQueue<K>>,
        maker: Maker<K>,
        env: &Env,
        health: Arc<Mutex<Health>>,
        options: Options,
    ) -> Self {
        let env = env.fork(&format!("reflector {name}"));
        let plan = Plan::new(&options, source.streams_lists(), env.generator.clone());
        let source = Arc::new(source);
        Self { source, queue, maker, plan, env, name, health, options }
    }

    /// Lists and watches until `stop`. Dropping the future stops it as well.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            loop {
                let ask = self.plan.ask();
                if ask.brings_whole_state() {
                    // While the consumer is stuck, another whole state would only be queued behind the last one.
                    self.queue.room().await;
                }
                let wait = match ask {
                    Ask::List(options) => self.list(options).await,
                    Ask::Watch(options) => self.watch(options).await,
                };
                self.wait(wait).await;
            }
        })
        .await;
        self.health.lock().phase = Phase::Stopped;
    }

    async fn wait(&self, wait: Duration) {
        if !wait.is_zero() {
            self.health.lock().phase = Phase::Waiting;
            self.env.clock.sleep(wait).await;
        }
    }

    /// Reads all pages of a list and replaces the state with them. Returns the delay before the next request.
    async fn list(&mut self, mut options: ListOptions) -> Duration {
        let (mut items, mut pages) = (Vec::new(), Pages::default());
        loop {
            self.health.lock().phase = Phase::Listing;
            let whole = items.len();
            let page = self.page(&options, &mut items).await.and_then(|meta| {
                if !meta.continue_token.is_empty() {
                    pages.turn(&meta.continue_token, items.get(whole).map(Object::key))?;
                }
                Ok(meta)
            });
            match page {
                Ok(meta) => {
                    if let Some(version) = self.plan.listed(&meta) {
                        self.replace(items, version);
                        return Duration::ZERO;
                    }
                    options.continue_token = meta.continue_token;
                }
                Err(error) => {
                    self.failed("cannot list", &error);
                    let wait = self.plan.list_failed(&error, self.env.clock.now());
                    if !self.plan.keeps_pages() {
                        return wait;
                    }
                    // The same page again, behind the complete ones before it.
                    items.truncate(whole);
                    self.wait(wait).await;
                }
            }
        }
    }

    async fn page(
        &mut self,
        options: &ListOptions,
        items: &mut Vec<Object<K>>,
    ) -> Result<ListMeta, ApiError> {
        let asked = self.env.clock.timeout(PATIENCE, self.source.list(options));
        let mut stream = asked.await.map_err(|_| silent())??;
        let mut splitter = ListSplitter::with_cap(self.options.object_cap);
        let mut position = items.len();
        while let Some(chunk) = self.next(&mut stream, self.env.clock.now() + PATIENCE).await? {
            splitter.feed(&chunk, |bytes| {
                let place = format_args!("item {position}");
                match bytes.map_err(Bad::from).and_then(|bytes| self.make_listed(bytes)) {
                    Ok(object) => items.push(object),
                    Err(bad) => {
                        // The object exists in a form that is unusable: its old state stays.
                        items.extend(bad.name.as_ref().and_then(|name| self.queue.known(name)));
                        self.skipped(place, bad);
                    }
                }
                position += 1;
            })?;
        }
        Ok(splitter.finish()?)
    }

    /// Makes an object of a list, or returns the cached one if it has the same state.
    fn make_listed(&mut self, bytes: &[u8]) -> Result<Object<K>, Bad> {
        let object = self.make(bytes)?;
        Ok(self.queue.unchanged(&object).unwrap_or(object))
    }

    fn make(&mut self, bytes: &[u8]) -> Result<Object<K>, Bad> {
        self.maker.make(bytes).map_err(|error| {
            let name = match &error {
                IdentityError::Transform { name, .. } => Some(name.clone()),
                _ => name_hint(bytes),
            };
            Bad { name, source: error.into() }
        })
    }

    fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion) {
        if let Some(set_back) = self.plan.take_set_back() {
            let (phase, why) = ("relisted", self.set_back(&set_back).to_string());
            self.env.reporter.error("reflector", &self.name, &Failure { phase, why });
        }
        self.contact(&version);
        let reason = self.plan.reason();
        self.options.metrics.listed(reason, items.len());
        {
            let mut health = self.health.lock();
            health.lists += 1;
            *health.lists_by_reason.entry(reason).or_default() += 1;
        }
        self.queue.replace(items, version);
    }

    async fn next(
        &self,
        stream: &mut ByteStream,
        deadline: Instant,
    ) -> Result<Option<bytes::Bytes>, ApiError> {
        tokio::select! {
            biased;
            chunk = stream.next() => chunk.transpose(),
            () = self.env.clock.sleep_until(deadline) => Err(silent()),
        }
    }

    /// Reads one watch from opening to end, with or without a list at its beginning. Returns the delay before the next
    /// request.
    async fn watch(&mut self, options: WatchOptions) -> Duration {
        let started = self.env.clock.now();
        self.health.lock().phase = if options.initial_events { Phase::Listing } else { Phase::Watching };
        let ended = match self.env.clock.timeout(PATIENCE, self.source.watch(&options)).await {
            Err(_) => Ended::NotOpened(silent()),
            Ok(Err(error)) => Ended::NotOpened(error),
            Ok(Ok(stream)) => {
                self.opened();
                match self.read_watch(stream, &options).await {
                    Ok(()) if self.env.clock.now() + EARLY >= started + options.timeout => Ended::TimedOut,
                    Ok(()) => Ended::Closed,
                    Err(error) => Ended::Failed(error),
                }
            }
        };
        let now = self.env.clock.now();
        let was_watching = !self.plan.is_streaming_list();
        let wait = self.plan.watch_ended(&ended, now - started, now);
        // An expired version is no evidence about the watch from the next one.
        if was_watching && !wait.is_zero() && !ended.error().is_some_and(ApiError::is_version_unusable) {
            self.health.lock().watch_failed = true;
        }
        match &ended {
            // A broken connection is replaced at once; a paged list replaces one that cannot be streamed.
            Ended::NotOpened(error) | Ended::Failed(error) if wait.is_zero() => {
                self.notify(error);
                tracing::debug!(reflector = self.name, "{error}");
            }
            Ended::NotOpened(error) => self.failed("cannot watch", error),
            Ended::Failed(error) => self.failed("the watch failed", error),
            Ended::Closed | Ended::TimedOut if wait.is_zero() => {}
            Ended::Closed | Ended::TimedOut => {
                self.degrade("the watch failed", "closed at once, without anything new")
            }
        }
        wait
    }

    async fn read_watch(&mut self, mut stream: ByteStream, options: &WatchOptions) -> Result<(), ApiError> {
        let end = self.env.clock.now() + options.timeout + GRACE;
        let mut splitter = WatchSplitter::with_cap(self.options.object_cap);
        let mut initial = options.initial_events.then(|| Initial::new(self.env.generator.hasher()));
        let (opened, mut is_proven) = (self.env.clock.now(), !self.health.lock().watch_failed);
        // The time by which a streamed list must be complete, once changes have come: they follow it.
        let mut whole_by = None;
        let mut probe = None;
        loop {
            let is_watching = initial.is_none();
            let due = self.plan.history.due().filter(|_| is_watching);
            let mut deadline = initial.as_ref().and(whole_by).unwrap_or(end);
            if !is_watching {
                deadline = deadline.min(self.env.clock.now() + STREAM_PATIENCE);
            }
            let wake_at = due.map_or(deadline, |(at, _)| at.min(deadline));
            let next = tokio::select! {
                biased;
                next = stream.next() => next,
                answer = answer_of(&mut probe) => {
                    probe = None;
                    self.probed(answer)?;
                    continue;
                }
                never = self.lasting(opened), if is_watching && !is_proven => match never {},
                () = self.env.clock.sleep_until(wake_at) => match due {
                    Some((at, Due::Probe)) if at < deadline => {
                        self.plan.history.probe();
                        probe = Some(self.probe());
                        continue;
                    }
                    _ => return Err(silent()),
                },
            };
            let Some(chunk) = next.transpose()? else { break };
            if !chunk.is_empty() {
                self.plan.history.heard(self.env.clock.now());
            }
            let mut error_event = None;
            let mut newest = None;
            let split = splitter.feed(&chunk, |line| match line {
                _ if error_event.is_some() => {}
                Ok(WatchLine { event: WatchEventType::Error, object }) => {
                    error_event = Some(ApiError::from_event(object))
                }
                Ok(line) => {
                    if line.event != WatchEventType::Added {
                        whole_by.get_or_insert_with(|| self.env.clock.now() + STREAM_PATIENCE);
                    }
                    match self.event(line, &mut initial) {
                        Ok(version) => newest = version.or(newest.take()),
                        Err(set_back) => error_event = Some(self.set_back(&set_back)),
                    }
                }
                Err(bad) => {
                    let event = match bad {
                        BadEvent::DeletedTooLarge(_) => WatchEventType::Deleted,
                        BadEvent::TooLarge(_) | BadEvent::Malformed(_) => WatchEventType::Modified,
                    };
                    self.bad_event(format_args!("an event"), &event, bad.into(), &mut initial);
                }
            });
            // What was passed on counts, whatever came after it: the next watch continues from there.
            if let Some(version) = newest {
                if is_watching {
                    is_proven = true;
                    self.health.lock().watch_failed = false;
                }
                self.contact(&version);
            }
            if let Some(error) = error_event {
                return Err(error);
            }
            split?;
            // Chunks that have arrived are applied together, up to a number of chunks or bytes.
            self.queue.room().await;
            crate::fair::give_way().await;
        }
        splitter.finish()?;
        match initial {
            Some(_) => Err(ApiError::new(Class::ConnectionLost, "the list was closed before its end")),
            None => Ok(()),
        }
    }

    /// Asks for the server's version with the smallest possible list, beside the watch.
    fn probe(&self) -> BoxFuture<'static, Result<ResourceVersion, ApiError>> {
        let (source, clock, cap) = (self.source.clone(), self.env.clock.clone(), self.options.object_cap);
        Box::pin(async move {
            let one = ListOptions { limit: 1, ..ListOptions::default() };
            let read = async {
                let mut stream = source.list(&one).await?;
                let mut splitter = ListSplitter::with_cap(cap);
                while let Some(chunk) = stream.next().await {
                    splitter.feed(&chunk?, |_| {})?;
                }
                Ok(splitter.finish()?.version)
            };
            clock.timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(silent()))
        })
    }

    /// Handles the answer to a probe. An error ends the watch.
    fn probed(&mut self, answer: Result<ResourceVersion, ApiError>) -> Result<(), ApiError> {
        match (self.plan.history.probed(answer.as_ref().ok()), answer) {
            (Probed::SetBack(set_back), _) => return Err(self.set_back(&set_back)),
            (Probed::Unknown, Err(error)) => {
                {
                    let mut health = self.health.lock();
                    (health.watch_failed, health.unheard) = (true, true);
                }
                self.failed("the watch brings nothing; cannot list", &error);
                return Err(silent());
            }
            (Probed::Quiet, _) => {
                let mut health = self.health.lock();
                (health.watch_failed, health.unheard, health.degraded) = (false, false, None);
                health.last_contact = Some(self.env.clock.now());
            }
            (Probed::GoOn, Err(error)) => {
                tracing::debug!(reflector = self.name, "cannot ask for the server's version: {error}");
            }
            (Probed::GoOn | Probed::Unknown, _) => {}
        }
        Ok(())
    }

    /// Counts that the server's history was rewritten, and returns the error that says so and leads to a list.
    fn set_back(&self, set_back: &SetBack) -> ApiError {
        self.options.metrics.history_rewritten();
        self.health.lock().rewritten += 1;
        ApiError::new(Class::VersionTooLarge, set_back.to_string())
    }

    /// Passes on one event, or collects it while the initial list is incomplete. Returns the version reached, if there
    /// is one. An event below the last version seen is not passed on.
    fn event(
        &mut self,
        line: WatchLine<'_>,
        initial: &mut Option<Initial<K>>,
    ) -> Result<Option<ResourceVersion>, SetBack> {
        self.options.metrics.event(&line.event);
        if line.event == WatchEventType::Bookmark {
            return self.bookmark(line.object, initial);
        }
        if let WatchEventType::Unknown(event) = line.event {
            self.env.reporter.error("reflector", &self.name, &UnknownEvent(event));
            return Ok(None);
        }
        let made = if initial.is_some() { self.make_listed(line.object) } else { self.make(line.object) };
        let object = match made {
            Ok(object) => object,
            Err(bad) => {
                self.bad_event(format_args!("a {:?} event", line.event), &line.event, bad, initial);
                return Ok(None);
            }
        };
        if let Some(initial) = initial {
            initial.apply(&line.event, object);
            return Ok(None);
        }
        let version = object.version().clone();
        self.plan.watched(&version)?;
        if planted!(DroppedEvent) && version.as_number().is_some_and(|number| number % 16 == 0) {
            return Ok(Some(version));
        }
        self.queue.push(match line.event {
            WatchEventType::Deleted => Delta::Deleted(Deleted::Final(object)),
            WatchEventType::Added => Delta::Added(object),
            _ => Delta::Updated(object),
        });
        Ok(Some(version))
    }

    /// Handles an unusable event: the old state of its object stays, unless it is a delete, which always counts.
    fn bad_event(
        &self,
        place: fmt::Arguments<'_>,
        event: &WatchEventType,
        bad: Bad,
        initial: &mut Option<Initial<K>>,
    ) {
        if let Some(key) = &bad.name {
            let kept = self.queue.known(key);
            match (event, initial) {
                // An event about an object of another kind has no meaning for this kind.
                (WatchEventType::Deleted, _)
                    if matches!(bad.identity(), Some(IdentityError::OtherKind { .. })) => {}
                (WatchEventType::Deleted, Some(initial)) => initial.remove(key),
                (WatchEventType::Deleted, None) => {
                    let (key, last_known) = (key.clone(), kept);
                    self.queue.push(Delta::Deleted(Deleted::Unknown { key, last_known }));
                }
                (_, Some(initial)) => kept.into_iter().for_each(|kept| initial.keep(kept)),
                (_, None) => {}
            }
        }
        self.skipped(place, bad);
    }

    fn bookmark(
        &mut self,
        object: &[u8],
        initial: &mut Option<Initial<K>>,
    ) -> Result<Option<ResourceVersion>, SetBack> {
        let bookmark = serde_json::from_slice::<Bookmark>(object).ok();
        let Some(meta) =
            bookmark.map(|bookmark| bookmark.metadata).filter(|meta| !meta.resource_version.is_empty())
        else {
            self.env.reporter.error("reflector", &self.name, &BadBookmark);
            return Ok(None);
        };
        let version = ResourceVersion::from(meta.resource_version.as_str());
        let annotations = meta.annotations.unwrap_or_default();
        let ends_list = annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
        match initial.take_if(|_| ends_list) {
            Some(initial) => {
                self.plan.synced(&version);
                self.replace(initial.into_objects(), version.clone());
                self.health.lock().phase = Phase::Watching;
            }
            // Before the list is complete its version means nothing.
            None if initial.is_some() => return Ok(None),
            None => {
                self.plan.watched(&version)?;
                self.plan.history.bookmarked();
                self.queue.push(Delta::Bookmark(version.clone()));
            }
        }
        Ok(Some(version))
    }

    fn opened(&mut self) {
        self.plan.watch_opened(self.env.clock.now());
        let mut health = self.health.lock();
        health.watches += 1;
        health.last_contact = Some(self.env.clock.now());
    }

    fn contact(&self, version: &ResourceVersion) {
        let mut health = self.health.lock();
        health.version.clone_from(version);
        health.last_contact = Some(self.env.clock.now());
        health.unheard = false;
        if !health.watch_failed {
            health.degraded = None;
        }
    }

    /// Clears a failure of watches once this one has lasted, even if it delivered nothing. Cancel-safe.
    async fn lasting(&self, opened: Instant) -> Infallible {
        self.env.clock.sleep_until(opened + VERY_SHORT).await;
        {
            let mut health = self.health.lock();
            if !health.unheard {
                health.watch_failed = false;
                health.degraded = None;
            }
        }
        std::future::pending().await
    }

    /// Keeps the time at which the problem began, with the newest reason.
    fn degrade(&self, phase: &'static str, why: &str) {
        let mut health = self.health.lock();
        let since = health.degraded.as_ref().map_or_else(|| self.env.clock.now(), |(since, _)| *since);
        health.degraded = Some((since, format!("{phase} {}: {why}", self.name)));
    }

    fn skipped(&self, place: fmt::Arguments<'_>, bad: Bad) {
        let place = match &bad.name {
            // The error of a transform names the object itself.
            Some(_) if matches!(bad.identity(), Some(IdentityError::Transform { .. })) => place.to_string(),
            Some(name) => format!("{place}, {name}"),
            None => place.to_string(),
        };
        self.env.reporter.error("reflector", &self.name, &Skipped { place, source: bad.source });
    }

    fn failed(&self, phase: &'static str, error: &ApiError) {
        let why = WithCauses(error).to_string();
        self.degrade(phase, &why);
        self.notify(error);
        if error.class() == Class::Expired {
            tracing::debug!(reflector = self.name, "{phase}: {why}");
        } else {
            self.env.reporter.error("reflector", &self.name, &Failure { phase, why });
        }
    }

    /// Calls the user's hook, which must not bring down the reflector.
    fn notify(&self, error: &ApiError) {
        if let Some(hook) = &self.options.on_error {
            self.env.reporter.guard("watch error hook", &self.name, || hook(error));
        }
    }
}

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Waits for the answer to a probe, if one was sent.
async fn answer_of(
    probe: &mut Option<BoxFuture<'static, Result<ResourceVersion, ApiError>>>,
) -> Result<ResourceVersion, ApiError> {
    match probe {
        Some(probe) => probe.await,
        None => std::future::pending().await,
    }
}

fn silent() -> ApiError {
    ApiError::new(Class::Timeout, "the API server is silent")
}

#[derive(Debug, thiserror::Error)]
#[error("{phase}: {why}")]
struct Failure {
    phase: &'static str,
    why: String,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    #[serde(default)]
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

impl<K: Kind, S> fmt::Debug for Reflector<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("name", &self.name).field("health", &*self.health.lock()).finish()
    }
}
