//! What does a controller use to hand keys to its workers? One queue with delays, per-key backoff, and a guard for each key handed out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delaying::Delaying;
use super::item::{Key, WorkItem};
use super::limiter::RateLimiter;
use super::metrics::{QueueMetrics, Running};
use super::queue::{Added, Taken, Ticket};
use super::waiting::Waiting;
use crate::Env;
use crate::clock::{Clock, Instant};
use crate::report::Reporter;

/// Some thirty years: what is delayed beyond is due then. Timers and `Instant`s overflow on longer times.
const FAR: Duration = Duration::from_secs(1_000_000_000);

/// A fair work queue with delayed and rate limited adds.
///
/// - *Fair*: keys are handed out in the order in which they became ready.
/// - *Stingy*: adds of a key that waits collapse into one run; a key is never with two workers at once; one added while it is worked on is
///   handed out once more, after that.
/// - *Safe*: a key handed out is a [`WorkItem`], and goes back to the queue if it is dropped, so that no key is lost to a panic or
///   a cancelled task.
///
/// Clones share the queue. Only [`get`](Self::get) and [`shut_down_with_drain`](Self::shut_down_with_drain) wait; all else is short and
/// may be called from anywhere, in particular from event handlers. The queue runs no task of its own: a waiting `get` keeps the time, and
/// whatever became due while no one waited takes its place in the order by its due time.
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
pub struct RateLimitingQueue<T>(pub(super) Arc<Shared<T>>);

pub(super) struct Shared<T> {
    name: Box<str>,
    pub(super) clock: Clock,
    pub(super) reporter: Reporter,
    metrics: Option<Box<dyn QueueMetrics>>,
    /// Given for the time where nothing depends on it: see [`Shared::now`].
    born: Instant,
    state: Mutex<State<T>>,
    /// Tells one waiting `get` that a key may be ready or a timer must be set; all of them, that the queue shuts down.
    pub(super) news: Notify,
    /// Tells those who wait for a drain that no key is with a worker, or that they shall not wait any more.
    drained: Notify,
}

pub(super) struct State<T> {
    pub(super) queue: Delaying<T>,
    limiter: Box<dyn RateLimiter<T>>,
    /// The earliest time for which a waiting `get` has set its timer. While any `get` waits, this is no later than the next
    /// due time, or a notification is under way to a `get` that will see to it.
    pub(super) armed: Option<Instant>,
    /// Someone waits for a drain, and no plain shutdown told them not to.
    draining: bool,
}

/// What an operation has to tell once the lock is released.
#[derive(Clone, Copy, Default)]
pub(super) struct News {
    /// Adds that led to a run of their own.
    adds: usize,
    retried: bool,
    worked: Option<Duration>,
    waited: Option<Duration>,
    wake: bool,
    drained: bool,
}

/// What to do with a key that comes back from its worker.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    Forget,
    RateLimited,
    After(Duration),
}

/// What a `get` finds.
pub(super) enum Found<T> {
    Key(Ticket, T),
    Nothing,
    ShutDown,
}

impl<T: Key> RateLimitingQueue<T> {
    /// A queue called `name` in reports, without metrics.
    pub fn new(name: &str, limiter: impl RateLimiter<T>, env: &Env) -> Self {
        Self::build(name, Box::new(limiter), env, None)
    }

    /// A queue that tells `metrics` what happens to its keys.
    pub fn with_metrics(
        name: &str,
        limiter: impl RateLimiter<T>,
        env: &Env,
        metrics: impl QueueMetrics,
    ) -> Self {
        Self::build(name, Box::new(limiter), env, Some(Box::new(metrics)))
    }

    fn build(
        name: &str,
        limiter: Box<dyn RateLimiter<T>>,
        env: &Env,
        metrics: Option<Box<dyn QueueMetrics>>,
    ) -> Self {
        let queue = Delaying::new(env.generator.fork(name).hasher());
        Self(Arc::new(Shared {
            name: name.into(),
            clock: env.clock.clone(),
            reporter: env.reporter.clone(),
            metrics,
            born: env.clock.now(),
            state: Mutex::new(State { queue, limiter, armed: None, draining: false }),
            news: Notify::new(),
            drained: Notify::new(),
        }))
    }

