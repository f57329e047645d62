//! The loop of an informer with a process function of the caller instead of store and handlers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::apply::apply;
use super::handler::Handler;
use super::pipeline::{Pipeline, pipeline_settings};
use super::pump::{Consumer, Outcome, Pump, SourceStart, Start, start_from};
use crate::clock::Instant;
use crate::env::Env;
use crate::latch::Latch;
use crate::object::{Kind, ObjectName, ResourceVersion};
use crate::queue::{Delta, DeltaQueue, KnownObjects, NoKnown, Popped, ProcessError, Queue};
use crate::reflector::Health;
use crate::source::ListerWatcher;
use crate::store::Indexer;

/// Lists and watches one kind into a queue, and calls a process function with its entries. Clones share it.
///
/// This is the low-level part that informers are made of: client-go's `cache.Controller`. Deltas are processed one pop
/// after the other, in the order of the queue.
///
/// ```
/// use std::convert::Infallible;
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::Env;
/// use watchkeeper::informer::DeltaController;
/// use watchkeeper::queue::{Popped, QueueKind};
/// use watchkeeper::source::{Reply, ScriptedSource};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (env, source) = (Env::simulated(1), ScriptedSource::new());
/// source.on_list(Reply::body(r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}"#));
/// let process = |popped: &Popped<Pod>| {
///     println!("{} deltas", popped.deltas.len());
///     Ok::<(), Infallible>(())
/// };
/// let controller = DeltaController::builder(source, process, &env).queue(QueueKind::Delta).build();
/// let stop = CancellationToken::new();
/// tokio::join!(controller.run(stop.clone()), async {
///     controller.wait_until_synced().await;
///     stop.cancel();
/// });
/// assert_eq!(controller.last_sync_version(), 1.into());
/// # }
/// ```
pub struct DeltaController<K: Kind>(Arc<Inner<K>>);

struct Inner<K: Kind> {
    pump: Arc<Pump<K>>,
    /// Taken by the first run.
    start: Mutex<Option<Start<K>>>,
    /// The caller's code; only the loop calls it.
    process: Mutex<Process<K>>,
    retry_on_error: bool,
    resync: Duration,
    should_resync: Mutex<ShouldResync>,
}

type Process<K> = Box<dyn FnMut(&Popped<K>) -> Result<(), ProcessError> + Send>;
type ShouldResync = Box<dyn FnMut() -> bool + Send>;

/// Settings of a [`DeltaController`]: client-go's `Config`.
pub struct DeltaControllerBuilder<K: Kind> {
    kind: K::DynamicType,
    env: Env,
    source: SourceStart<K>,
    process: Process<K>,
    /// Replaces the queue that the settings name.
    queue: Option<Box<dyn Queue<K>>>,
    known: Box<dyn KnownObjects<K> + Send + Sync>,
    should_resync: ShouldResync,
    retry_on_error: bool,
    pub(super) pipeline: Pipeline,
}

impl<K: Kind> DeltaControllerBuilder<K> {
    /// Sets a queue of the caller's.
    #[must_use]
    pub fn custom_queue(mut self, queue: Box<dyn Queue<K>>) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Sets the objects that the process function keeps; none by default. An [`Indexer`] can be passed here.
    #[must_use]
    pub fn known_objects(mut self, known: impl KnownObjects<K> + Send + Sync + 'static) -> Self {
        self.known = Box::new(known);
        self
    }

    /// Calls `should_resync` at the end of each period, and skips the resync if it returns false.
    #[must_use]
    pub fn should_resync(mut self, should_resync: impl FnMut() -> bool + Send + 'static) -> Self {
        self.should_resync = Box::new(should_resync);
        self
    }

    /// Returns deltas to the queue whose processing failed or panicked, after 5 ms, doubling to 1 s with each failure.
    ///
    /// An ordered queue keeps its order, so nothing is processed ahead of them; a
    /// [`DeltaFifo`](crate::queue::DeltaFifo) puts them behind the other keys.
    #[must_use]
    pub fn retry_on_error(mut self) -> Self {
        self.retry_on_error = true;
        self
    }

    pipeline_settings!();

    /// Builds the controller, which is not yet running.
    pub fn build(mut self) -> DeltaController<K> {
        let name = self.pipeline.name::<K>(&self.kind);
        let env = self.env.fork(&format!("controller {name}"));
        let (maker, _decoded) = self.pipeline.maker::<K>(&self.kind);
        let queue = self.queue.unwrap_or_else(|| self.pipeline.queue.make(&env));
        let queue =
            DeltaQueue::new(queue, &env).name(&name).known_boxed(self.known).bound(self.pipeline.bound);
        let pump = Pump {
            metrics: self.pipeline.guarded_metrics(&name, &env.reporter),
            env,
            name,
            queue: Arc::new(queue),
            health: Arc::default(),
            stopped: Latch::default(),
        };
        DeltaController(Arc::new(Inner {
            pump: Arc::new(pump),
            start: Mutex::new(Some((self.source)(maker, self.pipeline.reflector))),
            process: Mutex::new(self.process),
            retry_on_error: self.retry_on_error,
            resync: self.pipeline.resync,
            should_resync: Mutex::new(self.should_resync),
        }))
    }
}

impl<K: Kind> DeltaController<K> {
    /// Returns the builder of a controller for a kind known at compile time.
    ///
    /// `process` is called with each pop, in the loop itself. An error or a panic is reported, and the deltas are
    /// dropped, unless it is a [`ProcessError::Requeue`] or [`DeltaControllerBuilder::retry_on_error`] is set.
    pub fn builder<S, P, E>(source: S, process: P, env: &Env) -> DeltaControllerBuilder<K>
    where
        K::DynamicType: Default,
        S: ListerWatcher,
        P: FnMut(&Popped<K>) -> Result<(), E> + Send + 'static,
        E: Into<ProcessError>,
    {
        Self::builder_of(K::DynamicType::default(), source, process, env)
    }

