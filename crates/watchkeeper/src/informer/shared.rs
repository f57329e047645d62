//! The shared informer: one reflector, one queue and one store of a kind, and any number of handlers.

use std::any::type_name;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::apply::apply_unreported;
use super::catch_up::{CaughtUp, catch_up};
use super::handler::{Handler, Notification};
use super::listener::{Registration, deliver};
use super::lister::Lister;
use super::metrics::{InformerStats, Observed};
use super::pipeline::{Pipeline, pipeline_settings};
use super::processor::{HandlerOptions, Listener, Processor};
use super::pump::{Consumer, Outcome, Pump, SourceStart, Start, start_from};
use crate::clock::Instant;
use crate::env::Env;
use crate::latch::Latch;
use crate::object::{Decoded, Kind, Object, ResourceVersion};
use crate::queue::{DeltaQueue, Popped};
use crate::reflector::{Health, Phase, Verified, VerifyError, VerifyRequests};
use crate::source::{ApiSource, ListerWatcher};
use crate::store::{Index, Indexer};

/// One watch and one cache of a kind, for many handlers. Clones share it.
///
/// A handler is notified of changes one at a time and in order; handlers do not wait for each other. The store shows a
/// change before any handler is notified of it.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::informer::on_apply;
/// use watchkeeper::source::{Reply, ScriptedSource};
/// use watchkeeper::{Env, Object, SharedInformer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = ScriptedSource::new();
/// source.on_list(Reply::body(r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}"#));
/// let pods = SharedInformer::<Pod>::builder(source, &Env::simulated(1)).build();
/// let handler = pods.add_handler(on_apply(|pod: &Object<Pod>| println!("{}", pod.key())))?;
/// let stop = CancellationToken::new();
/// tokio::join!(pods.run(stop.clone()), async {
///     handler.wait_until_synced().await;
///     stop.cancel();
/// });
/// assert_eq!(pods.indexer().snapshot().len(), 1);
/// # Ok(()) }
/// ```
pub struct SharedInformer<K: Kind>(Arc<Inner<K>>);

struct Inner<K: Kind> {
    kind: K::DynamicType,
    pump: Arc<Pump<K>>,
    store: Indexer<K>,
    /// Held while deltas are applied and distributed, so that a handler that joins sees each change exactly once.
    processor: Mutex<Processor<K>>,
    life: Mutex<Life<K>>,
    default_resync: Duration,
    synced: Arc<Latch>,
    stopped: Latch,
    decoded: Arc<Decoded<K>>,
    optional: Arc<AtomicBool>,
    verify: Arc<VerifyRequests>,
    /// The metadata of the same objects, where they come from an API server.
    metadata: Option<ApiSource>,
}

enum Life<K: Kind> {
    Ready(Start<K>),
    Running { tasks: JoinSet<()>, runtime: tokio::runtime::Handle },
    Stopped,
}

/// The error of an informer that has stopped, and accepts no handlers any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handler {handler} was not added: the informer of {kind} has stopped already")]
pub struct InformerStopped {
    /// The handler's name.
    pub handler: String,
    /// The informer's kind.
    pub kind: String,
}

/// Settings of a [`SharedInformer`].
pub struct SharedInformerBuilder<K: Kind> {
    kind: K::DynamicType,
    env: Env,
    source: SourceStart<K>,
    indexes: Vec<Index<K>>,
    pipeline: Pipeline,
    metadata: Option<ApiSource>,
}

impl<K: Kind> SharedInformerBuilder<K> {
    /// Replaces the source that the builder was made with.
    #[must_use]
    pub fn source<S: ListerWatcher>(mut self, source: S) -> Self {
        self.source = start_from(source);
        self.metadata = None;
        self
    }

    /// Sets where the metadata of the same objects can be listed.
    pub(super) fn metadata_from(mut self, source: ApiSource) -> Self {
        self.metadata = Some(source);
        self
    }

    /// Adds indexes to the store.
    #[must_use]
    pub fn indexes(mut self, indexes: impl IntoIterator<Item = Index<K>>) -> Self {
        self.indexes.extend(indexes);
        self
    }

    pipeline_settings!();