    /// The name given to the queue.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Marks `item` as in need of a run. Collapses with an add that still waits; is ignored once the queue shuts down.
    pub fn add(&self, item: T) {
        self.0.with(false, |state, now, news| state.add(item, now, news));
    }

    /// Adds `item` after `delay`, at once if that is zero.
    ///
    /// Of several delayed adds of one key the earliest counts; a plain [`add`](Self::add) leaves it standing. Is ignored once the queue shuts
    /// down, and a shutdown drops what is not due yet.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.0.with(true, |state, now, news| state.add_after(item, delay, now, news));
    }

    /// Adds `item` when the limiter says so; counts as a failure of the key.
    pub fn add_rate_limited(&self, item: T) {
        self.0.with(true, |state, now, news| {
            let delay = state.limiter.when(&item, now);
            state.add_after(item, delay, now, news);
        });
    }

    /// Makes the limiter forget the failures of `item`. Does not touch the queue itself.
    pub fn forget(&self, item: &T) {
        self.0.state.lock().limiter.forget(item);
    }

    /// How often `item` was added rate limited since it was last forgotten.
    pub fn retries(&self, item: &T) -> u32 {
        self.0.state.lock().limiter.retries(item)
    }

    /// How many keys wait for a worker. Keys that are with a worker or not yet due do not count.
    pub fn len(&self) -> usize {
        self.0.with(false, |state, _, _| state.queue.len())
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys now with a worker, and for how long; `None` for a queue without metrics, which does not look at the clock for it.
    pub fn running(&self) -> Option<Running> {
        self.0.metrics.as_ref().map(|_| self.0.with(true, |state, now, _| state.queue.running(now)))
    }

    /// Waits for the key that is next, and hands it out. `None` once the queue is shut down and nothing waits in it.
    ///
    /// Cancel-safe: a key leaves the queue only when this returns, and a wake-up that reached a cancelled `get` goes to another.
    pub async fn get(&self) -> Option<WorkItem<T>> {
        let mut waiting = Waiting::new(&self.0);
        loop {
            // Before the look at the queue: what happens after that look wakes it.
            let news = self.0.news.notified();
            match waiting.look() {
                Found::Key(ticket, key) => return Some(WorkItem::new(self.clone(), ticket, key)),
                Found::ShutDown => return None,
                Found::Nothing => {}
            }
            match waiting.timer() {
                Some(due) => tokio::select! {
                    biased;
                    () = news => {}
                    () = self.0.clock.sleep_until(due) => {}
                },
                None => news.await,
            }
        }
    }

    /// Refuses every add from now on, and drops what is not due yet. Returns at once.
    ///
    /// [`get`](Self::get) still hands out what waits, also a key that was added while it was worked on, and then returns `None`.
    /// Whoever waits in [`shut_down_with_drain`](Self::shut_down_with_drain) is released.
    pub fn shut_down(&self) {
        self.0.shut_down(false);
    }

    /// As [`shut_down`](Self::shut_down), then waits until no key is with a worker, or until someone calls `shut_down`.
    ///
    /// What still waits in the queue does not delay it: it is up to the workers to go on until [`get`](Self::get) returns `None`.
    /// Nothing happens before the first poll. Cancel-safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.0.shut_down(true);
        loop {
            let drained = self.0.drained.notified();
            {
                let state = self.0.state.lock();
                if state.queue.processing() == 0 || !state.draining {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Whether the queue was shut down, with or without a drain.
    pub fn is_shutting_down(&self) -> bool {
        self.0.state.lock().queue.is_shutting_down()
    }
}

impl<T: Key> Shared<T> {
    /// Runs one operation under the lock, after letting in what is due, and tells the news once the lock is released.
    fn with<R>(&self, needs_now: bool, operation: impl FnOnce(&mut State<T>, Instant, &mut News) -> R) -> R {
        let mut news = News::default();
        let result = {
            let mut state = self.state.lock();
            let now = self.now(needs_now, &state);
            let (adds, ready) = state.queue.advance(now);
            news = News { adds, wake: ready, ..news };
            operation(&mut state, now, &mut news)
        };
        self.tell(news);
        result
    }

    /// The time, if anything depends on it: reading a clock costs as much as the rest of an add.
    fn now(&self, needed: bool, state: &State<T>) -> Instant {
        let needed = needed || self.metrics.is_some() || state.queue.next_due().is_some();
        if needed { self.clock.now() } else { self.born }
    }

    /// One look of a `get` at the queue. `armed` is the timer it had set, and receives the one it must set if it finds nothing.
    pub(super) fn look(&self, armed: &mut Option<Instant>) -> Found<T> {
        self.with(false, |state, now, news| {
            state.disarm(armed.take());
            if let Some(Taken { ticket, key, waited }) = state.queue.get(now) {
                news.waited = Some(waited);
                // This `get` leaves: another must take what else is ready, or keep the time.
                news.wake = state.queue.len() > 0 || state.unattended().is_some();
                return Found::Key(ticket, key);
            }
            if state.queue.is_shutting_down() {
                return Found::ShutDown;
            }
            news.wake = false;
            *armed = state.unattended();
            state.armed = armed.or(state.armed);
            Found::Nothing
        })
    }

    /// A `get` that had set its timer for `due` was cancelled: another must keep the time.
    pub(super) fn abandon(&self, due: Instant) {
        let orphaned = {
            let mut state = self.state.lock();
            state.disarm(Some(due));
            state.unattended().is_some()
        };
        if orphaned {
            self.news.notify_one();
        }
    }

    /// Takes a key back from its worker.
    pub(super) fn settle(&self, ticket: Ticket, key: &T, verdict: Verdict) {
        self.with(!matches!(verdict, Verdict::Forget), |state, now, news| {
            let delay = match verdict {
                Verdict::RateLimited => Some(state.limiter.when(key, now)),
                Verdict::Forget | Verdict::After(_) => {
                    state.limiter.forget(key);
                    if let Verdict::After(delay) = verdict { Some(delay) } else { None }
                }
            };
            let finished = state.queue.done(ticket, now);
            news.worked = Some(finished.worked);
            news.wake |= finished.queued_again;
            news.drained = state.draining && state.queue.processing() == 0;
            if let Some(delay) = delay {
                state.add_after(key.clone(), delay, now, news);
            }
        });
    }

    fn shut_down(&self, drain: bool) {
        {
            let mut state = self.state.lock();
            state.queue.shut_down();
            state.draining = drain;
        }
        self.news.notify_waiters();
        self.drained.notify_waiters();
    }

    fn tell(&self, news: News) {
        if let Some(metrics) = &self.metrics {
            (0..news.adds).for_each(|_| metrics.added());
            if let Some(waited) = news.waited {
                metrics.taken(waited);
            }
            if let Some(worked) = news.worked {
                metrics.done(worked);
            }
            if news.retried {
                metrics.retried();
            }
        }
        if news.wake {
            self.news.notify_one();
        }
        if news.drained {
            self.drained.notify_waiters();
        }
    }
}

impl<T: Key> State<T> {
    fn add(&mut self, item: T, now: Instant, news: &mut News) {
        let added = self.queue.add(item, now);
        news.adds += usize::from(added.counts());
        news.wake |= added == Added::Queued;
    }

    fn add_after(&mut self, item: T, delay: Duration, now: Instant, news: &mut News) {
        if self.queue.is_shutting_down() {
            return;
        }
        news.retried = true;
        if delay.is_zero() {
            return self.add(item, now, news);
        }
        self.queue.delay(item, now + delay.min(FAR));
        news.wake |= self.unattended().is_some();
    }

    /// The next due time, if no waiting `get` has set its timer that early.
    fn unattended(&self) -> Option<Instant> {
        let due = self.queue.next_due()?;
        self.armed.is_none_or(|armed| due < armed).then_some(due)
    }

    /// A `get` that had set its timer for `due` looks again or is gone.
    fn disarm(&mut self, due: Option<Instant>) {
        if due.is_some() && self.armed == due {
            self.armed = None;
        }
    }
}

impl<T> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for RateLimitingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitingQueue").field("name", &self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
