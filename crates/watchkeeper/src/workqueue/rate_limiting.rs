//! The work queue of a controller: delays, per-key backoff, and a guard for each key handed out.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::item::{Key, WorkItem};
use super::keys::Keys;
use super::known::{Glance, KeyRecord};
use super::limiter::RateLimiter;
use super::metrics::{QueueFigures, QueueMetrics};
use super::priority::Priority;
use super::queue::Queue;
use super::shared::{Shared, Time, release};
use super::slots::Slot;
use super::state::KeyState;
use super::tick::Tick;
use super::trigger::Trigger;
use crate::clock::{Clock, Instant};
use crate::env::Env;
use crate::report::Reporter;

/// The default number of remembered idle keys, each of which takes 264 bytes and its name.
const KEPT: usize = 16_384;

/// The number of slots that are read under one lock when all are requested.
const BATCH: usize = 256;

/// The number of slots whose states are counted under one lock.
const COUNTED: usize = 4_096;

/// A fair work queue with delayed and rate limited adds.
///
/// - *Fair*: keys are handed out in FIFO order within a [`Priority`]; higher priorities first, and none is starved.
/// - *Stingy*: adds of a waiting key collapse into one run; a key is never with two workers at once; one added during
///   processing is handed out once more, afterwards.
/// - *Safe*: a key handed out is a [`WorkItem`], and goes back to the queue if it is dropped, so that no key is lost to
///   a panic or a cancelled task.
///
/// Clones share the queue. Only [`get`](Self::get) and [`shut_down_with_drain`](Self::shut_down_with_drain) wait; all
/// other methods are short and may be called from anywhere, in particular from event handlers. The queue has no
/// background task: a waiting `get` runs the timer, and keys that become due while no `get` waits are ordered by their
/// due time.
///
/// After [`shut_down`](Self::shut_down), `get` still hands out ready keys: workers that are to stop with the program
/// must check its stop token, too, as those of [`run_workers`](crate::process::run_workers) do.
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

