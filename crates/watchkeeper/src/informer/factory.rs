//! The informer factory: one informer per kind, made on first use, started and stopped together.

use std::any::{Any, TypeId};
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, ReentrantMutex};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use super::factory_settings::{Settings, SharedInformerFactoryBuilder};
use super::lister::Lister;
use super::metrics::{InformerId, InformerStats};
use super::shared::{SharedInformer, SharedInformerBuilder};
use super::synced::{NotSynced, Synced, wait_for_sync};
use crate::object::Kind;
use crate::reflector::Health;
use crate::report::panic_message;
use crate::source::{ApiSource, Client, Scope, Selection};
use crate::store::namespace_index;

/// Makes informers on first use and keeps one per kind, scope and selection. Clones share them.
///
/// The factory owns the tasks of its informers: they stop when its last clone is dropped.
///
/// ```no_run
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
/// use watchkeeper::SharedInformerFactory;
/// # async fn run(client: watchkeeper::Client, stop: tokio_util::sync::CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = SharedInformerFactory::builder(&client).build();
/// let deployments = factory.lister::<Deployment>();
/// let system_pods = factory.in_namespace("kube-system").informer::<Pod>();
/// factory.start(&stop);
/// factory.wait_for_sync(&stop).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SharedInformerFactory {
    shared: Arc<Shared>,
    scope: Scope,
    selection: Selection,
    metadata_only: bool,
}

pub(super) struct Shared {
    pub(super) client: Client,
    settings: Settings,
    /// In the order in which they were made, which is that of their start: it must not depend on the binary.
    pub(super) informers: Mutex<Vec<(Key, Entry)>>,
    /// Held while the caller's code makes an informer: no other thread makes the same one, and the code may request
    /// others.
    making: ReentrantMutex<()>,
    tasks: Mutex<Tasks>,
    /// Held by the task that waits for the informers: a set of tasks wakes only one waiter.
    joining: tokio::sync::Mutex<()>,
    /// The first informer that panicked. Kept apart, as the tasks that set it must not keep the factory alive.
    pub(super) panicked: Arc<OnceLock<InformerPanicked>>,
}

#[derive(Default)]
struct Tasks {
    running: JoinSet<()>,
    /// Whether starting is over.
    joined: bool,
}

/// The identity of an informer.
#[derive(PartialEq, Eq)]
pub(super) struct Key {
    type_id: TypeId,
    /// Distinguishes kinds of one type at run time.
    kind: String,
    pub(super) scope: Scope,
    pub(super) selection: Selection,
    metadata_only: bool,
}

pub(super) struct Entry {
    pub(super) informer: Arc<dyn AnyInformer>,
    started: bool,
}

/// An informer with its type erased.
pub(super) trait AnyInformer: Any + Send + Synced {
    fn name(&self) -> &str;
    fn run(&self, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn has_synced(&self) -> bool;
    fn health(&self) -> Health;
    /// Returns the plural name of the kind with its group.
    fn resource(&self) -> String;
    /// Returns group, version, kind and plural.
    fn kind_names(&self) -> (String, String, String, String);
    fn stats(&self) -> InformerStats;
    fn catch_up(&self) -> BoxFuture<'_, ()>;
}

impl<K: Kind> AnyInformer for SharedInformer<K> {
    fn name(&self) -> &str {
        self.name()
    }

    fn run(&self, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.run(stop))
    }

    fn has_synced(&self) -> bool {
        self.has_synced()
    }

    fn health(&self) -> Health {
        self.health()
    }

    fn resource(&self) -> String {
        let (plural, group) = (K::plural(self.kind()), K::group(self.kind()));
        if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
    }

    fn kind_names(&self) -> (String, String, String, String) {
        let kind = self.kind();
        let names = (K::group(kind), K::version(kind), K::kind(kind), K::plural(kind));
        (names.0.into_owned(), names.1.into_owned(), names.2.into_owned(), names.3.into_owned())
    }

