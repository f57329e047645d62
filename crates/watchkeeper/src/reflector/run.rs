//! How is the plan carried out? Ask, read bytes, make objects, hand them on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::metrics::{InformerMetrics, ListReason};
use super::plan::{Ask, Ended, PAGE, Plan};
use crate::clock::Instant;
use crate::env::Env;
use crate::object::{IdentityError, Kind, Maker, Object, ResourceVersion};
use crate::queue::{Deleted, Delta};
use crate::source::{ByteStream, ListOptions, ListerWatcher, WatchOptions};
use crate::wire::{ApiError, Class, EventType, ListMeta, ListSplitter, WatchLine, WatchSplitter};

/// Where a reflector puts what it finds.
pub(crate) trait Sink<K>: Send + Sync + 'static {
    /// One change, in the order of the stream.
    fn push(&self, delta: Delta<K>);

    /// The whole state, as a list gave it.
    fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion);

    /// What is kept already of the same state as `object`: a relist need not hold it twice.
    fn known(&self, object: &Object<K>) -> Option<Object<K>>;
}

/// Mirrors one kind from a source into a sink.
pub(crate) struct Reflector<K: Kind, S, T> {
    source: S,
    sink: T,
    maker: Maker<K>,
    plan: Plan,
    env: Env,
    name: String,
    health: Arc<Mutex<Health>>,
    metrics: Arc<dyn InformerMetrics>,
}

/// What a reflector is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// How a reflector is doing, readable at any time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// What it is busy with.
    pub phase: Phase,
    /// The version of the last thing handed on.
    pub version: ResourceVersion,
    /// When the server was last heard of.
    pub last_contact: Option<Instant>,
    /// Since when nothing has worked, and why.
    pub degraded: Option<(Instant, String)>,
    /// Complete lists so far; all but the first are relists.
    pub lists: u64,
    /// Complete lists by their reason.
    pub lists_by_reason: BTreeMap<ListReason, u64>,
    /// Watches opened so far.
    pub watches: u64,
}

/// A watch that is silent beyond its own time-out is dead.
const GRACE: Duration = Duration::from_secs(15);
/// The first byte of an answer, and each further piece of a list, must come within this time.
const PATIENCE: Duration = Duration::from_secs(60);

impl<K: Kind, S: ListerWatcher, T: Sink<K>> Reflector<K, S, T> {
    /// A reflector called `name` in reports; `maker` turns the bytes of one object into it, and `health` is kept true.
    pub(crate) fn new(
        name: String,
        source: S,
        sink: T,
        maker: Maker<K>,
        env: &Env,
        health: Arc<Mutex<Health>>,
        metrics: Arc<dyn InformerMetrics>,
    ) -> Self {
        let env = env.fork(&format!("reflector {name}"));
        let plan = Plan::new(Backoff::default(), env.generator.clone(), PAGE);
        Self { source, sink, maker, plan, env, name, health, metrics }
    }

