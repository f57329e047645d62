//! The record of a key: its state, and the outcome of its last runs.

use std::error::Error;
use std::num::NonZeroU64;
use std::time::Duration;

use super::priority::Priority;
use super::slots::Slot;
use super::state::KeyState;
use super::tick::Tick;
use super::trigger::TriggerRecord;
use crate::clock::Instant;
use crate::report::WithCauses;

/// The record of one key at one moment: the answer to "why is it not processed?".
///
/// Returned by [`RateLimitingQueue::explain`](super::RateLimitingQueue::explain). A key that was added again during
/// processing is both waiting and being processed; one of which only the last runs are known is neither.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRecord<T> {
    /// The key.
    pub key: T,
    /// Its state in one word.
    pub state: KeyState,
    /// The time since which it needs a run that has not begun.
    pub waiting_since: Option<Instant>,
    /// The time at which it will be added, after a delay or a backoff.
    pub delayed_until: Option<Instant>,
    /// Whether that is the end of the backoff after a failure, and no success came since.
    pub is_backing_off: bool,
    /// Whether that time is the one of a retry, also if a success came since the failure. The retry takes place all the
    /// same, as in client-go.
    pub is_due_by_retry: bool,
    /// The delay that the limiter gives to such a failure of this key alone, if the limiter
    /// [says so](super::RateLimiter::own_delay). A longer backoff comes from a limit on all keys together. Only in the
    /// answer of [`explain`](super::RateLimitingQueue::explain).
    pub own_backoff: Option<Duration>,
    /// The number of keys that are handed out before it, as far as is known now, if it waits. Only in the answer of
    /// [`explain`](super::RateLimitingQueue::explain).
    pub behind: Option<usize>,
    /// The time at which it becomes ready at the latest, if it is [parked](super::WorkItem::park) now.
    pub parked_until: Option<Instant>,
    /// The time of the first park since its last run.
    pub parked_since: Option<Instant>,
    /// The time since which a worker has it.
    pub worked_on_since: Option<Instant>,
    /// The number of that worker, from 1 on, if it is one of [`Workers`](crate::process::Workers).
    pub worker: Option<usize>,
    /// The priority of the waiting run; if none is waiting, of the current or the last one.
    pub priority: Priority,
    /// The number of retries since it last succeeded or was given up.
    pub retries: u32,
    /// The last failure.
    pub last_error: Option<LastError>,
    /// The time of the last success.
    pub last_success: Option<Instant>,
    /// The resource version that the last successful run worked on, if that is known; see [`LastRun::saw`].
    pub last_success_saw: Option<NonZeroU64>,
    /// The last run. Not known for keys that were only added without a [trigger](super::Trigger), and never failed.
    pub last_run: Option<LastRun>,
    /// Its last runs, the newest first, as far as they are among the last 2,048 runs of all keys of the queue. Only in the
    /// answer of [`explain`](super::RateLimitingQueue::explain), and of keys whose [last run](Self::last_run) is known.
    pub runs: Vec<PastRun>,
    /// Its last four triggers, the newest first. Adds for one run that differ only in the version of the object count
    /// as one.
    ///
    /// Empty unless keys are added with [`RateLimitingQueue::add_because`](super::RateLimitingQueue::add_because), as
    /// [`enqueue`](super::enqueue) does.
    pub triggers: Vec<TriggerRecord>,
}

/// A key at a glance, for lists of many.
pub(crate) struct Glance<T> {
    pub(crate) key: T,
    pub(crate) state: KeyState,
    pub(crate) failures: u32,
    /// Since when it is in this state.
    pub(crate) since: Option<Instant>,
    /// When it becomes ready.
    pub(crate) until: Option<Instant>,
}

/// The last run of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// The time at which it ended.
    pub ended: Instant,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub result: RunResult,
    /// The resource version that it worked on, if the worker [said so](super::WorkItem::saw) and it is a number.
    pub saw: Option<NonZeroU64>,
}

