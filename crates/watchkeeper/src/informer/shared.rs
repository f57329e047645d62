//! What is a shared informer? One reflector, one queue and one store of a kind, and any number of handlers.

use std::any::type_name;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::apply::apply;
use super::handler::{Handler, Notification};
use super::latch::Latch;
use super::listener::{Registration, deliver};
use super::lister::Lister;
use super::processor::{HandlerOptions, Listener, Processor};
use crate::env::Env;
use crate::object::{Decoded, Keep, Kind, Maker, Object, ObjectName, ResourceVersion, Transform};
use crate::queue::{Delta, DeltaFifo, OrderedFifo, Popped, Queue};
use crate::reflector::{Health, InformerMetrics, ListMode, Options, Phase, Reflector, Sink};
use crate::source::ListerWatcher;
use crate::store::{Index, Indexer};
use crate::wire::ApiError;

/// Which queue stands between reflector and store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// Changes in the order of the stream: [`OrderedFifo`].
    #[default]
    Ordered,
    /// Changes gathered by key: [`DeltaFifo`].
    Delta,
}

/// One watch and one cache of a kind, for many handlers. Clones share it.
///
/// A handler hears of changes one at a time and in order; handlers do not wait for each other. The store shows a change before any
/// handler hears of it.
pub struct SharedInformer<K: Kind>(Arc<Inner<K>>);

struct Inner<K: Kind> {
    name: String,
    kind: K::DynamicType,
    env: Env,
    store: Indexer<K>,
    queue: Mutex<Box<dyn Queue<K>>>,
    /// The queue has something, or something has changed in it.
    wake: Notify,
    /// Held while deltas are applied and told: a handler that joins sees each change exactly once.
    processor: Mutex<Processor<K>>,
    life: Mutex<Life<K>>,
    default_resync: Duration,
    synced: Latch,
    stopped: Latch,
    health: Arc<Mutex<Health>>,
    decoded: Arc<Decoded<K>>,
    metrics: Arc<dyn InformerMetrics>,
}

enum Life<K: Kind> {
    Ready(Run<K>),
    Running { tasks: JoinSet<()>, runtime: tokio::runtime::Handle },
    Stopped,
}

type Run<K> =
    Box<dyn FnOnce(SharedInformer<K>, CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The informer has stopped, and takes no handlers any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handler {handler} was not added: the informer of {kind} has stopped already")]
pub struct InformerStopped {
    /// The handler's name.
    pub handler: String,
    /// The informer's kind.
    pub kind: String,
}

/// Settings of a [`SharedInformer`].
pub struct InformerBuilder<K: Kind> {
    kind: K::DynamicType,
    env: Env,
    resync: Duration,
    queue: QueueKind,
    keep: Keep,
    keep_managed_fields: bool,
    transform: Option<Transform>,
    indexes: Vec<Index<K>>,
    reflector: Options,
}

impl<K: Kind> InformerBuilder<K> {
    /// Tells handlers of every object again after each `period`; zero, the default, is never.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = period;
        self
    }

    /// Uses that queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueKind) -> Self {
        self.queue = queue;
        self
    }

    /// Keeps so many decoded values.
    #[must_use]
    pub fn keep_decoded(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Keeps `metadata.managedFields`, which are cut by default.
    #[must_use]
    pub fn keep_managed_fields(mut self) -> Self {
        self.keep_managed_fields = true;
        self
    }

    /// Changes every object once, before it is cached and before anybody sees it; a second call replaces the first.
    #[must_use]
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Adds indexes to the store.
    #[must_use]
    pub fn indexes(mut self, indexes: impl IntoIterator<Item = Index<K>>) -> Self {
        self.indexes.extend(indexes);
        self
    }

    /// Tells `metrics` what happens on the way into the cache; nobody by default.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.reflector.metrics = metrics;
        self
    }

    /// Reads whole states in that way.
    #[must_use]
    pub fn list_mode(mut self, mode: ListMode) -> Self {
        self.reflector.list = mode;
        self
    }

    /// Asks for pages of so many items; 500 by default, 0 for all at once.
    #[must_use]
    pub fn page_size(mut self, items: u32) -> Self {
        self.reflector.page_size = items;
        self
    }

    /// Asks for watches of `timeout` up to twice as long, at least five minutes.
    #[must_use]
    pub fn min_watch_timeout(mut self, timeout: Duration) -> Self {
        self.reflector.watch_timeout = timeout.max(self.reflector.watch_timeout);
        self
    }

    /// Calls `hook` with every error of a list or watch, on the informer's task; it must not block.
    #[must_use]
    pub fn on_watch_error(mut self, hook: impl Fn(&ApiError) + Send + Sync + 'static) -> Self {
        self.reflector.on_error = Some(Arc::new(hook));
        self
    }

    /// The informer, not yet running.
    pub fn build<S: ListerWatcher>(self, source: S) -> SharedInformer<K> {
        let name = K::plural(&self.kind).into_owned();
        let expected = (K::api_version(&self.kind).into_owned(), K::kind(&self.kind).into_owned());
        let env = self.env.fork(&format!("informer {name}"));
        let decoded = Decoded::new(self.keep);
        let maker = Maker::new(decoded.clone(), (!K::metadata_api()).then_some(expected))
            .keep_managed_fields(self.keep_managed_fields)
            .transform(self.transform);
        let queue: Box<dyn Queue<K>> = match self.queue {
            QueueKind::Ordered => Box::new(OrderedFifo::new()),
            QueueKind::Delta => Box::new(DeltaFifo::new(env.generator.hasher())),
        };
        let health = Arc::<Mutex<Health>>::default();
        let metrics = self.reflector.metrics.clone();
        let run = run_with(source, maker, health.clone(), self.reflector);
        SharedInformer(Arc::new(Inner {
            store: Indexer::new(&env, self.indexes),
            queue: Mutex::new(queue),
            wake: Notify::new(),
            processor: Mutex::new(Processor::new(self.resync)),
            life: Mutex::new(Life::Ready(run)),
            default_resync: self.resync,
            synced: Latch::default(),
            stopped: Latch::default(),
            health,
            decoded,
            metrics,
            kind: self.kind,
            name,
            env,
        }))
    }
}

