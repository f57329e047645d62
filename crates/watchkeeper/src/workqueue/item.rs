//! The guard of a key that a worker holds.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU64;
use std::time::Duration;

use super::keys::{Outcome, Remarks};
use super::known::{RunResult, message};
use super::priority::Priority;
use super::queue::{Taken, Ticket};
use super::rate_limiting::RateLimitingQueue;
use super::shared::release;
use super::tick::Tick;
use super::trigger::TriggerRecord;
use crate::clock::Instant;
use crate::object::ResourceVersion;

/// A key of a work queue: anything small that can be hashed, compared, cloned cheaply and displayed for debugging.
pub trait Key: Hash + Eq + Clone + Send + fmt::Debug + 'static {}

impl<T: Hash + Eq + Clone + Send + fmt::Debug + 'static> Key for T {}

/// A key handed out to one worker, and to no other until this is dropped.
///
/// The worker ends its work with one of the methods that take `self`. An item that is dropped without a result, by a
/// panic, a cancelled task or an early return, is added again as by [`retry_quietly`](Self::retry_quietly): no key is
/// lost unless the queue is shutting down, when nothing is added any more.
///
/// ```
/// # use std::time::Duration;
/// # use watchkeeper::Env;
/// # use watchkeeper::workqueue::{RateLimitingQueue, limiter};
/// # async fn sync(key: &str) -> Result<(), std::io::Error> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let queue = RateLimitingQueue::<&'static str>::new("foos", limiter::default_controller(), &Env::system());
/// # queue.add("default/web");
/// # let Some(item) = queue.get().await else { return };
/// match sync(item.key()).await {
///     Ok(()) => item.forget(),
///     Err(error) if item.attempts() < 5 => item.retry(error),
///     Err(error) => item.give_up(error),
/// }
/// # }
/// ```
#[must_use = "a dropped work item is retried: say what becomes of it"]
pub struct WorkItem<T: Key> {
    queue: RateLimitingQueue<T>,
    key: T,
    attempts: u32,
    priority: Priority,
    parked_since: Option<Tick>,
    remarks: Remarks,
    /// Taken when the worker finishes.
    ticket: Option<Ticket>,
}

