//! A queue of deltas with its lock, its wake-ups and its byte bound.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Delta, KnownObjects, NoKnown, Popped, Queue};
use crate::env::Env;
use crate::latch::Latch;
use crate::object::{Object, ObjectName, ResourceVersion};

/// A queue with its lock and its wake-ups: any number of producers, one consumer.
///
/// What the queue needs to know of its consumer's objects is asked of the known objects, [`NoKnown`] by default.
///
/// ```
/// use watchkeeper::{Env, Object};
/// use watchkeeper::queue::{Delta, DeltaQueue, OrderedFifo};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = DeltaQueue::<()>::new(Box::new(OrderedFifo::new()), &Env::simulated(1));
/// queue.push(Delta::Added(Object::from_json(br#"{"metadata":{"name":"a"}}"#)?));
/// queue.close();
/// while let Some(popped) = queue.pop().await {
///     assert_eq!(popped.deltas.len(), 1);
///     queue.processed();
/// }
/// # Ok(()) }
/// ```
pub struct DeltaQueue<K> {
    queue: Mutex<Box<dyn Queue<K>>>,
    known: Box<dyn KnownObjects<K> + Send + Sync>,
    /// Something came in, or the queue was closed.
    filled: Notify,
    /// Something was taken out, or the queue was closed.
    emptied: Notify,
    /// Producers that ask for room wait while more bytes than this wait in the queue.
    bound: usize,
    synced: Latch,
    env: Env,
    /// What reports call it.
    name: String,
}

/// A slow consumer is reported when more entries than this wait behind it...
const DEEP: usize = 10;
/// ...and it has taken longer than this.
const SLOW: Duration = Duration::from_millis(100);

/// Bytes that may wait in a queue before producers are asked to wait.
pub(crate) const DEFAULT_BOUND: usize = 64 << 20;

/// Why deltas were not processed. Any error turns into [`ProcessError::Failed`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// It failed; whoever drives the queue decides whether to try again.
    Failed(Box<dyn Error + Send + Sync>),
    /// It failed, and the deltas go back into the queue: client-go's `ErrRequeue`.
    Requeue(Box<dyn Error + Send + Sync>),
}

impl ProcessError {
    /// Failed for now: the deltas go back into the queue.
    pub fn requeue(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Requeue(cause.into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ProcessError {
    fn from(cause: E) -> Self {
        Self::Failed(Box::new(cause))
    }
}

impl<K> DeltaQueue<K> {
    /// Around `queue`, which should be empty. The clock of `env` times its consumer, and a slow one is reported there.
    pub fn new(queue: Box<dyn Queue<K>>, env: &Env) -> Self {
        Self {
            queue: Mutex::new(queue),
            known: Box::new(NoKnown),
            filled: Notify::new(),
            emptied: Notify::new(),
            bound: DEFAULT_BOUND,
            synced: Latch::default(),
            env: env.clone(),
            name: "deltas".to_owned(),
        }
    }

    /// Calls it `name` in reports and logs; `deltas` by default.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Tells the queue what its consumer holds. It is asked with the queue locked, and must not use the queue.
    #[must_use]
    pub fn known_objects(self, known: impl KnownObjects<K> + Send + Sync + 'static) -> Self {
        self.known_boxed(Box::new(known))
    }

    pub(crate) fn known_boxed(mut self, known: Box<dyn KnownObjects<K> + Send + Sync>) -> Self {
        self.known = known;
        self
    }

    /// Lets producers that ask for [`DeltaQueue::room`] wait while more than `bytes` wait; 64 MiB by default.
    #[must_use]
    pub fn bound(mut self, bytes: usize) -> Self {
        self.bound = bytes;
        self
    }

    /// Adds one change of the watch stream.
    pub fn push(&self, delta: Delta<K>) {
        self.fill(|queue, known| queue.push(delta, known));
    }

    /// Adds a whole new state, as a list gave it.
    pub fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion) {
        self.fill(|queue, known| queue.replace(items, version, known));
    }

    /// Adds every known object again.
    pub fn resync(&self) {
        self.fill(|queue, known| queue.resync(known));
    }

    /// Gives back what was popped last and could not be applied; see [`Queue::add_if_not_present`].
    pub fn add_if_not_present(&self, popped: Popped<K>) {
        self.fill(|queue, _| queue.add_if_not_present(popped));
    }

    /// Waits for the next deltas; `None` once the queue is closed and empty.
    ///
    /// Cancel-safe: deltas are taken only when they are returned. What was popped before counts as processed.
    pub async fn pop(&self) -> Option<Popped<K>> {
        loop {
            // Made before the look into the queue, so that no wake-up is missed in between.
            let filled = self.filled.notified();
            {
                let mut queue = self.queue.lock();
                let popped = queue.pop();
                self.check_synced(&**queue);
                if popped.is_some() || queue.is_closed() {
                    drop(queue);
                    self.emptied.notify_waiters();
                    return popped;
                }
            }
            filled.await;
        }
    }

    /// Waits for the next deltas, hands them to `process`, and returns them with the outcome; `None` once the queue is closed and empty.
    ///
    /// On [`ProcessError::Requeue`] they go back into the queue; in all other cases they are done with. A `process` that takes more than
    /// 100 ms while more than ten entries wait is reported. Cancel-safe.
    pub async fn pop_with(
        &self,
        process: impl FnOnce(&Popped<K>) -> Result<(), ProcessError>,
    ) -> Option<(Popped<K>, Result<(), Box<dyn Error + Send + Sync>>)> {
        let popped = self.pop().await?;
        let (result, _) = self.timed(&popped, process);
        let result = match result {
            Err(ProcessError::Requeue(cause)) => {
                self.add_if_not_present(popped.clone());
                return Some((popped, Err(cause)));
            }
            Err(ProcessError::Failed(cause)) => Err(cause),
            Ok(()) => Ok(()),
        };
        self.processed();
        Some((popped, result))
    }

    /// Calls `process` with what was popped; its result, and how long it took. One that holds many entries up for long is reported.
    pub(crate) fn timed<R>(
        &self,
        popped: &Popped<K>,
        process: impl FnOnce(&Popped<K>) -> R,
    ) -> (R, Duration) {
        let (depth, began) = (self.len(), self.env.clock.now());
        let result = process(popped);
        let took = self.env.clock.now() - began;
        if depth > DEEP && took > SLOW {
            let first = popped.deltas.iter().find_map(Delta::key);
            let slow = SlowPop { took, deltas: popped.deltas.len(), first, depth };
            self.env.reporter.error("queue", &self.name, &slow);
        }
        (result, took)
    }

    /// Tells that what was popped last has been applied.
    pub fn processed(&self) {
        let mut queue = self.queue.lock();
        queue.processed();
        self.check_synced(&**queue);
    }

    /// Waits while deltas wait in the queue that are together over the bound; not on a closed queue. Cancel-safe.
    ///
    /// A producer that asks after each portion makes the source wait when the consumer is slow: what waits stays below the bound plus one
    /// portion, however large the portion is.
    pub async fn room(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let queue = self.queue.lock();
                if queue.is_closed() || queue.is_empty() || queue.bytes() <= self.bound {
                    return;
                }
            }
            emptied.await;
        }
    }

