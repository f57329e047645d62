//! Writing of events to the API server: one after the other, retried while the server is away.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kube_core::params::Patch;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::broadcaster::EventStream;
use super::correlator::EventKey;
use super::counts::Counters;
use super::occurrence::Occurrence;
use crate::clock::Instant;
use crate::env::Env;
use crate::object::{Kind, ObjectName};
use crate::source::Requests;
use crate::wire::{ApiError, Class};

/// Decides what to write, from the state on the server. It is plain state; the [`Writer`] around it does the IO.
pub(super) trait Correlation: Send {
    /// The kind of Event that it writes.
    type Event: Kind<DynamicType = ()> + Serialize;

    /// Records an event.
    fn observe(&mut self, event: &Occurrence, now: Instant) -> Decision<Self::Event>;

    /// Records that a job is done.
    fn written(&mut self, job: &Job<Self::Event>) {
        let _ = job;
    }

    /// Returns when to call [`Correlation::tick`] next.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Returns the writes that have become due.
    fn tick(&mut self, now: Instant) -> Vec<Job<Self::Event>> {
        let _ = now;
        Vec::new()
    }

    /// Returns the remaining writes, after the last event.
    fn flush(&mut self) -> Vec<Job<Self::Event>> {
        Vec::new()
    }
}

/// The decision about an event.
#[derive(Debug)]
pub(super) enum Decision<E> {
    /// Write this.
    Write(Vec<Job<E>>),
    /// Write nothing: a later write will include it.
    Hold,
    /// Write nothing: there are too many.
    Filter,
}

/// One write.
#[derive(Debug)]
pub(super) struct Job<E> {
    pub(super) key: EventKey,
    /// The new state of the Event.
    pub(super) event: E,
    /// The patch to that state, if the Event may already be on the server.
    pub(super) patch: Option<Value>,
}

/// Performs the writes of its correlation.
pub(super) struct Writer<L> {
    pub(super) correlation: L,
    pub(super) requests: Requests,
    pub(super) env: Env,
    pub(super) counters: Arc<Counters>,
    pub(super) grace: Duration,
}

/// The number of tries for one event; a refused one is not repeated.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_secs(10);
/// The maximum delay between two tries, whatever the server asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[error("stopped before {0} or more events could be written")]
struct Unwritten(usize);

impl<L: Correlation> Writer<L> {
    /// Writes `events` until there are no more; or until `stop`, and then for the grace period those recorded before
    /// it.
    pub(super) async fn run(mut self, mut events: EventStream, stop: CancellationToken) {
        let (clock, grace) = (self.env.clock.clone(), self.grace);
        let patience = async {
            stop.cancelled().await;
            clock.sleep(grace).await;
        };
        tokio::select! {
            biased;
            () = self.work(&mut events, &stop) => return,
            () = patience => {}
        }
        let left = events.waiting() + 1;
        self.counters.failed.fetch_add(left as u64, Relaxed);
        self.env.reporter.error("events", "sink", &Unwritten(left));
    }

    async fn work(&mut self, events: &mut EventStream, stop: &CancellationToken) {
        loop {
            let due = self.correlation.due();
            let jobs = tokio::select! {
                biased;
                () = until(due, &self.env) => self.correlation.tick(self.env.clock.now()),
                event = events.recv_until(stop) => match event {
                    Some(event) => self.observe(&event),
                    None => break,
                },
            };
            self.write_all(jobs, stop).await;
        }
        let jobs = self.correlation.flush();
        self.write_all(jobs, stop).await;
    }

    fn observe(&mut self, event: &Occurrence) -> Vec<Job<L::Event>> {
        let now = self.env.clock.now();
        // The functions that compare events may be user code.
        let decision =
            self.env.reporter.guard("events", &event.name, || self.correlation.observe(event, now));
        match decision {
            Some(Decision::Write(jobs)) => return jobs,
            Some(Decision::Hold) => {}
            Some(Decision::Filter) => drop(self.counters.filtered.fetch_add(1, Relaxed)),
            None => drop(self.counters.failed.fetch_add(1, Relaxed)),
        }
        Vec::new()
    }

    async fn write_all(&mut self, jobs: Vec<Job<L::Event>>, stop: &CancellationToken) {
        for job in jobs {
            match self.write(&job, stop).await {
                Ok(()) => {
                    self.correlation.written(&job);
                    self.counters.written.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    self.counters.failed.fetch_add(1, Relaxed);
                    self.give_up(&job, &error);
                }
            }
        }
    }

    /// Retries until the server has decided; after `stop` only once.
    async fn write(&self, job: &Job<L::Event>, stop: &CancellationToken) -> Result<(), ApiError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Err(error) = self.attempt(job).await else { return Ok(()) };
            match error.class() {
                // An earlier try succeeded, and only its answer was lost.
                Class::AlreadyExists if job.patch.is_none() && tries > 1 => return Ok(()),
                // Another writer has just created it again, so it can be patched.
                Class::AlreadyExists if job.patch.is_some() => {}
                _ if may_pass(&error) => {}
                _ => return Err(error),
            }
            if tries == TRIES || stop.is_cancelled() {
                return Err(error);
            }
            // All recorders of a cluster wake up together after an outage, so the first delay is random.
            let pause = if tries == 1 { PAUSE.mul_f64(self.env.generator.unit()) } else { PAUSE };
            let asked_for = error.retry_after().unwrap_or_default().min(LONGEST_PAUSE);
            stop.run_until_cancelled(self.env.clock.sleep(pause.max(asked_for))).await;
        }
    }

    /// Patches an Event that should be on the server, and creates one that is not, or no longer.
    async fn attempt(&self, job: &Job<L::Event>) -> Result<(), ApiError> {
        let events = self.requests.api::<L::Event>();
        if let Some(patch) = &job.patch {
            let patched = events.patch_unread(&name_of(&job.event), &Patch::Strategic(patch)).await;
            match patched {
                Err(error) if error.is_not_found() => {}
                answer => return answer,
            }
        }
        events.create_unread(&job.event).await
    }

    fn give_up(&self, job: &Job<L::Event>, error: &ApiError) {
        let name = name_of(&job.event).to_string();
        let in_dying_namespace =
            error.class() == Class::Forbidden && error.message().contains("being terminated");
        if in_dying_namespace || error.class() == Class::AlreadyExists {
            // There is no remedy.
            tracing::debug!(event = name, %error, "the event was not written");
        } else {
            self.env.reporter.error("events", &name, error);
        }
    }
}

fn name_of<E: Kind>(event: &E) -> ObjectName {
    let meta = event.meta();
    ObjectName::namespaced(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// Returns whether the server has not decided about the event. An internal error is a decision, for example of a broken
/// admission webhook, unless it asks for a retry: one event that the server cannot take must not delay all others.
fn may_pass(error: &ApiError) -> bool {
    match error.class() {
        Class::ConnectionRefused
        | Class::Unreachable
        | Class::ConnectionLost
        | Class::Timeout
        | Class::TooManyRequests
        | Class::Undecodable => true,
        Class::Other => error.retry_after().is_some() || error.code().is_none_or(|code| code > 500),
        _ => false,
    }
}

async fn until(due: Option<Instant>, env: &Env) {
    match due {
        Some(due) => env.clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
