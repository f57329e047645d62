//! What does a worker hold in its hands? A key that is its alone until it decides what becomes of it.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::keys::Outcome;
use super::known::message;
use super::priority::Priority;
use super::queue::{Taken, Ticket};
use super::rate_limiting::RateLimitingQueue;
use super::tick::Tick;
use crate::clock::Instant;

/// What can be a key of a work queue: anything small that can be hashed, compared, cloned cheaply and printed.
pub trait Key: Hash + Eq + Clone + Send + fmt::Debug + 'static {}

impl<T: Hash + Eq + Clone + Send + fmt::Debug + 'static> Key for T {}

/// A key handed out to one worker, and to no other until this is gone.
///
/// The worker ends its work with one of the methods that take `self`. An item that is dropped undecided, by a panic, a cancelled task or an
/// early return, is added again as by [`retry_quietly`](Self::retry_quietly): no key is lost unless the queue is shutting down, when nothing
/// is added any more.
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
    /// Taken when the worker decides.
    ticket: Option<Ticket>,
}

impl<T: Key> WorkItem<T> {
    pub(super) fn new(queue: RateLimitingQueue<T>, taken: Taken<T>) -> Self {
        let Taken { ticket, key, priority, failures, parked_since } = taken;
        Self { queue, key, attempts: failures, priority, parked_since, ticket: Some(ticket) }
    }

    /// The key to work on.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// How often the key was retried since it last succeeded or was given up, when it was handed out.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// With which priority the key was handed out. A retry keeps it.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Since when the key is put off by [`park`](Self::park) again and again: the time of the first one. `None` if the key was not parked
    /// since a run of it last ended.
    ///
    /// So a worker can put an upper bound on the time for which it parks.
    pub fn parked_since(&self) -> Option<Instant> {
        self.parked_since.map(|tick| self.queue.instant(tick))
    }

    /// The work is done: the key's failures are forgotten.
    pub fn forget(mut self) {
        self.settle(Outcome::Success(None));
    }

    /// The work failed: reports `error` and adds the key again, rate limited.
    ///
    /// The failure counts once per backoff: a key that is added before its backoff is over, and fails again, does not wait longer for it.
    pub fn retry(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        let message = self.report(&*error.into());
        self.settle(Outcome::Failure(message));
    }

    /// The work failed in a way that mends itself as a rule, such as a conflict with another writer: adds the key again, rate limited, and
    /// reports `reason` only if that does not help.
    ///
    /// The first three retries are not reported; the fourth is, and from then on each that doubles their number. What
    /// [`explain`](RateLimitingQueue::explain) tells has the reason from the first failure on.
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

    /// The work is done for now: the key's failures are forgotten, and it is added again after `delay`.
    pub fn retry_after(mut self, delay: Duration) {
        self.settle(Outcome::Success(Some(delay)));
    }

    /// The work failed for good: reports `error`, forgets the key's failures and does not try again until the key is next added.
    pub fn give_up(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        let message = self.report(&GivenUp { attempts: self.attempts, source: error.into() });
        self.settle(Outcome::GivenUp(message));
    }

    /// The work cannot begin yet, because it waits for something outside the queue: gives the key back until it is
    /// [unparked](RateLimitingQueue::unpark) or added, or until the time `until` at the latest.
    ///
    /// This is neither a success nor a failure. What is known of the key's runs stays as it is, and no run is counted. The key becomes ready
    /// again once, by whatever comes first, with the priority of this run or a higher one:
    ///
    /// - `until`, at once if that is not in the future;
    /// - [`unpark`](RateLimitingQueue::unpark), also one that came while the worker had the key, so the worker can look whether it has to
    ///   wait and then park without missing a wake-up in between;
    /// - an add, also one that came while the worker had the key. The worker looks again, and parks again if it still has to wait;
    /// - a delayed add that becomes due. One that is due later stands, as it does beside a plain add.
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
        let subject = format!("{} {:?}", self.queue.name(), self.key);
        self.queue.0.reporter.error("workqueue", &subject, error);
        message(error)
    }

    /// Gives the key back; returns which retry in a row this brings about, zero for none.
    fn settle(&mut self, outcome: Outcome) -> u32 {
        let Some(ticket) = self.ticket.take() else { return 0 };
        self.queue.0.with(|keys, now| keys.settle(ticket, self.priority, outcome, now))
    }
}

impl<T: Key> Drop for WorkItem<T> {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        if std::thread::panicking() {
            // Whoever catches the panic reports it.
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

/// The first retry in a row that is reported though the worker retried quietly. A power of two.
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
