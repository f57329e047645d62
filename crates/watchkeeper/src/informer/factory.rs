//! Who makes informers? A factory: one per kind, on first use, started and stopped together.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::shared::{QueueKind, SharedInformer};
use crate::object::{Keep, Kind, Transform};
use crate::reflector::ListMode;
use crate::source::{ApiSource, Clients, Scope, Selection};
use crate::store::namespace_index;

/// Makes informers on first use and keeps one per kind. Clones share them.
///
/// Its tasks are its own: when the last clone is dropped, they are stopped.
#[derive(Clone)]
pub struct SharedInformerFactory(Arc<Inner>);

struct Inner {
    clients: Clients,
    settings: Settings,
    informers: Mutex<BTreeMap<Key, Entry>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Clone, Debug, Default)]
struct Settings {
    resync: Duration,
    scope: Scope,
    selection: Selection,
    queue: QueueKind,
    keep: Keep,
    list: ListMode,
    transform: Option<Transform>,
    /// These win over the one for all.
    transforms: BTreeMap<TypeId, Transform>,
}

/// The type, and what tells kinds of one type apart at run time.
type Key = (TypeId, String);

struct Entry {
    informer: Arc<dyn AnyInformer>,
    started: bool,
}

/// An informer whose kind is forgotten.
trait AnyInformer: Any + Send + Sync {
    fn name(&self) -> &str;
    fn run(&self, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn has_synced(&self) -> bool;
    /// Whether it has synced, once it has or has stopped.
    fn synced(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
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

    fn synced(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.synced_or_stopped())
    }
}

/// Some caches did not sync before the stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to sync all caches: {}", kinds.join(", "))]
pub struct NotSynced {
    /// The kinds whose caches did not sync.
    pub kinds: Vec<String>,
}

/// Settings of a [`SharedInformerFactory`].
#[derive(Debug)]
pub struct FactoryBuilder {
    clients: Clients,
    settings: Settings,
}

impl FactoryBuilder {
    /// Tells handlers of every object again after each `period`; zero, the default, is never.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.settings.resync = period;
        self
    }

    /// Looks at one namespace only.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.settings.scope = Scope::Namespace(namespace.to_owned());
        self
    }

    /// Looks at the objects of a selection only.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.settings.selection = selection;
        self
    }

    /// Uses that queue in all informers.
    #[must_use]
    pub fn queue(mut self, queue: QueueKind) -> Self {
        self.settings.queue = queue;
        self
    }

    /// Keeps so many decoded values per informer.
    #[must_use]
    pub fn keep_decoded(mut self, keep: Keep) -> Self {
        self.settings.keep = keep;
        self
    }

    /// Reads whole states in that way, in all informers.
    #[must_use]
    pub fn list_mode(mut self, mode: ListMode) -> Self {
        self.settings.list = mode;
        self
    }

    /// Changes the objects of all kinds before they are cached, but for kinds with a transform of their own.
    #[must_use]
    pub fn transform(mut self, transform: Transform) -> Self {
        self.settings.transform = Some(transform);
        self
    }

    /// Changes the objects of kind `K` before they are cached, instead of what is set for all; to have both, use [`Transform::then`]. All
    /// kinds known only at run time that share a type share its transform.
    #[must_use]
    pub fn transform_of<K: Kind>(mut self, transform: Transform) -> Self {
        self.settings.transforms.insert(TypeId::of::<K>(), transform);
        self
    }

    /// The factory, without any informer yet.
    pub fn build(self) -> SharedInformerFactory {
        let Self { clients, settings } = self;
        SharedInformerFactory(Arc::new(Inner {
            clients,
            settings,
            informers: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }
}

impl SharedInformerFactory {
    /// A factory of informers that list and watch through `clients`.
    pub fn builder(clients: &Clients) -> FactoryBuilder {
        FactoryBuilder { clients: clients.clone(), settings: Settings::default() }
    }

    /// The informer of a kind known at compile time.
    pub fn informer<K: Kind<DynamicType: Default>>(&self) -> SharedInformer<K> {
        self.informer_of(K::DynamicType::default())
    }

    /// The informer of a kind known at run time.
    pub fn informer_of<K: Kind>(&self, kind: K::DynamicType) -> SharedInformer<K> {
        let Inner { clients, settings, informers, .. } = &*self.0;
        let key = (TypeId::of::<K>(), format!("{kind:?}"));
        let mut informers = informers.lock();
        let entry = informers.entry(key).or_insert_with(|| {
            let source = ApiSource::new::<K>(clients.watch().clone(), &kind, &settings.scope)
                .select(settings.selection.clone());
            let mut builder = SharedInformer::<K>::builder_of(kind, clients.env())
                .resync(settings.resync)
                .queue(settings.queue)
                .keep_decoded(settings.keep)
                .list_mode(settings.list)
                .indexes([namespace_index()]);
            let own = settings.transforms.get(&TypeId::of::<K>());
            if let Some(transform) = own.or(settings.transform.as_ref()) {
                builder = builder.transform(transform.clone());
            }
            Entry { informer: Arc::new(builder.build(source)), started: false }
        });
        let informer: &dyn Any = &*entry.informer;
        match informer.downcast_ref::<SharedInformer<K>>() {
            Some(informer) => informer.clone(),
            None => unreachable!("informers are kept by their type"),
        }
    }

    /// Starts every informer that has not been started; may be called again after more were made. Must be called on a tokio runtime.
    pub fn start(&self, stop: &CancellationToken) {
        let mut tasks = self.0.tasks.lock();
        for entry in self.0.informers.lock().values_mut().filter(|entry| !entry.started) {
            entry.started = true;
            let (informer, stop) = (entry.informer.clone(), stop.clone());
            let reporter = self.0.clients.env().reporter.clone();
            tasks.spawn(async move {
                if let Err(payload) = AssertUnwindSafe(informer.run(stop)).catch_unwind().await {
                    reporter.panic("informer", informer.name(), payload.as_ref());
                }
            });
        }
    }

    /// Waits until every started informer has synced; the error names those that had not when `stop` came or they stopped. Cancel-safe.
    pub async fn wait_for_sync(&self, stop: &CancellationToken) -> Result<(), NotSynced> {
        let started: Vec<_> = {
            let informers = self.0.informers.lock();
            informers.values().filter(|entry| entry.started).map(|entry| entry.informer.clone()).collect()
        };
        stop.run_until_cancelled(join_all(started.iter().map(|informer| informer.synced()))).await;
        let mut kinds: Vec<_> =
            started.iter().filter(|i| !i.has_synced()).map(|i| i.name().to_owned()).collect();
        kinds.sort();
        if kinds.is_empty() { Ok(()) } else { Err(NotSynced { kinds }) }
    }

    /// Waits until every informer has stopped. It stops none: that is what the token given to [`SharedInformerFactory::start`] is for.
    /// Cancel-safe, and may be called more than once.
    pub async fn shut_down(&self) {
        while poll_fn(|context| self.0.tasks.lock().poll_join_next(context)).await.is_some() {}
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.0.informers.lock();
        let names: Vec<_> = informers.values().map(|entry| entry.informer.name()).collect();
        f.debug_struct("SharedInformerFactory").field("informers", &names).finish()
    }
}