impl<T: Key> WorkItem<T> {
    pub(super) fn new(queue: RateLimitingQueue<T>, taken: Taken<T>) -> Self {
        let Taken { ticket, key, priority, failures, parked_since } = taken;
        Self {
            queue,
            key,
            attempts: failures,
            priority,
            parked_since,
            remarks: Remarks::default(),
            ticket: Some(ticket),
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Returns the number of retries since the key last succeeded or was given up, at the time it was handed out.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the priority with which the key was handed out, which a retry keeps unless
    /// [`set_priority`](Self::set_priority) was called.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Sets the priority of the run that a retry of this one leads to.
    pub fn set_priority(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// Returns the time of the first [`park`](Self::park) since the last run of the key ended; `None` if it was not
    /// parked since.
    ///
    /// A worker can use this to limit the total time for which it parks a key.
    pub fn parked_since(&self) -> Option<Instant> {
        self.parked_since.map(|tick| self.queue.instant(tick))
    }

    /// Says which version of the key's object this run works on, for [`KeyRecord::last_run`](super::KeyRecord::last_run).
    pub fn saw(&mut self, version: &ResourceVersion) {
        self.remarks.saw = version.as_number().and_then(NonZeroU64::new);
    }

    /// Says more exactly how the run ends than the method that ends it.
    pub(crate) fn set_result(&mut self, result: RunResult) {
        self.remarks.result = Some(result);
    }

    /// Returns the triggers that led to this run, the newest first. A run that follows a [parking](Self::park) has those
    /// from before it, too.
    ///
    /// A queue keeps the last four triggers of a key, and those that come during a run displace older ones: ask when the
    /// run begins. Locks the queue briefly.
    ///
    /// ```
    /// # use watchkeeper::Env;
    /// # use watchkeeper::workqueue::{Priority, RateLimitingQueue, Reason, Trigger, limiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let queue = RateLimitingQueue::<&'static str>::new("foos", limiter::default_controller(), &Env::system());
    /// for version in ["7", "8"] {
    ///     let trigger = Trigger::itself(Reason::Changed, &version.into());
    ///     queue.add_because("default/web", Priority::Normal, trigger);
    /// }
    /// let item = queue.get().await.unwrap();
    /// let triggers = item.triggers();
    /// assert_eq!(triggers.len(), 1);
    /// assert_eq!(triggers[0].to_string(), "the object changed (version 8), 2 times");
    /// item.forget();
    /// # }
    /// ```
    pub fn triggers(&self) -> Vec<TriggerRecord> {
        let Some(ticket) = &self.ticket else { return Vec::new() };
        self.queue.0.with(|keys, _| keys.triggers(ticket))
    }

    /// Finishes successful work: the key's failures are forgotten.
    pub fn forget(mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (queue, now) = (&self.queue.0, self.queue.0.now());
        let mut state = queue.shared.begin(now);
        state.keys.succeed(ticket, self.remarks.saw, now);
        release(state);
    }

    /// Finishes failed work: reports `error` and adds the key again, rate limited.
    ///
    /// The failure counts once per backoff: a key that is added before its backoff is over, and fails again, does not
    /// wait longer.
    pub fn retry(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        let message = self.report(&*error.into());
        self.settle(Outcome::Failure(message));
    }

    /// Finishes work that failed in a way that usually resolves itself, such as a conflict with another writer: adds
    /// the key again, rate limited, and reports `reason` only if that does not help.
    ///
    /// The first three retries are not reported; the fourth is, and then each that doubles their number. The record of
    /// [`explain`](RateLimitingQueue::explain) has the reason from the first failure on.
    ///
    /// ```
    /// # use watchkeeper::Env;
    /// # use watchkeeper::wire::{ApiError, Class};
    /// # use watchkeeper::workqueue::{RateLimitingQueue, limiter};
    /// # async fn sync(key: &str) -> Result<(), ApiError> { Err(ApiError::new(Class::Conflict, "changed meanwhile")) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let queue = RateLimitingQueue::<&'static str>::new("foos", limiter::default_controller(), &Env::system());
    /// # queue.add("default/web");
    /// # let Some(item) = queue.get().await else { return };
    /// match sync(item.key()).await {
    ///     Ok(()) => item.forget(),
    ///     Err(error) if error.class() == Class::Conflict => item.retry_quietly(error),
    ///     Err(error) => item.retry(error),
    /// }
    /// let last = queue.explain(&"default/web").and_then(|record| record.last_error);
    /// assert!(last.is_some_and(|error| error.message.contains("changed meanwhile")));
    /// # }
    /// ```
    pub fn retry_quietly(mut self, reason: impl Into<Box<dyn Error + Send + Sync>>) {
        self.fail_quietly(reason.into());
    }

    fn fail_quietly(&mut self, source: Box<dyn Error + Send + Sync>) {
        let retries = self.settle(Outcome::Failure(message(&*source)));
        if retries >= LOUD && retries.is_power_of_two() {
            self.report(&KeepsFailing { retries, source });
        }
    }

    /// Finishes the work for now: the key's failures are forgotten, and it is added again after `delay`.
    pub fn retry_after(mut self, delay: Duration) {
        self.settle(Outcome::Success(Some(delay)));
    }

    /// Finishes failed work: reports `error`, forgets the key's failures, and adds it again after `delay`.
    pub fn retry_error_after(mut self, delay: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) {
        let message = self.report(&*error.into());
        self.settle(Outcome::FailureAfter(message, delay));
    }

    /// Finishes work that failed for good: reports `error`, forgets the key's failures and does not retry until the key
    /// is added again.
    pub fn give_up(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        let error = GivenUp { attempts: self.attempts, source: error.into() };
        self.report(&error);
        self.settle(Outcome::GivenUp(message(&*error.source)));
    }

    /// As [`give_up`](Self::give_up), for an error that an event tells: the event is logged, too.
    pub(crate) fn give_up_with_event(mut self, error: Box<dyn Error + Send + Sync>) {
        let error = GivenUp { attempts: self.attempts, source: error };
        self.queue.0.reporter.logged_error("workqueue", &self.subject(), &error);
        self.settle(Outcome::GivenUp(message(&*error.source)));
    }

    /// Returns the key to the queue because its work cannot begin yet, until it is
    /// [unparked](RateLimitingQueue::unpark) or added, and at most until `until`.
    ///
    /// This is neither a success nor a failure: the history of the key does not change, and no run is counted. The key
    /// becomes ready again once, by the first of these events, with the priority of this run or a higher one:
    ///
    /// - `until`, at once if that is not in the future;
    /// - [`unpark`](RateLimitingQueue::unpark), including one while the worker had the key, so that a worker can check
    ///   whether it has to wait and then park without missing a wake-up in between;
    /// - an add, including one while the worker had the key. The worker checks again, and parks again if it still has
    ///   to wait;
    /// - a delayed add that becomes due. A later one stays, as with a plain add.
    ///
    /// If the queue is shutting down, the key is dropped.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use watchkeeper::Env;
    /// # use watchkeeper::workqueue::{RateLimitingQueue, limiter};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let env = Env::simulated(1);
    /// # let queue = RateLimitingQueue::<&'static str>::new("foos", limiter::default_controller(), &env);
    /// queue.add("default/web");
    /// let item = queue.get().await.unwrap();
    /// // The cache does not have the last write of this key yet.
    /// item.park(env.clock.now() + Duration::from_secs(5));
    /// assert_eq!(queue.len(), 0);
    ///
    /// // Now it has.
    /// queue.unpark(&"default/web");
    /// let item = queue.get().await.unwrap();
    /// assert!(item.parked_since().is_some());
    /// item.forget();
    /// # }
    /// ```
    pub fn park(mut self, until: Instant) {
        if let Some(ticket) = self.ticket.take() {
            let until = self.queue.tick(until);
            self.queue.0.with(|keys, now| keys.park(ticket, self.priority, until, now));
        }
    }

    /// Reports `error`; returns its message, to be kept.
    fn report(&self, error: &(dyn Error + 'static)) -> Box<str> {
        self.queue.0.reporter.error("workqueue", &self.subject(), error);
        message(error)
    }

    fn subject(&self) -> String {
        format!("{} {:?}", self.queue.name(), self.key)
    }

    /// Returns the key; returns the number of retries in a row that this causes, zero for none.
    fn settle(&mut self, outcome: Outcome) -> u32 {
        let Some(ticket) = self.ticket.take() else { return 0 };
        self.queue.0.with(|keys, now| keys.settle(ticket, self.priority, outcome, self.remarks, now))
    }
}

impl<T: Key> Drop for WorkItem<T> {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        if std::thread::panicking() {
            // The code that catches the panic reports it.
            self.set_result(RunResult::Panic);
            self.settle(Outcome::Failure("the worker panicked".into()));
        } else {
            self.fail_quietly("dropped before anything was decided".into());
        }
    }
}

impl<T: Key> fmt::Debug for WorkItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkItem").field("queue", &self.queue.name()).field("key", &self.key).finish()
    }
}

/// The first retry in a row that is reported although the worker retries quietly. A power of two.
const LOUD: u32 = 4;

#[derive(Debug, thiserror::Error)]
#[error("still failing at retry {retries}")]
struct KeepsFailing {
    retries: u32,
    source: Box<dyn Error + Send + Sync>,
}

#[derive(Debug, thiserror::Error)]
#[error("dropped out of the queue after {attempts} retries")]
struct GivenUp {
    attempts: u32,
    source: Box<dyn Error + Send + Sync>,
}