/// A run of a key, of which there may have been others since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastRun {
    /// The run.
    pub run: LastRun,
    /// The error and its causes if it failed; the first 200 bytes of them.
    pub error: Option<Box<str>>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunResult {
    /// Well.
    Success,
    /// Well, and the key runs again after a delay.
    RequeueAfter,
    /// With an error.
    Error,
    /// With an error that is not retried.
    Terminal,
    /// By a panic.
    Panic,
    /// It did not end in time.
    Timeout,
}

impl RunResult {
    /// All results, in the order of [`QueueFigures::results`](super::QueueFigures::results).
    pub const ALL: [Self; 6] =
        [Self::Success, Self::RequeueAfter, Self::Error, Self::Terminal, Self::Panic, Self::Timeout];

    /// Returns the result as a word: `success`, `requeueAfter`, `error`, `terminal`, `panic` or `timeout`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeueAfter",
            Self::Error => "error",
            Self::Terminal => "terminal",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
        }
    }
}

/// A failed run of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError<I = Instant> {
    /// The time at which the run ended.
    pub at: I,
    /// The error and its causes; the first 512 bytes of them.
    pub message: Box<str>,
}

/// The maximum length of a message.
const MESSAGE: usize = 512;
/// The end of a message that was longer.
const CUT: &str = "…";

/// Returns the message of an error, truncated.
pub(super) fn message(error: &(dyn Error + 'static)) -> Box<str> {
    let mut message = WithCauses(error).to_string();
    if message.len() > MESSAGE {
        message.truncate(message.floor_char_boundary(MESSAGE - CUT.len()));
        message.push_str(CUT);
    }
    message.into()
}

impl<T: Clone> Slot<T> {
    /// Returns the key at a glance; `None` for a free slot.
    pub(super) fn glance(&self, epoch: Instant) -> Option<Glance<T>> {
        let state = self.state();
        let ran = self.extra.as_ref().and_then(|extra| extra.last_run.as_ref()).map(|run| run.ended);
        let ended = ran.or(self.last_success);
        let (since, until) = match state {
            KeyState::Running => (self.started, None),
            KeyState::Waiting => (self.added, None),
            KeyState::Parked => (self.parked_since(), self.parked().map(|parking| parking.until)),
            KeyState::Retrying | KeyState::Delayed => (ended, self.due),
            _ => (ended, None),
        };
        let instant = |tick: Tick| tick.instant(epoch);
        let (since, until) = (since.map(instant), until.map(instant));
        Some(Glance { key: self.key.clone()?, state, failures: self.failures, since, until })
    }

    /// Returns the record of the key; `None` for a free slot.
    pub(super) fn record(&self, epoch: Instant) -> Option<KeyRecord<T>> {
        let instant = |tick: Tick| tick.instant(epoch);
        let error = self.last_error();
        Some(KeyRecord {
            key: self.key.clone()?,
            state: self.state(),
            waiting_since: self.added.map(instant),
            delayed_until: self.due.map(instant),
            is_backing_off: self.is_backing_off(),
            is_due_by_retry: self.due.is_some() && self.due_by_retry,
            own_backoff: None,
            behind: None,
            parked_until: self.parked().map(|parking| instant(parking.until)),
            parked_since: self.parked_since().map(instant),
            worked_on_since: self.started.map(instant),
            worker: self.started.and(Some(usize::from(self.worker)).filter(|number| *number > 0)),
            priority: self.priority,
            retries: self.failures,
            last_error: error
                .map(|error| LastError { at: instant(error.at), message: error.message.clone() }),
            last_success: self.last_success.map(instant),
            last_success_saw: self.extra.as_ref().and_then(|extra| extra.succeeded),
            last_run: self.extra.as_ref().and_then(|extra| extra.last_run.as_ref()).map(|run| run.at(epoch)),
            runs: Vec::new(),
            triggers: self.extra.as_ref().map_or_else(Vec::new, |extra| extra.triggers.records(epoch)),
        })
    }
}