    fn stats(&self) -> InformerStats {
        self.stats()
    }

    fn catch_up(&self) -> BoxFuture<'_, ()> {
        self.catch_up().boxed()
    }
}

/// The error of an informer that panicked: its cache does not change any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {name} was ended by a panic, and its cache is out of date from then on: {message}")]
pub struct InformerPanicked {
    /// The plural name of the kind, with its scope and selection if they are narrowed.
    pub name: String,
    /// The message of the panic.
    pub message: String,
}

/// The error of caches that do not reflect what the API server has had for a while.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("caches are behind the API server after {patience:?}: {}", behind.join(", "))]
pub struct CachesBehind {
    /// The plural names of their kinds, with scope and selection if they are narrowed.
    pub behind: Vec<String>,
    /// How long they had.
    pub patience: Duration,
}

impl SharedInformerFactory {
    /// Returns the builder of a factory whose informers list and watch through `client`.
    pub fn builder(client: &Client) -> SharedInformerFactoryBuilder {
        SharedInformerFactoryBuilder::new(client)
    }

    pub(super) fn new(client: Client, settings: Settings) -> Self {
        let (scope, selection) = (settings.scope.clone(), settings.selection.clone());
        let shared = Shared {
            client,
            settings,
            informers: Mutex::default(),
            making: ReentrantMutex::default(),
            tasks: Mutex::default(),
            joining: tokio::sync::Mutex::default(),
            panicked: Arc::default(),
        };
        Self { shared: Arc::new(shared), scope, selection, metadata_only: false }
    }