    /// Compares the cache with the server within each `period`, as [`SharedInformer::verify`] does, by a list of metadata at the
    /// cache's own version; zero, the default, is never. An object that differs leads to a relist, and is reported and
    /// counted: the server has lost an event.
    #[must_use]
    pub fn verify_every(mut self, period: Duration) -> Self {
        self.pipeline.reflector.verify_every = period;
        self
    }

    /// Takes objects without their bodies, which come under a kind of their own.
    pub(super) fn metadata_only(mut self) -> Self {
        self.pipeline.metadata_only = true;
        self
    }

    /// Builds the informer, which is not yet running.
    pub fn build(mut self) -> SharedInformer<K> {
        let (name, resync) = (self.pipeline.name::<K>(&self.kind), self.pipeline.resync);
        let env = self.env.fork(&format!("informer {name}"));
        let (maker, decoded) = self.pipeline.maker::<K>(&self.kind);
        let store = Indexer::new(&env, self.indexes);
        let hasher = env.generator.fork("handlers").hasher();
        let queue = DeltaQueue::new(self.pipeline.queue.make(&env), &env).name(&name);
        let pump = Pump {
            metrics: self.pipeline.guarded_metrics(&name, &env.reporter),
            name,
            env,
            queue: Arc::new(queue.known_objects(store.clone()).bound(self.pipeline.bound)),
            health: Arc::default(),
            stopped: Latch::default(),
        };
        let inner = Arc::new(Inner {
            optional: self.pipeline.reflector.optional.clone(),
            verify: self.pipeline.reflector.verify_requests.clone(),
            store,
            pump: Arc::new(pump),
            processor: Mutex::new(Processor::new(resync, hasher)),
            life: Mutex::new(Life::Ready((self.source)(maker, self.pipeline.reflector))),
            default_resync: resync,
            synced: Arc::default(),
            stopped: Latch::default(),
            decoded,
            metadata: self.metadata,
            kind: self.kind,
        });
        inner.pump.metrics.made(Arc::downgrade(&(inner.clone() as Arc<dyn Observed>)));
        SharedInformer(inner)
    }
}

impl<K: Kind> SharedInformer<K> {
    /// Returns the builder of an informer for a kind known at compile time.
    pub fn builder<S: ListerWatcher>(source: S, env: &Env) -> SharedInformerBuilder<K>
    where
        K::DynamicType: Default,
    {
        Self::builder_of(K::DynamicType::default(), source, env)
    }

    /// Returns the builder of an informer for a kind known at run time.
    pub fn builder_of<S: ListerWatcher>(
        kind: K::DynamicType,
        source: S,
        env: &Env,
    ) -> SharedInformerBuilder<K> {
        SharedInformerBuilder {
            kind,
            env: env.clone(),
            source: start_from(source),
            indexes: Vec::new(),
            pipeline: Pipeline::default(),
            metadata: None,
        }
    }