/// What runs the informer, with the type of its source forgotten.
fn run_with<K: Kind, S: ListerWatcher>(
    source: S,
    maker: Maker<K>,
    health: Arc<Mutex<Health>>,
    options: Options,
) -> Run<K> {
    Box::new(move |informer, stop| {
        let inner = informer.0;
        let (name, env) = (inner.name.clone(), inner.env.clone());
        let reflector = Reflector::new(name, source, Intake(inner.clone()), maker, &env, health, options);
        Box::pin(async move {
            tokio::join!(reflector.run(stop.clone()), inner.process(&stop), inner.resync(&stop));
        })
    })
}

impl<K: Kind> SharedInformer<K> {
    /// An informer of a kind known at compile time.
    pub fn builder(env: &Env) -> InformerBuilder<K>
    where
        K::DynamicType: Default,
    {
        Self::builder_of(K::DynamicType::default(), env)
    }

    /// An informer of a kind known at run time.
    pub fn builder_of(kind: K::DynamicType, env: &Env) -> InformerBuilder<K> {
        InformerBuilder {
            kind,
            env: env.clone(),
            resync: Duration::ZERO,
            queue: QueueKind::default(),
            keep: Keep::default(),
            keep_managed_fields: false,
            transform: None,
            indexes: Vec::new(),
            reflector: Options::default(),
        }
    }

    /// Adds a handler with the informer's own settings. One that joins late is told of every object first.
    pub fn add_handler<H: Handler<K>>(&self, handler: H) -> Result<Registration<K>, InformerStopped> {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler with settings of its own.
    pub fn add_handler_with<H: Handler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration<K>, InformerStopped> {
        let inner = &*self.0;
        let name = options.name.unwrap_or_else(|| type_name::<H>().to_owned());
        // Life first, then the processor: whoever takes both takes them in this order.
        let mut life = inner.life.lock();
        if matches!(*life, Life::Stopped) {
            return Err(InformerStopped { handler: name, kind: inner.name.clone() });
        }
        let mut processor = inner.processor.lock();
        let period = options.resync.unwrap_or(inner.default_resync);
        let listener = processor.add(Box::new(handler), name, period, inner.env.clock.now());
        let registration = Registration { mailbox: listener.mailbox.clone() };
        if let Life::Running { tasks, runtime } = &mut *life {
            for object in inner.store.snapshot().iter() {
                listener.mailbox.put(Notification::Add { object: object.clone(), in_initial_list: true });
            }
            if inner.synced.is_set() {
                listener.mailbox.upstream_synced();
            }
            inner.spawn(listener, tasks, runtime);
        }
        Ok(registration)
    }

    /// Takes a handler out. A callback that runs comes to its end; what waits for it is dropped. Nothing happens the second time, nor
    /// with a registration of another informer.
    pub fn remove_handler(&self, registration: &Registration<K>) {
        self.0.processor.lock().remove(&registration.mailbox);
    }

    /// Runs until `stop`: reflector and store first, then the handlers come to their end. A second call returns at once.
    ///
    /// Dropping the future stops everything as well, without waiting.
    pub async fn run(&self, stop: CancellationToken) {
        let inner = &self.0;
        let run = {
            let mut life = inner.life.lock();
            match std::mem::replace(&mut *life, Life::Stopped) {
                Life::Ready(run) => {
                    let (mut tasks, runtime) = (JoinSet::new(), tokio::runtime::Handle::current());
                    for listener in inner.processor.lock().start() {
                        inner.spawn(listener, &mut tasks, &runtime);
                    }
                    *life = Life::Running { tasks, runtime };
                    run
                }
                other => {
                    *life = other;
                    tracing::warn!(kind = inner.name, "the informer has been started already");
                    return;
                }
            }
        };
        let ending = Ending(inner);
        run(self.clone(), stop).await;
        let mut tasks = ending.end();
        while tasks.join_next().await.is_some() {}
    }

    /// Whether the store has the first list and all handlers' mailboxes have its objects.
    pub fn has_synced(&self) -> bool {
        self.0.synced.is_set()
    }

    /// Waits until [`SharedInformer::has_synced`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.0.synced.wait().await;
    }