    /// Returns the same factory for informers of one namespace, or of all if it is empty.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { scope: Scope::Namespace(namespace.to_owned()), ..self.clone() }
    }

    /// Returns the same factory for informers of the whole cluster.
    #[must_use]
    pub fn cluster_wide(&self) -> Self {
        Self { scope: Scope::Cluster, ..self.clone() }
    }

    /// Returns the same factory for informers of the objects of a selection.
    #[must_use]
    pub fn selecting(&self, selection: Selection) -> Self {
        Self { selection, ..self.clone() }
    }

    /// The same factory, for informers that cache only the metadata of objects. They decode into their type only where it has no
    /// other required fields.
    #[must_use]
    pub fn metadata_only(&self) -> Self {
        Self { metadata_only: true, ..self.clone() }
    }

    /// Returns the informer of a kind known at compile time.
    pub fn informer<K: Kind<DynamicType: Default>>(&self) -> SharedInformer<K> {
        self.informer_of(K::DynamicType::default())
    }

    /// Returns the informer of a kind known at run time.
    pub fn informer_of<K: Kind>(&self, kind: K::DynamicType) -> SharedInformer<K> {
        self.informer_with(kind, SharedInformerBuilder::build)
    }

    /// Returns the informer of a kind, made by `make` if there is none yet. The builder has the factory's settings and
    /// source. `make` may request other informers of the factory.
    ///
    /// ```no_run
    /// # use watchkeeper::SharedInformerFactory;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn pods(factory: SharedInformerFactory) {
    /// let pods = factory
    ///     .informer_with::<Pod>((), |builder| builder.keep_managed_fields().page_size(1000).build());
    /// # }
    /// ```
    pub fn informer_with<K: Kind>(
        &self,
        kind: K::DynamicType,
        make: impl FnOnce(SharedInformerBuilder<K>) -> SharedInformer<K>,
    ) -> SharedInformer<K> {
        let Self { shared, selection, metadata_only, .. } = self;
        let scope = self.scope.of_kind::<K>();
        let key = Key {
            type_id: TypeId::of::<K>(),
            kind: format!("{kind:?}"),
            scope: scope.clone(),
            selection: selection.clone(),
            metadata_only: *metadata_only,
        };
        let _making = shared.making.lock();
        let informer = shared.find(&key).unwrap_or_else(|| {
            let made: Arc<dyn AnyInformer> = Arc::new(make(self.builder_of::<K>(kind)));
            // `make` may have requested the same one.
            shared.find(&key).unwrap_or_else(|| {
                shared.informers.lock().push((key, Entry { informer: made.clone(), started: false }));
                made
            })
        });
        let informer: &dyn Any = &*informer;
        match informer.downcast_ref::<SharedInformer<K>>() {
            Some(informer) => informer.clone(),
            None => unreachable!("informers are kept by their type"),
        }
    }

    /// The builder of an informer with the factory's settings and source, which the factory does not keep: for informers that
    /// their owner starts and stops.
    pub fn builder_of<K: Kind>(&self, kind: K::DynamicType) -> SharedInformerBuilder<K> {
        let scope = self.scope.of_kind::<K>();
        self.shared.prepare::<K>(kind, &scope, &self.selection, self.metadata_only)
    }

    /// Returns the lister of a kind known at compile time; its informer is made if there is none yet.
    pub fn lister<K: Kind<DynamicType: Default>>(&self) -> Lister<K> {
        self.informer::<K>().lister()
    }

    /// Starts every informer that has not been started, in the order in which they were made; may be called again after
    /// more were made. No informer starts after [`SharedInformerFactory::join`]. Must be called on a tokio runtime.
    ///
    /// An informer that panics, for example because its source does, cancels `stop`, so that no controller goes on with
    /// a stale cache. Pass a child token if parts depend on the token that do not depend on the caches. `join` returns
    /// which informer it was.
    pub fn start(&self, stop: &CancellationToken) {
        let mut tasks = self.shared.tasks.lock();
        if tasks.joined {
            tracing::warn!("the factory is being joined: it starts no informers any more");
            return;
        }
        for (key, entry) in self.shared.informers.lock().iter_mut().filter(|(_, entry)| !entry.started) {
            entry.started = true;
            let (informer, stop) = (entry.informer.clone(), stop.clone());
            let (name, panicked) = (key.describe(informer.name()), self.shared.panicked.clone());
            let reporter = self.shared.client.env().reporter.clone();
            tasks.running.spawn(async move {
                if let Err(payload) = AssertUnwindSafe(informer.run(stop.clone())).catch_unwind().await {
                    reporter.panic("informer", &name, payload.as_ref());
                    let message = panic_message(payload.as_ref()).to_owned();
                    panicked.get_or_init(|| InformerPanicked { name, message });
                    stop.cancel();
                }
            });
        }
    }

    /// Returns the informers that were started, with their names.
    fn started(&self) -> Vec<(String, Arc<dyn AnyInformer>)> {
        let informers = self.shared.informers.lock();
        let started = informers.iter().filter(|(_, entry)| entry.started);
        started.map(|(key, entry)| (key.describe(entry.informer.name()), entry.informer.clone())).collect()
    }

    /// Waits until every started informer has synced. The error names those that had not when `stop` was cancelled or
    /// they stopped, and their last problem. Cancel-safe.
    pub async fn wait_for_sync(&self, stop: &CancellationToken) -> Result<(), NotSynced> {
        let started = self.started();
        let caches: Vec<_> =
            started.iter().map(|(name, informer)| (name.as_str(), &**informer as &dyn Synced)).collect();
        wait_for_sync(&caches, stop).await.map_err(|mut error| {
            error.unsynced.sort_by(|a, b| a.name.cmp(&b.name));
            error.synced.sort();
            error
        })
    }

    /// Waits until every started informer's cache reflects everything that the API server has now, however far behind its watch is.
    /// The error names those that do not when `patience` is over. Cancel-safe.
    ///
    /// What a watch has lost, so that it does not bring it within fifteen seconds, is listed again, counted and reported, as by
    /// [`SharedInformer::verify`]. The empty cache of a kind that is not served reflects that. A replica that takes over from
    /// another needs this: with a cache that lacks what the other has just created, it would create it again.
    ///
    /// # Errors
    ///
    /// The caches that are behind.
    pub async fn catch_up(&self, patience: Duration) -> Result<(), CachesBehind> {
        let started = self.started();
        let clock = &self.shared.client.env().clock;
        let waits = started.iter().map(|(name, informer)| async move {
            clock.timeout(patience, informer.catch_up()).await.err().map(|_| name.clone())
        });
        let behind: Vec<_> = join_all(waits).await.into_iter().flatten().collect();
        if behind.is_empty() { Ok(()) } else { Err(CachesBehind { behind, patience }) }
    }

    /// Waits until every informer has stopped. It does not stop them; that is what the token of
    /// [`SharedInformerFactory::start`] is for. The error names the informer that panicked, if one did. Cancel-safe,
    /// and may be called more than once, also by several tasks at a time.
    pub async fn join(&self) -> Result<(), InformerPanicked> {
        self.shared.tasks.lock().joined = true;
        let _turn = self.shared.joining.lock().await;
        while poll_fn(|context| self.shared.tasks.lock().running.poll_join_next(context)).await.is_some() {}
        self.shared.panicked.get().map_or(Ok(()), |panicked| Err(panicked.clone()))
    }

    /// Returns the state of all caches, for a health check. It does not keep the factory alive.
    pub fn caches(&self) -> Caches {
        Caches(Arc::downgrade(&self.shared))
    }
}

