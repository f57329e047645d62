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
/// It looks up the objects that its consumer holds in its known objects, [`NoKnown`] by default.
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
    /// Notified when an entry is added or the queue is closed.
    filled: Notify,
    /// Notified when an entry is popped or the queue is closed.
    emptied: Notify,
    /// The number of queued bytes above which producers that ask for room wait.
    bound: usize,
    synced: Latch,
    env: Env,
    /// The name of the queue in reports.
    name: String,
}

/// A slow consumer is reported if more entries than this are queued behind it...
const DEEP: usize = 10;
/// ...and it has taken longer than this.
const SLOW: Duration = Duration::from_millis(100);

/// The default of the bound in bytes.
pub(crate) const DEFAULT_BOUND: usize = 64 << 20;

/// The reason why deltas were not processed. Any error converts into [`ProcessError::Failed`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// Processing failed; the driver of the queue decides whether to retry.
    Failed(Box<dyn Error + Send + Sync>),
    /// Processing failed, and the deltas go back into the queue: client-go's `ErrRequeue`.
    Requeue(Box<dyn Error + Send + Sync>),
}

impl ProcessError {
    /// Returns a failure after which the deltas go back into the queue.
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
    /// Wraps `queue`, which should be empty. The clock of `env` times its consumer, and a slow one is reported there.
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

    /// Sets the name in reports and logs; `deltas` by default.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the objects that the consumer holds. They are read with the queue locked, and must not use the queue.
    #[must_use]
    pub fn known_objects(self, known: impl KnownObjects<K> + Send + Sync + 'static) -> Self {
        self.known_boxed(Box::new(known))
    }

    pub(crate) fn known_boxed(mut self, known: Box<dyn KnownObjects<K> + Send + Sync>) -> Self {
        self.known = known;
        self
    }

    /// Sets the bound above which [`DeltaQueue::room`] makes producers wait; 64 MiB by default.
    #[must_use]
    pub fn bound(mut self, bytes: usize) -> Self {
        self.bound = bytes;
        self
    }

    /// Adds one change of the watch stream.
    pub fn push(&self, delta: Delta<K>) {
        self.fill(|queue, known| queue.push(delta, known));
    }

    /// Adds a whole new state from a list.
    pub fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion) {
        self.fill(|queue, known| queue.replace(items, version, known));
    }

    /// Adds every known object again.
    pub fn resync(&self) {
        self.fill(|queue, known| queue.resync(known));
    }

    /// Returns to the queue what was popped last and could not be applied; see [`Queue::add_if_not_present`].
    pub fn add_if_not_present(&self, popped: Popped<K>) {
        self.fill(|queue, _| queue.add_if_not_present(popped));
    }

    /// Waits for the next deltas; `None` once the queue is closed and empty.
    ///
    /// Cancel-safe: deltas are removed only when they are returned. The previously popped ones count as processed.
    pub async fn pop(&self) -> Option<Popped<K>> {
        loop {
            // Registered before the check, so that no wake-up is lost in between.
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

    /// Waits for the next deltas, passes them to `process`, and returns them with the outcome; `None` once the queue is
    /// closed and empty.
    ///
    /// On [`ProcessError::Requeue`] they go back into the queue; otherwise they count as processed. A `process` that
    /// takes more than 100 ms while more than ten entries are queued is reported. Cancel-safe.
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

    /// Calls `process` with the popped deltas; returns its result and its duration. A slow call that delays many
    /// entries is reported.
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

    /// Marks what was popped last as applied.
    pub fn processed(&self) {
        let mut queue = self.queue.lock();
        queue.processed();
        self.check_synced(&**queue);
    }

    /// Waits while the queued bytes exceed the bound; not on a closed queue. Cancel-safe.
    ///
    /// A producer that calls this after each chunk applies backpressure to its source while the consumer is slow: the
    /// queue then holds at most the bound plus one chunk.
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

    /// Closes the queue: queued entries can still be popped, then every [`DeltaQueue::pop`] returns `None`. Producers
    /// that wait for room go on.
    pub fn close(&self) {
        self.queue.lock().close();
        self.filled.notify_waiters();
        self.emptied.notify_waiters();
    }

    /// Returns whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.queue.lock().is_closed()
    }

    /// Returns whether the initial list has been popped and applied, or a change came before any list; see
    /// [`Queue::has_synced`].
    pub fn has_synced(&self) -> bool {
        self.queue.lock().has_synced()
    }

    /// Waits until [`DeltaQueue::has_synced`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.synced.wait().await;
    }

    /// Returns the number of queued entries.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the queued deltas keep in memory.
    pub fn bytes(&self) -> usize {
        self.queue.lock().bytes()
    }

    /// Returns the consumer's copy of `object`, if it has one in the same state.
    pub(crate) fn unchanged(&self, object: &Object<K>) -> Option<Object<K>> {
        self.known.unchanged(object)
    }

    /// Returns the consumer's object of that name.
    pub(crate) fn known(&self, name: &ObjectName) -> Option<Object<K>> {
        self.known.known(name)
    }

    /// Returns all objects of the consumer.
    pub(crate) fn all_known(&self) -> Vec<Object<K>> {
        let mut all = Vec::new();
        self.known.each_known(&mut |object| all.push(object.clone()));
        all
    }

    /// Notifies the known objects that the server is asked for its newest version. Returns the number of the question.
    pub(crate) fn asking(&self) -> u64 {
        self.known.asking()
    }

    /// Notifies the known objects of the answer to a question.
    pub(crate) fn answered(&self, question: u64, version: &ResourceVersion) {
        self.known.answered(question, version);
    }

    /// Notifies the known objects that their consumer has stopped.
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
