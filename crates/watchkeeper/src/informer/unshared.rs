//! The unshared informer: one handler, called in the loop itself.

use std::any::type_name;
use std::convert::Infallible;
use std::fmt;

use tokio_util::sync::CancellationToken;

use super::apply::apply;
use super::delta_controller::DeltaController;
use super::handler::Handler;
use super::listener::call;
use super::pipeline::{Pipeline, pipeline_settings};
use super::pump::{SourceStart, start_from};
use crate::env::Env;
use crate::object::{Kind, ResourceVersion};
use crate::queue::Popped;
use crate::reflector::Health;
use crate::source::ListerWatcher;
use crate::store::{Index, Indexer};

/// One watch, one cache and one handler of a kind, which is called in the loop itself. Clones share it.
///
/// The store shows a change, and everything that arrived with it, before the handler is notified, and nothing else
/// changes while the handler runs: a slow one delays the store. It is notified of every update, including those with an
/// unchanged version. If it panics, the panic is reported, and it goes on with the next change.
///
/// Objects may be added to the store before the start; the initial list removes those that it does not contain, and the
/// handler is notified.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::informer::{Change, Informer, on_change};
/// use watchkeeper::source::{Reply, ScriptedSource};
/// use watchkeeper::store::namespace_index;
/// use watchkeeper::{Env, Object};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = ScriptedSource::new();
/// source.on_list(Reply::body(r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#));
/// let (indexer, informer) = Informer::<Pod>::builder(source, &Env::simulated(1))
///     .handler(on_change(|change: Change<'_, Pod>| println!("{change:?}")))
///     .indexes([namespace_index()])
///     .build();
/// indexer.add(Object::from_json(br#"{"metadata":{"name":"mypod","namespace":"default"}}"#)?);
/// let stop = CancellationToken::new();
/// tokio::join!(informer.run(stop.clone()), async {
///     informer.wait_until_synced().await;
///     stop.cancel();
/// });
/// assert!(indexer.snapshot().is_empty());
/// # Ok(()) }
/// ```
pub struct Informer<K: Kind> {
    controller: DeltaController<K>,
    store: Indexer<K>,
}

/// Settings of an [`Informer`].
pub struct InformerBuilder<K: Kind> {
    kind: K::DynamicType,
    env: Env,
    source: SourceStart<K>,
    handler: Box<dyn Handler<K>>,
    handler_name: String,
    indexes: Vec<Index<K>>,
    pipeline: Pipeline,
}

impl<K: Kind> InformerBuilder<K> {
    /// Sets the handler of every change; none by default.
    #[must_use]
    pub fn handler<H: Handler<K>>(mut self, handler: H) -> Self {
        self.handler_name = type_name::<H>().to_owned();
        self.handler = Box::new(handler);
        self
    }

    /// Adds indexes to the store.
    #[must_use]
    pub fn indexes(mut self, indexes: impl IntoIterator<Item = Index<K>>) -> Self {
        self.indexes.extend(indexes);
        self
    }

    pipeline_settings!();

    /// Returns the store, to read from and to add objects to before the start, and the informer, which is not yet
    /// running.
    pub fn build(self) -> (Indexer<K>, Informer<K>) {
        let env = self.env.fork("unshared informer");
        let store = Indexer::new(&env, self.indexes);
        let (mut handler, name, into, notifying) = (self.handler, self.handler_name, store.clone(), env);
        let process = move |popped: &Popped<K>| {
            for notification in apply(&into, popped) {
                call(&notification, &mut *handler, &name, &notifying);
            }
            Ok::<(), Infallible>(())
        };
        let mut controller = DeltaController::builder_from(self.kind, self.source, process, &self.env)
            .known_objects(store.clone());
        controller.pipeline = self.pipeline;
        (store.clone(), Informer { controller: controller.build(), store })
    }
}

impl<K: Kind> Informer<K> {
    /// Returns the builder of an informer for a kind known at compile time.
    pub fn builder<S: ListerWatcher>(source: S, env: &Env) -> InformerBuilder<K>
    where
        K::DynamicType: Default,
    {
        Self::builder_of(K::DynamicType::default(), source, env)
    }

    /// Returns the builder of an informer for a kind known at run time.
    pub fn builder_of<S: ListerWatcher>(kind: K::DynamicType, source: S, env: &Env) -> InformerBuilder<K> {
        InformerBuilder {
            kind,
            env: env.clone(),
            source: start_from(source),
            handler: Box::new(Nobody),
            handler_name: "nobody".to_owned(),
            indexes: Vec::new(),
            pipeline: Pipeline::default(),
        }
    }

    /// Runs until `stop`; queued changes are then dropped. A second call is reported, and returns at once.
    ///
    /// Dropping the future stops everything as well.
    pub async fn run(&self, stop: CancellationToken) {
        self.controller.run(stop).await;
    }

    /// Returns whether the store has the initial list, and the handler was notified of it.
    pub fn has_synced(&self) -> bool {
        self.controller.has_synced()
    }

    /// Waits until [`Informer::has_synced`], possibly forever; see [`Informer::synced_or_stopped`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.controller.wait_until_synced().await;
    }

    /// Waits until the informer has synced or stopped, and returns whether it has synced. Cancel-safe.
    pub async fn synced_or_stopped(&self) -> bool {
        self.controller.synced_or_stopped().await
    }

    /// Returns the version of the last change that the reflector queued; unset before the first.
    pub fn last_sync_version(&self) -> ResourceVersion {
        self.controller.last_sync_version()
    }

    /// Returns the health of the reflector.
    pub fn health(&self) -> Health {
        self.controller.health()
    }

    /// Returns the store.
    pub fn indexer(&self) -> &Indexer<K> {
        &self.store
    }
}

/// A handler that does nothing.
struct Nobody;

impl<K> Handler<K> for Nobody {}

impl<K: Kind> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { controller: self.controller.clone(), store: self.store.clone() }
    }
}

impl<K: Kind> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("controller", &self.controller).field("store", &self.store).finish()
    }
}

impl<K: Kind> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder").field("kind", &self.kind).finish_non_exhaustive()
    }
}