impl Shared {
    fn find(&self, key: &Key) -> Option<Arc<dyn AnyInformer>> {
        let informers = self.informers.lock();
        informers.iter().find(|(known, _)| known == key).map(|(_, entry)| entry.informer.clone())
    }

    /// Returns the builder of an informer, with all settings.
    fn prepare<K: Kind>(
        &self,
        kind: K::DynamicType,
        scope: &Scope,
        selection: &Selection,
        metadata_only: bool,
    ) -> SharedInformerBuilder<K> {
        let Self { client, settings, .. } = self;
        let mut source = ApiSource::new::<K>(client, &kind, scope).select(selection.clone());
        if let Some(edit) = &settings.edit {
            source = source.edit_options_with(edit.clone());
        }
        let metadata = source.clone().metadata_only();
        if metadata_only {
            source = source.metadata_only();
        }
        let of_kind = settings.of_kind.get(&TypeId::of::<K>());
        let id = InformerId::new::<K>(&narrowed(&settings.name, scope, selection), &kind);
        let mut builder = SharedInformer::<K>::builder_of(kind, source, client.env())
            .resync(of_kind.and_then(|of| of.resync).unwrap_or(settings.resync))
            .queue(settings.queue)
            .keep_decoded(settings.keep)
            .list_mode(settings.list)
            .verify_every(settings.verify_every)
            .indexes([namespace_index()])
            .metadata_from(metadata);
        if let Some(transform) = of_kind.and_then(|of| of.transform.as_ref()).or(settings.transform.as_ref())
        {
            builder = builder.transform(transform.clone());
        }
        if metadata_only {
            builder = builder.metadata_only();
        }
        if let Some(bytes) = settings.max_object_size {
            builder = builder.max_object_size(bytes);
        }
        if let Some(provider) = &settings.metrics {
            builder = builder.metrics(provider.informer(id));
        }
        builder
    }
}

impl Key {
    pub(super) fn describe(&self, resource: &str) -> String {
        narrowed(resource, &self.scope, &self.selection)
    }
}

/// Returns `name` with its scope and selection if they are narrowed.
fn narrowed(name: &str, scope: &Scope, selection: &Selection) -> String {
    let mut name = name.to_owned();
    if let Some(namespace) = scope.namespace() {
        name += &format!(" in {namespace}");
    }
    for selector in [&selection.labels, &selection.fields] {
        if !selector.is_empty() {
            name += &format!(" with {selector}");
        }
    }
    name
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.informers.lock();
        let names = informers.iter().map(|(key, entry)| key.describe(entry.informer.name()));
        f.debug_list().entries(names).finish()
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory").field("informers", &self.shared).finish()
    }
}