    /// Waits until it has synced, or has stopped without: whether it has synced. Cancel-safe.
    pub async fn synced_or_stopped(&self) -> bool {
        tokio::select! {
            biased;
            () = self.0.synced.wait() => true,
            () = self.0.stopped.wait() => false,
        }
    }

    /// Whether it has run and stopped.
    pub fn is_stopped(&self) -> bool {
        matches!(*self.0.life.lock(), Life::Stopped)
    }

    /// The store.
    pub fn indexer(&self) -> &Indexer<K> {
        &self.0.store
    }

    /// A reader of typed objects.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.0.store.clone(), self.0.name.clone())
    }

    /// The kind, where it is known at run time only.
    pub fn kind(&self) -> &K::DynamicType {
        &self.0.kind
    }

    /// The plural name of the kind.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How the reflector is doing.
    pub fn health(&self) -> Health {
        self.0.health.lock().clone()
    }

    /// The version of the last thing that the reflector handed on; the store may be behind by what is queued.
    pub fn last_sync_version(&self) -> ResourceVersion {
        self.0.health.lock().version.clone()
    }

    /// How many deltas wait to be applied.
    pub fn queued(&self) -> usize {
        self.0.queue.lock().len()
    }

    /// How often an object of this informer was decoded.
    pub fn decodes(&self) -> u64 {
        self.0.decoded.decodes()
    }
}

impl<K: Kind> Inner<K> {
    /// Starts the task of a handler.
    fn spawn(&self, listener: &mut Listener<K>, tasks: &mut JoinSet<()>, runtime: &tokio::runtime::Handle) {
        // Tasks of handlers that were removed have ended by now.
        while tasks.try_join_next().is_some() {}
        if let Some(handler) = listener.handler.take() {
            let reporter = self.env.reporter.clone();
            tasks.spawn_on(
                deliver(listener.mailbox.clone(), handler, listener.name.clone(), reporter),
                runtime,
            );
        }
    }

    /// The loop between queue and store.
    async fn process(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let popped = self.queue.lock().pop();
            let Some(popped) = popped else {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.wake.notified() => continue,
                }
            };
            self.apply(popped);
            tokio::task::consume_budget().await;
        }
    }

    fn apply(&self, popped: Popped<K>) {
        let (deltas, began) = (popped.deltas.len(), self.env.clock.now());
        let processor = self.processor.lock();
        processor.distribute(apply(&self.store, popped));
        let mut queue = self.queue.lock();
        queue.processed();
        self.metrics.queued(queue.len());
        self.metrics.processed(deltas, self.env.clock.now() - began);
        if queue.has_synced() && !self.synced.is_set() {
            self.synced.set();
            processor.upstream_synced();
        }
    }

    /// The timer of resyncs; relists do not disturb it.
    async fn resync(&self, stop: &CancellationToken) {
        let Some(period) = self.processor.lock().check_period() else { return };
        let tick = async {
            loop {
                self.env.clock.sleep(period).await;
                let due = self.processor.lock().mark_due(self.env.clock.now());
                if due {
                    self.queue.lock().resync(&self.store);
                    self.wake.notify_one();
                }
            }
        };
        stop.run_until_cancelled(tick).await;
    }
}

/// Where the reflector puts deltas.
struct Intake<K: Kind>(Arc<Inner<K>>);

impl<K: Kind> Sink<K> for Intake<K> {
    fn push(&self, delta: Delta<K>) {
        self.0.queue.lock().push(delta, &self.0.store);
        self.0.wake.notify_one();
    }

    fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion) {
        self.0.queue.lock().replace(items, version, &self.0.store);
        self.0.wake.notify_one();
    }

    fn known(&self, object: &Object<K>) -> Option<Object<K>> {
        let kept = self.0.store.get_like(object)?;
        kept.same_state(object).then_some(kept)
    }

    fn kept(&self, name: &ObjectName) -> Option<Object<K>> {
        self.0.store.get(name)
    }
}

/// Marks the informer as stopped and closes its handlers, also when its future is dropped.
struct Ending<'a, K: Kind>(&'a Inner<K>);

impl<K: Kind> Ending<'_, K> {
    fn end(&self) -> JoinSet<()> {
        let life = std::mem::replace(&mut *self.0.life.lock(), Life::Stopped);
        self.0.processor.lock().stop();
        self.0.health.lock().phase = Phase::Stopped;
        self.0.stopped.set();
        match life {
            Life::Running { tasks, .. } => tasks,
            Life::Ready(_) | Life::Stopped => JoinSet::new(),
        }
    }
}

impl<K: Kind> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        // After a regular end there is nothing left; else the tasks are aborted with the set.
        drop(self.end());
    }
}

impl<K: Kind> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder")
            .field("kind", &self.kind)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer").field("kind", &self.0.name).field("store", &self.0.store).finish()
    }
}