    /// Adds a handler with the informer's own settings. One that joins late is notified of every object first.
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
        // Lock order: `life` first, then `processor`.
        let mut life = inner.life.lock();
        if matches!(*life, Life::Stopped) {
            return Err(InformerStopped { handler: name, kind: inner.pump.name.clone() });
        }
        let mut processor = inner.processor.lock();
        let period = options.resync.unwrap_or(inner.default_resync);
        let now = inner.pump.env.clock.now();
        let listener = processor.add(Box::new(handler), name, period, options.bound, now);
        let registration = Registration { mailbox: listener.mailbox.clone() };
        if let Life::Running { tasks, runtime } = &mut *life {
            let add =
                |object: &Object<K>| Notification::Add { object: object.clone(), in_initial_list: true };
            let snapshot = inner.store.snapshot();
            let direct = listener.direct.clone();
            let turn = direct.as_ref().map(|direct| direct.initial_turn());
            if turn.is_none() {
                listener.mailbox.put(snapshot.iter().map(add));
            }
            if inner.synced.is_set() {
                listener.mailbox.upstream_synced();
            }
            inner.spawn(listener, tasks, runtime);
            drop((processor, life));
            if let (Some(direct), Some(turn)) = (&direct, turn) {
                direct.call_initial(turn, snapshot.iter().map(add), &inner.pump.env);
            }
        }
        Ok(registration)
    }

    /// Removes a handler. A running callback finishes; pending notifications are dropped. A second call does nothing,
    /// nor does a registration of another informer. To wait for the end of the callback, see [`Registration::ended`].
    pub fn remove_handler(&self, registration: &Registration<K>) {
        let removed = self.0.processor.lock().remove(&registration.mailbox);
        removed.into_iter().for_each(Listener::close);
    }

    /// Runs until `stop`: reflector and store end first, then the handlers. A second call returns at once.
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
                    tracing::warn!(kind = inner.pump.name, "the informer has been started already");
                    return;
                }
            }
        };
        let ending = Ending(inner);
        run(inner.pump.clone(), inner.clone(), stop).await;
        let mut tasks = ending.end();
        while tasks.join_next().await.is_some() {}
    }

    /// Returns whether the store has the initial list and all handlers' mailboxes have its objects. Handlers that [see
    /// every state](Handler::sees_every_state) have been notified of them.
    pub fn has_synced(&self) -> bool {
        self.0.synced.is_set()
    }

    /// Waits until [`SharedInformer::has_synced`], possibly forever; see [`SharedInformer::synced_or_stopped`].
    /// Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.0.synced.wait().await;
    }

    /// Waits until the informer has synced or stopped, and returns whether it has synced. Cancel-safe.
    pub async fn synced_or_stopped(&self) -> bool {
        tokio::select! {
            biased;
            () = self.0.synced.wait() => true,
            () = self.0.stopped.wait() => false,
        }
    }

    /// Waits until the store reflects everything that the API server has now, by a consistent list of metadata. What the watch has
    /// lost is listed again, counted and reported, as by [`SharedInformer::verify`]. An informer of another source is not waited
    /// for. Cancel-safe.
    pub(crate) async fn catch_up(&self) {
        let pump = &self.0.pump;
        let Some(metadata) = &self.0.metadata else { return };
        let is_parked = || pump.health.lock().phase == Phase::Parked;
        let verify = || self.verify().map_ok(drop).boxed();
        let caught_up = catch_up(&self.0.store, metadata, &pump.name, &pump.env, is_parked, verify).await;
        if caught_up == CaughtUp::ByItself {
            pump.metrics.verified(0);
            pump.health.lock().verified = Some(pump.env.clock.now());
        }
    }

    /// Returns whether the informer has run and stopped.
    pub fn is_stopped(&self) -> bool {
        matches!(*self.0.life.lock(), Life::Stopped)
    }

    /// Whether both are clones of one informer.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Compares the cache with the server's newest state, by a list of metadata. If objects differ, and no event about them arrives
    /// within ten seconds, it lists again; handlers are notified as after every list.
    ///
    /// When it returns, the cache is at least as new as the server was when it was called. It waits while the informer does not
    /// run or cannot watch, and until then has no deadline. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The informer has stopped, or the list failed.
    pub async fn verify(&self) -> Result<Verified, VerifyError> {
        let inner = &*self.0;
        let verified = async {
            let verified = inner.verify.add().await.unwrap_or_else(|_| Err(inner.stopped_error()))?;
            inner.store.wait_until_fresh(&verified.version).await;
            Ok(verified)
        };
        tokio::select! {
            biased;
            verified = verified => verified,
            () = inner.stopped.wait() => Err(inner.stopped_error()),
        }
    }

    /// Takes back [`SharedInformerBuilder::optional`]: another user of the informer needs the kind.
    pub(crate) fn require(&self) {
        self.0.optional.store(false, Ordering::Relaxed);
    }

    /// Returns the store.
    pub fn indexer(&self) -> &Indexer<K> {
        &self.0.store
    }

    /// Returns a lister of typed objects.
    pub fn lister(&self) -> Lister<K> {
        Lister::following(self.0.store.clone(), K::plural(&self.0.kind), self.0.synced.clone())
    }

    /// Returns the kind, for one that is known only at run time.
    pub fn kind(&self) -> &K::DynamicType {
        &self.0.kind
    }

    /// Returns the name in reports.
    pub fn name(&self) -> &str {
        &self.0.pump.name
    }

    /// Returns the health of the reflector.
    pub fn health(&self) -> Health {
        self.0.pump.health.lock().clone()
    }

    /// Waits until the cache begins or ends to be [stale](Health::stale_since) after this call. Cancel-safe.
    pub(crate) fn staleness_turns(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.pump.health.turn()
    }

    /// Returns the version of the last change that the reflector queued; the store may lag behind it.
    pub fn last_sync_version(&self) -> ResourceVersion {
        self.0.pump.health.lock().version.clone()
    }

    /// Returns the statistics of queue, store and handlers.
    pub fn stats(&self) -> InformerStats {
        self.0.stats()
    }
}