/// A clock that counts from the creation of the queue.
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
    /// Returns a queue called `name` in reports and metrics.
    pub fn new(name: &str, limiter: impl RateLimiter<T>, env: &Env) -> Self {
        Self::remembering(KEPT, name, limiter, env)
    }

    /// Returns a queue that remembers the last runs of `kept` idle keys; [`new`](Self::new) remembers 16,384.
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

    /// Returns the name of the queue.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Marks `item` as in need of a run. Collapses with an add that is still waiting; ignored once the queue shuts
    /// down.
    pub fn add(&self, item: T) {
        self.add_with(item, Priority::Normal);
    }

    /// Adds `item` with a priority. A waiting key keeps the highest one that it was added with.
    pub fn add_with(&self, item: T, priority: Priority) {
        let now = self.0.time.now();
        let mut state = self.0.shared.begin(now);
        state.keys.add(item, priority, now);
        release(state);
    }

    /// Adds `item` as [`add_with`](Self::add_with) does, and records why: see [`WorkItem::triggers`] and
    /// [`KeyRecord::triggers`].
    ///
    /// From the first `add_because` on, the queue also records retries, delayed adds and the ends of parkings.
    pub fn add_because(&self, item: T, priority: Priority, mut trigger: Trigger) {
        let now = self.0.time.now();
        let mut state = self.0.shared.begin(now);
        state.keys.add_because(item, priority, &mut trigger, now);
        release(state);
    }

    /// Adds `item` after `delay`, at once if that is zero.
    ///
    /// Of several delayed adds of one key the earliest counts; neither a plain [`add`](Self::add) nor a
    /// [park](WorkItem::park) changes it. Ignored once the queue shuts down; a shutdown drops the keys that are not due
    /// yet.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.0.with(|keys, now| keys.add_after(item, delay, now));
    }

    /// Adds `item` after the limiter's delay; counts as a failure of the key.
    pub fn add_rate_limited(&self, item: T) {
        self.0.with(|keys, now| keys.add_rate_limited(item, now));
    }

    /// Makes `item` ready if it is [parked](WorkItem::park), and prevents a second wake-up at the end of the parking.
    /// This is not an add: if `item` is not parked, nothing happens.
    ///
    /// If a worker has the key, this is remembered until the worker returns it, and takes effect only if the worker
    /// parks the key, which is then ready at once. So no wake-up is lost between a worker's check and its park.
    pub fn unpark(&self, item: &T) {
        self.0.with(|keys, now| keys.unpark(item, now));
    }

    /// Forgets the failures of `item`. Does not change the queue itself.
    pub fn forget(&self, item: &T) {
        self.0.with(|keys, _| keys.forget(item));
    }

    /// Returns the number of rate limited adds of `item` since it was last forgotten.
    pub fn retries(&self, item: &T) -> u32 {
        self.0.with(|keys, _| keys.slot(item).map_or(0, |slot| slot.failures))
    }

    /// Returns the number of keys that wait for a worker, without those that are with a worker, parked or not yet due.
    pub fn len(&self) -> usize {
        self.0.with(|keys, _| keys.queue.len())
    }

    /// Returns whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the record of `item`: its state, since when, and the outcome of its last runs. If it waits, the keys before
    /// it are counted, which takes as long as there are.
    ///
    /// `None` for a key with nothing pending that was never processed, or so long ago that it was forgotten.
    pub fn explain(&self, item: &T) -> Option<KeyRecord<T>> {
        self.0.with(|keys, _| keys.explain(item))
    }

    /// As [`explain`](Self::explain), without the number of keys before it and without its runs, which takes no longer for
    /// a long queue.
    pub(crate) fn brief(&self, item: &T) -> Option<KeyRecord<T>> {
        self.0.with(|keys, _| keys.brief(item))
    }

    /// Returns the state of `item`; none if the queue does not know it.
    pub(crate) fn state(&self, item: &T) -> Option<KeyState> {
        self.0.with(|keys, _| keys.slot(item).map(Slot::state))
    }

    /// Returns the first `count` keys with a worker, the one that has had it for longest first, and since when.
    pub(crate) fn running(&self, count: usize) -> Vec<(T, Instant)> {
        self.0.with(|keys, _| keys.running(count))
    }

    /// Returns whether the history of an idle key was ever dropped, as there were too many.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.0.with(|keys, _| keys.queue.has_forgotten())
    }

    /// Keeps those of `items` that the queue does not know.
    pub(crate) fn retain_unknown(&self, items: &mut Vec<T>) {
        let mut unknown = Vec::new();
        for batch in items.chunks(COUNTED) {
            self.0.with(|keys, _| unknown.extend(batch.iter().map(|item| keys.slot(item).is_none())));
        }
        let mut unknown = unknown.into_iter();
        items.retain(|_| unknown.next().unwrap_or(true));
    }

    /// Iterates over the records of all keys, in no particular order.
    ///
    /// The queue goes on meanwhile: each record is true for the moment at which the iterator reads it.
    pub fn records(&self) -> impl Iterator<Item = KeyRecord<T>> {
        let batch = |start| self.0.with(|keys, _| keys.records(start, BATCH));
        (0..).step_by(BATCH).map_while(batch).flatten()
    }

    /// Returns all keys at a glance, in no particular order, each of the moment at which it was looked at.
    pub(crate) fn glances(&self) -> Vec<Glance<T>> {
        let batch = |start| self.0.with(|keys, _| keys.glances(start, COUNTED));
        (0..).step_by(COUNTED).map_while(batch).flatten().collect()
    }

    /// Returns the figures of the queue at this moment.
    pub fn figures(&self) -> QueueFigures {
        self.0.figures()
    }

    /// Returns the queue for an exporter of metrics, which does not keep it alive.
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

    /// Waits for the next key, and hands it out. `None` once the queue is shut down and no key is waiting.
    ///
    /// Cancel-safe: a key leaves the queue only when this returns, and the wake-up of a cancelled `get` passes to
    /// another.
    pub async fn get(&self) -> Option<WorkItem<T>> {
        self.get_as(0).await
    }

    /// As [`get`](Self::get), for the worker of that number, from 1 on; 0 for one without a number.
    pub(crate) async fn get_as(&self, worker: u16) -> Option<WorkItem<T>> {
        // Usually a key is ready, so no wait needs to be prepared.
        let taken = match self.0.shared.try_get(worker, self.0.time.now()) {
            Some(taken) => taken,
            None => self.0.shared.get(worker, &self.0.time).await?,
        };
        Some(WorkItem::new(self.clone(), taken))
    }

    /// Refuses every add from now on, and drops the keys that are not due yet or parked. Returns at once.
    ///
    /// [`get`](Self::get) still hands out waiting keys, including one that was added during processing, and then
    /// returns `None`. Callers that wait in [`shut_down_with_drain`](Self::shut_down_with_drain) are released.
    pub fn shut_down(&self) {
        self.0.shared.shut_down(self.0.time.now(), false);
    }

    /// Shuts down as [`shut_down`](Self::shut_down) does, then waits until no key is with a worker, or until
    /// `shut_down` is called.
    ///
    /// Waiting keys do not delay it: the workers should go on until [`get`](Self::get) returns `None`. Nothing happens
    /// before the first poll. Cancel-safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.0.shared.shut_down(self.0.time.now(), true);
        self.0.shared.drained().await;
    }

    /// Returns whether the queue was shut down, with or without a drain.
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
    #[inline]
    pub(super) fn now(&self) -> Tick {
        self.time.now()
    }

    /// Runs one operation under the lock, after moving due keys into the queue.
    pub(super) fn with<R>(&self, operation: impl FnOnce(&mut Keys<T>, Tick) -> R) -> R {
        let now = self.now();
        self.shared.with(now, |state| operation(&mut state.keys, now))
    }
}

impl<T: Key> Inner<T> {
    /// Counts keys by state, a part of them under each lock.
    fn states(&self) -> [usize; KeyState::QUEUED] {
        let mut states = [0; KeyState::QUEUED];
        let mut starts = (0..).step_by(COUNTED);
        while starts
            .next()
            .is_some_and(|start| self.with(|keys, _| keys.count_states(start, COUNTED, &mut states)))
        {
        }
        states
    }
}

impl<T: Key> QueueMetrics for Inner<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn figures(&self) -> QueueFigures {
        let states = self.states();
        QueueFigures { states, ..self.with(|keys, now| keys.figures(now)) }
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