    /// Ends it: what waits can still be popped, then every [`DeltaQueue::pop`] returns `None`. Whoever waits for room goes on.
    pub fn close(&self) {
        self.queue.lock().close();
        self.filled.notify_waiters();
        self.emptied.notify_waiters();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.queue.lock().is_closed()
    }

    /// Whether the first state has been popped and applied, or a change came before any; see [`Queue::has_synced`].
    pub fn has_synced(&self) -> bool {
        self.queue.lock().has_synced()
    }

    /// Waits until [`DeltaQueue::has_synced`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.synced.wait().await;
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the waiting deltas keep in memory.
    pub fn bytes(&self) -> usize {
        self.queue.lock().bytes()
    }

    /// The consumer's copy of `object`, where it has one in the same state.
    pub(crate) fn unchanged(&self, object: &Object<K>) -> Option<Object<K>> {
        self.known.unchanged(object)
    }

    /// The object of that name that the consumer holds.
    pub(crate) fn known(&self, name: &ObjectName) -> Option<Object<K>> {
        self.known.known(name)
    }

    /// Tells the known objects that their consumer has stopped.
    pub(crate) fn ended(&self) {
        self.known.ended();
    }

    fn fill(&self, fill: impl FnOnce(&mut dyn Queue<K>, &dyn KnownObjects<K>)) {
        let mut queue = self.queue.lock();
        fill(&mut **queue, &*self.known);
        self.check_synced(&**queue);
        drop(queue);
        self.filled.notify_one();
    }

    fn check_synced(&self, queue: &dyn Queue<K>) {
        if !self.synced.is_set() && queue.has_synced() {
            self.synced.set();
        }
    }
}

impl<K> fmt::Debug for DeltaQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.queue.lock();
        let mut f = f.debug_struct("DeltaQueue");
        f.field("len", &queue.len())
            .field("bytes", &queue.bytes())
            .field("closed", &queue.is_closed())
            .finish()
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "slow handlers hold the queue up: {deltas} deltas{} took {took:?} while {depth} entries wait",
    first.as_ref().map(|key| format!(" from {key} on")).unwrap_or_default()
)]
struct SlowPop {
    took: Duration,
    deltas: usize,
    first: Option<ObjectName>,
    depth: usize,
}