impl<K: Kind> Observed for Inner<K> {
    fn stats(&self) -> InformerStats {
        let (queue, snapshot) = (&self.pump.queue, self.store.snapshot());
        let now = self.pump.env.clock.now();
        let since = |at: Instant| now.saturating_duration_since(at);
        let (last_contact, degraded) = {
            let health = self.pump.health.lock();
            let since = health.degraded.as_ref().map(|(since, _)| *since);
            (health.last_contact, since.zip(health.cause()))
        };
        InformerStats {
            queued: queue.len(),
            queued_bytes: queue.bytes(),
            objects: snapshot.len(),
            bytes: snapshot.bytes(),
            version: snapshot.version().clone(),
            decodes: self.decoded.decodes(),
            silent_for: last_contact.map(since),
            degraded: degraded.map(|(at, cause)| (since(at), cause)),
            handlers: self.processor.lock().stats(),
        }
    }
}

impl<K: Kind> Inner<K> {
    fn stopped_error(&self) -> VerifyError {
        VerifyError::Stopped(self.pump.name.clone())
    }

    /// Starts the task of a handler, which [`SharedInformer::run`] waits for.
    fn spawn(&self, listener: &mut Listener<K>, tasks: &mut JoinSet<()>, runtime: &tokio::runtime::Handle) {
        // Tasks of removed handlers have ended by now.
        while tasks.try_join_next().is_some() {}
        let mailbox = listener.mailbox.clone();
        match listener.handler.take() {
            Some(handler) => tasks.spawn_on(deliver(mailbox, handler, self.pump.env.clone()), runtime),
            // Called directly, possibly on another thread when the informer stops.
            None => tasks.spawn_on(async move { Registration { mailbox }.ended().await }, runtime),
        };
    }
}

impl<K: Kind> Consumer<K> for Inner<K> {
    fn process(&self, popped: &Popped<K>) -> Outcome {
        let (undelivered, panics) = {
            let processor = self.processor.lock();
            let (notifications, panics) = apply_unreported(&self.store, popped);
            (processor.distribute(notifications), panics)
        };
        panics.report();
        undelivered.deliver(&self.pump.env);
        Outcome::Done
    }

    fn synced(&self) {
        let processor = self.processor.lock();
        self.synced.set();
        processor.upstream_synced();
    }

    fn check_period(&self) -> Option<Duration> {
        self.processor.lock().check_period()
    }

    fn is_due(&self, now: Instant) -> bool {
        self.processor.lock().mark_due(now)
    }
}

/// Marks the informer as stopped and closes its handlers, also if its future is dropped.
struct Ending<'a, K: Kind>(&'a Inner<K>);

impl<K: Kind> Ending<'_, K> {
    fn end(&self) -> JoinSet<()> {
        let life = std::mem::replace(&mut *self.0.life.lock(), Life::Stopped);
        let listeners = self.0.processor.lock().stop();
        listeners.into_iter().for_each(Listener::close);
        self.0.pump.health.lock().phase = Phase::Stopped;
        self.0.stopped.set();
        match life {
            Life::Running { tasks, .. } => tasks,
            Life::Ready(_) | Life::Stopped => JoinSet::new(),
        }
    }
}

impl<K: Kind> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        // After a regular end nothing is left; otherwise the tasks are aborted with the set.
        drop(self.end());
    }
}

impl<K: Kind> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> fmt::Debug for SharedInformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerBuilder")
            .field("kind", &self.kind)
            .field("queue", &self.pipeline.queue)
            .finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("kind", &self.0.pump.name)
            .field("store", &self.0.store)
            .finish()
    }
}
