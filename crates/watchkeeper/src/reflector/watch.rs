//! Watches: opens one, reads it to its end, and checks it while it is silent.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;

use super::health::{Cause, Phase, SharedHealth};
use super::initial::Initial;
use super::plan::{Due, Ended, Probed, SetBack, VERY_SHORT};
use super::run::{PATIENCE, Reflector, silent};
use super::verify::Differs;
use crate::clock::{Clock, Instant};
use crate::object::{Kind, ResourceVersion};
use crate::source::{ByteStream, ListOptions, ListerWatcher, WatchOptions};
use crate::wire::{ApiError, BadEvent, Class, ListSplitter, WatchEventType, WatchLine, WatchSplitter};

/// A watch that lasts this much longer than its timeout is dead.
const GRACE: Duration = Duration::from_secs(15);
/// The maximum wait for the next chunk of a streamed list, and for its end after the first change.
const STREAM_PATIENCE: Duration = Duration::from_secs(30);
/// A watch that ends by so much before its timeout has still ended at its time.
const EARLY: Duration = Duration::from_secs(1);

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Reads one watch from opening to end, with or without a list at its beginning. Returns the delay before the next
    /// request.
    pub(super) async fn watch(&mut self, options: WatchOptions) -> Duration {
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
                    Err(Broken::Failed(error)) => Ended::Failed(error),
                    Err(Broken::Differs) => Ended::Differs,
                }
            }
        };
        if let Ended::NotOpened(error) = &ended
            && self.is_gone(error).await
        {
            return self.park();
        }
        let now = self.env.clock.now();
        let (was_watching, was_polling) = (!self.plan.is_streaming_list(), self.plan.is_polling());
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
            Ended::NotOpened(error) if self.plan.is_polling() && ended.is_refused() => {
                self.polled(error, !was_polling)
            }
            Ended::NotOpened(error) => self.failed("cannot watch", error),
            Ended::Failed(error) => self.failed("the watch failed", error),
            Ended::Closed | Ended::TimedOut | Ended::Differs if wait.is_zero() => {}
            Ended::Closed | Ended::TimedOut | Ended::Differs => {
                self.degrade(Cause::Failing, "the watch failed", "closed at once, without anything new")
            }
        }
        wait
    }

    async fn read_watch(&mut self, mut stream: ByteStream, options: &WatchOptions) -> Result<(), Broken> {
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
                step = self.verifier.next(&self.env.clock), if is_watching => {
                    self.verify(step)?;
                    continue;
                }
                never = lasting(&self.health, &self.name, &self.env.clock, opened), if is_watching && !is_proven => match never {},
                () = self.env.clock.sleep_until(wake_at) => match due {
                    Some((at, Due::Probe)) if at < deadline => {
                        self.plan.history.probe();
                        probe = Some(self.probe());
                        continue;
                    }
                    _ => return Err(silent().into()),
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
                return Err(error.into());
            }
            split.map_err(ApiError::from)?;
            if self.verifier.has_caught_up(self.plan.history.last()) {
                self.judge()?;
            }
            // Chunks that have arrived are applied together, up to a number of chunks or bytes.
            self.queue.room().await;
            crate::fair::give_way().await;
        }
        splitter.finish().map_err(ApiError::from)?;
        match initial {
            Some(_) => Err(ApiError::new(Class::ConnectionLost, "the list was closed before its end").into()),
            None => Ok(()),
        }
    }

    /// Asks for the server's version with the smallest possible list, beside the watch.
    fn probe(&self) -> BoxFuture<'static, Result<ResourceVersion, ApiError>> {
        let (queue, question) = (self.queue.clone(), self.queue.asking());
        let (source, clock, cap) = (self.source.clone(), self.env.clock.clone(), self.options.object_cap);
        Box::pin(async move {
            let one = ListOptions { limit: 1, ..ListOptions::default() };
            let read = async {
                let mut stream = source.list(&one).await?;
                let mut splitter = ListSplitter::with_cap(cap);
                while let Some(chunk) = stream.next().await {
                    splitter.feed(&chunk?, |_| {})?;
                }
                let version = splitter.finish()?.version;
                queue.answered(question, &version);
                Ok(version)
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
            (Probed::Quiet, _) => self.quiet(),
            (Probed::GoOn, Err(error)) => {
                tracing::debug!(reflector = self.name, "cannot ask for the server's version: {error}");
            }
            (Probed::GoOn | Probed::Unknown, _) => {}
        }
        Ok(())
    }

    /// Counts that the server's history was rewritten, and returns the error that says so and leads to a list.
    pub(super) fn set_back(&self, set_back: &SetBack) -> ApiError {
        self.options.metrics.history_rewritten();
        self.health.lock().rewritten += 1;
        ApiError::new(Class::VersionTooLarge, set_back.to_string())
    }

    fn opened(&mut self) {
        self.plan.watch_opened(self.env.clock.now());
        let mut health = self.health.lock();
        health.watches += 1;
        health.last_contact = Some(self.env.clock.now());
    }
}

/// Waits for the answer to a probe, if one was sent.
async fn answer_of(
    probe: &mut Option<BoxFuture<'static, Result<ResourceVersion, ApiError>>>,
) -> Result<ResourceVersion, ApiError> {
    match probe {
        Some(probe) => probe.await,
        None => std::future::pending().await,
    }
}

/// Clears a failure of watches once this one has lasted, even if it delivered nothing. Cancel-safe.
async fn lasting(health: &SharedHealth, name: &str, clock: &Clock, opened: Instant) -> Infallible {
    clock.sleep_until(opened + VERY_SHORT).await;
    health.lasts(name, clock);
    std::future::pending().await
}

/// The reason why a watch is not read to its end.
enum Broken {
    Failed(ApiError),
    /// The cache differs from the server.
    Differs,
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<Differs> for Broken {
    fn from(_: Differs) -> Self {
        Self::Differs
    }
}
