//! The work queue of a controller: delays, per-key backoff, and a guard for each key handed out.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::item::{Key, WorkItem};
use super::keys::Keys;
use super::known::KeyRecord;
use super::limiter::RateLimiter;
use super::metrics::{QueueFigures, QueueMetrics};
use super::priority::Priority;
use super::queue::Queue;
use super::shared::{Shared, Time};
use super::tick::Tick;
use crate::clock::{Clock, Instant};
use crate::env::Env;
use crate::report::Reporter;

/// Of how many idle keys a queue remembers how their last runs ended, unless told otherwise: some 2 MB of them.
const KEPT: usize = 16_384;

/// How many slots are looked at under one lock when all are asked for.
const BATCH: usize = 256;

/// A fair work queue with delayed and rate limited adds.
///
/// - *Fair*: keys are handed out in the order in which they became ready; those of a higher [`Priority`] first, and none is starved.
/// - *Stingy*: adds of a key that waits collapse into one run; a key is never with two workers at once; one added while it is worked on is
///   handed out once more, after that.
/// - *Safe*: a key handed out is a [`WorkItem`], and goes back to the queue if it is dropped, so that no key is lost to a panic or
///   a cancelled task.
///
/// Clones share the queue. Only [`get`](Self::get) and [`shut_down_with_drain`](Self::shut_down_with_drain) wait; all else is short and
/// may be called from anywhere, in particular from event handlers. The queue runs no task of its own: a waiting `get` keeps the time, and
/// whatever became due while no one waited takes its place in the order by its due time.
///
/// A `get` after [`shut_down`](Self::shut_down) still hands out what was ready: workers that shall stop with the program look at its stop,
/// too, as those of [`run_workers`](crate::process::run_workers) do.
///
/// ```
/// use watchkeeper::workqueue::{RateLimitingQueue, limiter};
/// use watchkeeper::{Env, ObjectName};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = RateLimitingQueue::<ObjectName>::new("foos", limiter::default_controller(), &Env::system());
/// queue.add(ObjectName::namespaced("default", "web"));
/// queue.add(ObjectName::namespaced("default", "web"));
/// queue.shut_down();
///
/// let mut runs = 0;
/// while let Some(item) = queue.get().await {
///     assert_eq!(item.key().name(), "web");
///     runs += 1;
///     item.forget();
/// }
/// assert_eq!(runs, 1);
/// # }
/// ```
pub struct RateLimitingQueue<T: Key>(pub(super) Arc<Inner<T>>);

pub(super) struct Inner<T: Key> {
    name: Box<str>,
    pub(super) reporter: Reporter,
    time: QueueTime,
    pub(super) shared: Shared<T>,
}

/// A clock that counts from the birth of the queue.
struct QueueTime {
    clock: Clock,
    epoch: Instant,
}

impl Time for QueueTime {
    fn now(&self) -> Tick {
        Tick::at(self.clock.now(), self.epoch)
    }

    fn sleep_until(&self, due: Tick) -> impl Future<Output = ()> + Send {
        self.clock.sleep_until(due.instant(self.epoch))
    }
}

impl<T: Key> RateLimitingQueue<T> {
    /// A queue called `name` in reports and metrics.
    pub fn new(name: &str, limiter: impl RateLimiter<T>, env: &Env) -> Self {
        Self::remembering(KEPT, name, limiter, env)
    }

    /// A queue that remembers of `kept` idle keys how their last runs ended; [`new`](Self::new) remembers 16,384.
    pub fn remembering(kept: usize, name: &str, limiter: impl RateLimiter<T>, env: &Env) -> Self {
        let epoch = env.clock.now();
        let queue = Queue::new(kept, env.generator.fork(name).hasher());
        Self(Arc::new(Inner {
            name: name.into(),
            reporter: env.reporter.clone(),
            time: QueueTime { clock: env.clock.clone(), epoch },
            shared: Shared::new(Keys::new(queue, Box::new(limiter), epoch)),
        }))
    }

    /// The name given to the queue.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Marks `item` as in need of a run. Collapses with an add that still waits; is ignored once the queue shuts down.
    pub fn add(&self, item: T) {
        self.add_with(item, Priority::Normal);
    }

    /// As [`add`](Self::add), with a priority. A key that waits keeps the highest of those it was added with.
    pub fn add_with(&self, item: T, priority: Priority) {
        self.0.with(|keys, now| keys.add(item, priority, now));
    }