    /// Returns the builder of a controller for a kind known at run time; see [`DeltaController::builder`].
    pub fn builder_of<S, P, E>(
        kind: K::DynamicType,
        source: S,
        process: P,
        env: &Env,
    ) -> DeltaControllerBuilder<K>
    where
        S: ListerWatcher,
        P: FnMut(&Popped<K>) -> Result<(), E> + Send + 'static,
        E: Into<ProcessError>,
    {
        Self::builder_from(kind, start_from(source), process, env)
    }

    pub(super) fn builder_from<P, E>(
        kind: K::DynamicType,
        source: SourceStart<K>,
        mut process: P,
        env: &Env,
    ) -> DeltaControllerBuilder<K>
    where
        P: FnMut(&Popped<K>) -> Result<(), E> + Send + 'static,
        E: Into<ProcessError>,
    {
        DeltaControllerBuilder {
            kind,
            env: env.clone(),
            source,
            process: Box::new(move |popped| process(popped).map_err(Into::into)),
            queue: None,
            known: Box::new(NoKnown),
            should_resync: Box::new(|| true),
            retry_on_error: false,
            pipeline: Pipeline::default(),
        }
    }

    /// Runs until `stop`, or until its queue is closed and empty; entries that are queued at a stop are dropped. A
    /// second call is reported, and returns at once.
    ///
    /// Dropping the future stops everything as well.
    pub async fn run(&self, stop: CancellationToken) {
        let start = self.0.start.lock().take();
        let pump = &self.0.pump;
        match start {
            Some(start) => start(pump.clone(), self.0.clone(), stop).await,
            None => pump.env.reporter.error("controller", &pump.name, &RunAgain),
        }
    }

    /// Returns whether the initial list has been processed.
    pub fn has_synced(&self) -> bool {
        self.0.pump.queue.has_synced()
    }

    /// Waits until [`DeltaController::has_synced`], possibly forever; see [`DeltaController::synced_or_stopped`].
    /// Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.0.pump.queue.wait_until_synced().await;
    }

    /// Waits until the controller has synced or stopped, and returns whether it has synced. Cancel-safe.
    pub async fn synced_or_stopped(&self) -> bool {
        tokio::select! {
            biased;
            () = self.wait_until_synced() => true,
            () = self.0.pump.stopped.wait() => false,
        }
    }

    /// Returns the version of the last change that the reflector queued; unset before the first.
    pub fn last_sync_version(&self) -> ResourceVersion {
        self.0.pump.health.lock().version.clone()
    }

    /// Returns the health of the reflector.
    pub fn health(&self) -> Health {
        self.0.pump.health.lock().clone()
    }

    /// Returns the queue, to inspect it, add to it, or close it.
    pub fn queue(&self) -> &DeltaQueue<K> {
        &self.0.pump.queue
    }

    /// Returns the name in reports.
    pub fn name(&self) -> &str {
        &self.0.pump.name
    }
}

impl<K: Kind> Consumer<K> for Inner<K> {
    fn process(&self, popped: &Popped<K>) -> Outcome {
        let Pump { name, env, .. } = &*self.pump;
        let result = env.reporter.guard("controller", name, || (self.process.lock())(popped));
        let requeue = match result {
            Some(Ok(())) => return Outcome::Done,
            // Reported by the guard.
            None => self.retry_on_error,
            Some(Err(error)) => {
                let (requeue, cause) = match error {
                    ProcessError::Requeue(cause) => (true, cause),
                    ProcessError::Failed(cause) => (self.retry_on_error, cause),
                };
                let first = popped.deltas.iter().find_map(Delta::key);
                let failure = NotProcessed { deltas: popped.deltas.len(), first, requeue, cause };
                env.reporter.error("controller", name, &failure);
                requeue
            }
        };
        if requeue { Outcome::Requeue } else { Outcome::Done }
    }

    fn check_period(&self) -> Option<Duration> {
        (!self.resync.is_zero()).then_some(self.resync)
    }

    fn is_due(&self, _now: Instant) -> bool {
        let Pump { name, env, .. } = &*self.pump;
        env.reporter.guard("controller", name, || (self.should_resync.lock())()).unwrap_or(false)
    }
}

/// Applies popped deltas to `store` in one step, then notifies `handler` of each change. A process function may end
/// with this call.
///
/// Presence in the store decides between add and update, not the verb of the watch. An object with another uid than the
/// stored one is a new object: the delete of the old one is notified first.
pub fn process_deltas<K>(store: &Indexer<K>, popped: &Popped<K>, handler: &mut impl Handler<K>) {
    for notification in apply(store, popped) {
        notification.deliver_to(handler);
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot process {deltas} deltas{}, {}",
    first.as_ref().map(|key| format!(" from {key} on")).unwrap_or_default(),
    if *requeue { "which go back into the queue" } else { "which are given up" }
)]
struct NotProcessed {
    deltas: usize,
    first: Option<ObjectName>,
    requeue: bool,
    #[source]
    cause: Box<dyn std::error::Error + Send + Sync>,
}

#[derive(Debug, thiserror::Error)]
#[error("the controller has been run already: make another one")]
struct RunAgain;

impl<K: Kind> Clone for DeltaController<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> fmt::Debug for DeltaController<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaController").field("name", &self.name()).field("queue", self.queue()).finish()
    }
}

impl<K: Kind> fmt::Debug for DeltaControllerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaControllerBuilder").field("kind", &self.kind).finish_non_exhaustive()
    }
}