    /// Lists and watches until `stop`. Dropping the future stops it as well.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            loop {
                let wait = match self.plan.ask() {
                    Ask::List(options) => self.list(options).await,
                    Ask::Watch(options) => self.watch(options).await,
                };
                if !wait.is_zero() {
                    self.health.lock().phase = Phase::Waiting;
                    self.env.clock.sleep(wait).await;
                }
            }
        })
        .await;
        self.health.lock().phase = Phase::Stopped;
    }

    /// All pages of a list, then one replacement; how long to wait before asking again.
    async fn list(&mut self, mut options: ListOptions) -> Duration {
        self.health.lock().phase = Phase::Listing;
        let mut items = Vec::new();
        loop {
            match self.page(&options, &mut items).await {
                Ok(meta) => {
                    if self.plan.listed(&meta) {
                        self.contact(&meta.version);
                        self.listed(items.len());
                        self.sink.replace(items, meta.version);
                        return Duration::ZERO;
                    }
                    options.continue_token = meta.continue_token;
                }
                Err(error) => {
                    self.failed("cannot list", &error);
                    return self.plan.list_failed(&error, self.env.clock.now());
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
        let mut splitter = ListSplitter::default();
        let mut position = items.len();
        while let Some(chunk) = self.next(&mut stream, self.env.clock.now() + PATIENCE).await? {
            let Self { maker, env, name, sink, .. } = self;
            splitter.feed(&chunk, |bytes| {
                match maker.make(bytes) {
                    Ok(object) => items.push(sink.known(&object).unwrap_or(object)),
                    Err(error) => {
                        env.reporter.error(
                            "reflector",
                            name,
                            &BadObject { place: format!("item {position}"), source: error },
                        );
                    }
                }
                position += 1;
            })?;
        }
        Ok(splitter.finish()?)
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

    /// One watch, from opening to end; how long to wait before asking again.
    async fn watch(&mut self, options: WatchOptions) -> Duration {
        let started = self.env.clock.now();
        self.health.lock().phase = Phase::Watching;
        let mut events = 0;
        let ended = match self.env.clock.timeout(PATIENCE, self.source.watch(&options)).await {
            Err(_) => Ended::NotOpened(silent()),
            Ok(Err(error)) => Ended::NotOpened(error),
            Ok(Ok(stream)) => {
                self.opened();
                let deadline = self.env.clock.now() + options.timeout + GRACE;
                match self.read_watch(stream, deadline, &mut events).await {
                    Ok(()) => Ended::Closed,
                    Err(error) => Ended::Failed(error),
                }
            }
        };
        let now = self.env.clock.now();
        let wait = self.plan.watch_ended(&ended, now - started, now);
        match &ended {
            Ended::NotOpened(error) => self.failed("cannot watch", error),
            // A connection that broke and is made anew at once is no failure.
            Ended::Failed(error) if !wait.is_zero() => self.failed("the watch failed", error),
            Ended::Failed(_) | Ended::Closed => {}
        }
        wait
    }

    async fn read_watch(
        &mut self,
        mut stream: ByteStream,
        deadline: Instant,
        events: &mut u64,
    ) -> Result<(), ApiError> {
        let mut splitter = WatchSplitter::default();
        while let Some(chunk) = self.next(&mut stream, deadline).await? {
            let mut told = None;
            let mut newest = None;
            let split = splitter.feed(&chunk, |line| {
                if told.is_some() {
                    return;
                }
                match line {
                    Ok(WatchLine { event: EventType::Error, object }) => {
                        told = Some(ApiError::from_event(object))
                    }
                    Ok(line) => {
                        self.metrics.event(&line.event);
                        if let Some(version) = self.event(line) {
                            *events += 1;
                            newest = Some(version);
                        }
                    }
                    Err(malformed) => {
                        let place = format!("event {events}");
                        self.env.reporter.error(
                            "reflector",
                            &self.name,
                            &BadObject { place, source: malformed.into() },
                        );
                    }
                }
            });
            // What was handed on counts, whatever came behind it: the next watch goes on from there.
            if let Some(version) = newest {
                self.plan.watched(&version);
                self.contact(&version);
            }
            if let Some(error) = told {
                return Err(error);
            }
            split?;
            // What has arrived is applied together, but not later than after so many chunks.
            tokio::task::consume_budget().await;
        }
        splitter.finish()?;
        Ok(())
    }

    /// Hands one event on; the version reached by it, or `None` where it could not be read.
    fn event(&mut self, line: WatchLine<'_>) -> Option<ResourceVersion> {
        if line.event == EventType::Bookmark {
            let bookmark: Result<Bookmark, _> = serde_json::from_slice(line.object);
            let version =
                bookmark.map(|bookmark| ResourceVersion::from(bookmark.metadata.resource_version.as_str()));
            return match version {
                Ok(version) if !version.is_unset() => {
                    self.sink.push(Delta::Bookmark(version.clone()));
                    Some(version)
                }
                _ => {
                    self.env.reporter.error("reflector", &self.name, &BadBookmark);
                    None
                }
            };
        }
        let object = match self.maker.make(line.object) {
            Ok(object) => object,
            Err(source) => {
                let place = format!("a {:?} event", line.event);
                self.env.reporter.error("reflector", &self.name, &BadObject { place, source });
                return None;
            }
        };
        let version = object.version().clone();
        self.sink.push(match line.event {
            EventType::Added => Delta::Added(object),
            EventType::Modified => Delta::Updated(object),
            EventType::Deleted => Delta::Deleted(Deleted::Final(object)),
            EventType::Bookmark | EventType::Error => return None,
            EventType::Unknown(event) => {
                self.env.reporter.error("reflector", &self.name, &UnknownEvent(event));
                return None;
            }
        });
        Some(version)
    }

    fn listed(&self, items: usize) {
        let reason = self.plan.reason();
        self.metrics.listed(reason, items);
        let mut health = self.health.lock();
        health.lists += 1;
        *health.lists_by_reason.entry(reason).or_default() += 1;
    }

    fn opened(&self) {
        let mut health = self.health.lock();
        health.watches += 1;
        health.last_contact = Some(self.env.clock.now());
        health.degraded = None;
    }

    fn contact(&self, version: &ResourceVersion) {
        let mut health = self.health.lock();
        health.version.clone_from(version);
        health.last_contact = Some(self.env.clock.now());
        health.degraded = None;
    }

    fn failed(&self, phase: &'static str, error: &ApiError) {
        let now = self.env.clock.now();
        let mut health = self.health.lock();
        let since = health.degraded.as_ref().map_or(now, |(since, _)| *since);
        health.degraded = Some((since, format!("{phase} {}: {error}", self.name)));
        drop(health);
        if error.class() == Class::Expired {
            tracing::debug!(reflector = self.name, "{phase}: {error}");
        } else {
            self.env.reporter.error("reflector", &self.name, &Failure { phase, error: error.to_string() });
        }
    }
}

fn silent() -> ApiError {
    ApiError::new(Class::Timeout, "the API server is silent")
}

#[derive(Debug, thiserror::Error)]
#[error("{phase}: {error}")]
struct Failure {
    phase: &'static str,
    error: String,
}

#[derive(Debug, thiserror::Error)]
#[error("skipped {place}")]
struct BadObject {
    place: String,
    #[source]
    source: IdentityError,
}

#[derive(Debug, thiserror::Error)]
#[error("skipped a bookmark without a resourceVersion")]
struct BadBookmark;

#[derive(Debug, thiserror::Error)]
#[error("skipped an event of the unknown type {0:?}")]
struct UnknownEvent(String);

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

impl<K: Kind, S, T> fmt::Debug for Reflector<K, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("name", &self.name).field("health", &*self.health.lock()).finish()
    }
}