    /// Adds `item` after `delay`, at once if that is zero.
    ///
    /// Of several delayed adds of one key the earliest counts; a plain [`add`](Self::add) leaves it standing, and so does a
    /// [park](WorkItem::park). Is ignored once the queue shuts down, and a shutdown drops what is not due yet.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.0.with(|keys, now| keys.add_after(item, delay, now));
    }

    /// Adds `item` when the limiter says so; counts as a failure of the key.
    pub fn add_rate_limited(&self, item: T) {
        self.0.with(|keys, now| keys.add_rate_limited(item, now));
    }

    /// Makes `item` ready if it is [parked](WorkItem::park), and keeps it from becoming ready a second time when the parking would have ended.
    /// Is no add: if `item` is not parked, nothing happens.
    ///
    /// If a worker has the key, this is remembered until the worker gives it back, and has an effect only if it parks the key: it is then
    /// ready at once. So no wake-up is lost between a worker's look and its park.
    pub fn unpark(&self, item: &T) {
        self.0.with(|keys, now| keys.unpark(item, now));
    }

    /// Forgets the failures of `item`. Does not touch the queue itself.
    pub fn forget(&self, item: &T) {
        self.0.with(|keys, _| keys.forget(item));
    }

    /// How often `item` was added rate limited since it was last forgotten.
    pub fn retries(&self, item: &T) -> u32 {
        self.explain(item).map_or(0, |record| record.retries)
    }

    /// How many keys wait for a worker. Keys that are with a worker, parked or not yet due do not count.
    pub fn len(&self) -> usize {
        self.0.with(|keys, _| keys.queue.len())
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of `item`: where it is, since when, and how its last runs ended.
    ///
    /// `None` for a key that has nothing to wait for and was never worked on, or so long ago that others took its place.
    pub fn explain(&self, item: &T) -> Option<KeyRecord<T>> {
        self.0.with(|keys, _| keys.explain(item))
    }

    /// What is known of every key, in no order.
    ///
    /// The queue goes on meanwhile: each record is true for the moment in which the iterator came to it.
    pub fn records(&self) -> impl Iterator<Item = KeyRecord<T>> {
        let batch = |start| self.0.with(|keys, _| keys.records(start, BATCH));
        (0..).step_by(BATCH).map_while(batch).flatten()
    }

    /// The queue for an exporter of metrics, which it does not keep alive.
    ///
    /// ```
    /// # use watchkeeper::workqueue::{RateLimitingQueue, limiter};
    /// # use watchkeeper::Env;
    /// let queue = RateLimitingQueue::<&'static str>::new("foos", limiter::default_controller(), &Env::system());
    /// queue.add("default/web");
    /// let metrics = queue.metrics().upgrade().unwrap();
    /// assert_eq!((metrics.name(), metrics.figures().adds), ("foos", 1));
    /// ```
    pub fn metrics(&self) -> Weak<dyn QueueMetrics> {
        let weak: Weak<Inner<T>> = Arc::downgrade(&self.0);
        weak
    }

    /// Waits for the key that is next, and hands it out. `None` once the queue is shut down and nothing waits in it.
    ///
    /// Cancel-safe: a key leaves the queue only when this returns, and a wake-up that reached a cancelled `get` goes to another.
    pub async fn get(&self) -> Option<WorkItem<T>> {
        let taken = self.0.shared.get(&self.0.time).await?;
        Some(WorkItem::new(self.clone(), taken))
    }

    /// Refuses every add from now on, and drops what is not due yet or parked. Returns at once.
    ///
    /// [`get`](Self::get) still hands out what waits, also a key that was added while it was worked on, and then returns `None`.
    /// Whoever waits in [`shut_down_with_drain`](Self::shut_down_with_drain) is released.
    pub fn shut_down(&self) {
        self.0.shared.shut_down(self.0.time.now(), false);
    }

    /// As [`shut_down`](Self::shut_down), then waits until no key is with a worker, or until someone calls `shut_down`.
    ///
    /// What still waits in the queue does not delay it: it is up to the workers to go on until [`get`](Self::get) returns `None`.
    /// Nothing happens before the first poll. Cancel-safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.0.shared.shut_down(self.0.time.now(), true);
        self.0.shared.drained().await;
    }

    /// Whether the queue was shut down, with or without a drain.
    pub fn is_shutting_down(&self) -> bool {
        self.0.with(|keys, _| keys.queue.is_shutting_down())
    }
}

impl<T: Key> RateLimitingQueue<T> {
    pub(super) fn tick(&self, time: Instant) -> Tick {
        Tick::at(time, self.0.time.epoch)
    }

    pub(super) fn instant(&self, tick: Tick) -> Instant {
        tick.instant(self.0.time.epoch)
    }
}

impl<T: Key> Inner<T> {
    /// Runs one operation under the lock, after letting in what is due.
    pub(super) fn with<R>(&self, operation: impl FnOnce(&mut Keys<T>, Tick) -> R) -> R {
        let now = self.time.now();
        self.shared.with(now, |state| operation(&mut state.keys, now))
    }
}

impl<T: Key> QueueMetrics for Inner<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn figures(&self) -> QueueFigures {
        self.with(|keys, now| keys.figures(now))
    }
}

impl<T: Key> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Key> fmt::Debug for RateLimitingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitingQueue").field("name", &self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
