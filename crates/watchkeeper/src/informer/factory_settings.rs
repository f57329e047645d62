//! Settings of a factory: for all informers, and for those of one kind.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::factory::SharedInformerFactory;
use super::metrics::MetricsProvider;
use crate::object::{Keep, Kind, Transform};
use crate::queue::QueueKind;
use crate::reflector::ListMode;
use crate::source::{Client, Edit, Query, Scope, Selection};

#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) resync: Duration,
    pub(super) scope: Scope,
    pub(super) selection: Selection,
    pub(super) queue: QueueKind,
    pub(super) keep: Keep,
    pub(super) list: ListMode,
    pub(super) verify_every: Duration,
    pub(super) max_object_size: Option<usize>,
    pub(super) transform: Option<Transform>,
    pub(super) edit: Option<Edit>,
    pub(super) metrics: Option<Arc<dyn MetricsProvider>>,
    /// These take precedence over those for all kinds.
    pub(super) of_kind: BTreeMap<TypeId, OfKind>,
}

#[derive(Clone, Default)]
pub(super) struct OfKind {
    pub(super) resync: Option<Duration>,
    pub(super) transform: Option<Transform>,
}

/// Settings of a [`SharedInformerFactory`].
pub struct SharedInformerFactoryBuilder {
    client: Client,
    settings: Settings,
}

impl SharedInformerFactoryBuilder {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone(), settings: Settings::default() }
    }

    /// Delivers every object again after each `period`; zero, the default, is never.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.settings.resync = period;
        self
    }

    /// Delivers every object of kind `K` again after each `period`, instead of the period for all kinds.
    #[must_use]
    pub fn resync_for<K: Kind>(mut self, period: Duration) -> Self {
        self.of_kind::<K>().resync = Some(period);
        self
    }

    /// Restricts informers to one namespace; an empty name means all. Cluster-scoped kinds are not affected.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.settings.scope = Scope::Namespace(namespace.to_owned());
        self
    }

    /// Restricts informers to the objects of a selection.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.settings.selection = selection;
        self
    }

    /// Calls `edit` with the options of every list and watch before it is sent.
    #[must_use]
    pub fn edit_options(mut self, edit: impl Fn(&mut Query) + Send + Sync + 'static) -> Self {
        self.settings.edit = Some(Arc::new(edit));
        self
    }

    /// Sets the queue of all informers.
    #[must_use]
    pub fn queue(mut self, queue: QueueKind) -> Self {
        self.settings.queue = queue;
        self
    }

    /// Sets the number of decoded values kept per informer.
    #[must_use]
    pub fn keep_decoded(mut self, keep: Keep) -> Self {
        self.settings.keep = keep;
        self
    }

    /// Sets the way in which all informers read whole states.
    #[must_use]
    pub fn list_mode(mut self, mode: ListMode) -> Self {
        self.settings.list = mode;
        self
    }

    /// Compares the caches of all informers with the server within each `period`; zero, the default, is never. See
    /// [`SharedInformerBuilder::verify_every`](super::SharedInformerBuilder::verify_every).
    #[must_use]
    pub fn verify_every(mut self, period: Duration) -> Self {
        self.settings.verify_every = period;
        self
    }

    /// Skips objects of more than `bytes`, in all informers; 16 MiB by default. See
    /// [`SharedInformerBuilder::max_object_size`](super::SharedInformerBuilder::max_object_size).
    #[must_use]
    pub fn max_object_size(mut self, bytes: usize) -> Self {
        self.settings.max_object_size = Some(bytes);
        self
    }

    /// Transforms the objects of all kinds before they are cached, except for kinds with a transform of their own.
    #[must_use]
    pub fn transform(mut self, transform: Transform) -> Self {
        self.settings.transform = Some(transform);
        self
    }

    /// Transforms the objects of kind `K` before they are cached, instead of the transform for all kinds; to have both,
    /// use [`Transform::then`]. All kinds that are known only at run time and share a type share its transform.
    #[must_use]
    pub fn transform_for<K: Kind>(mut self, transform: Transform) -> Self {
        self.of_kind::<K>().transform = Some(transform);
        self
    }

    /// Sets the factory's name in metrics, which distinguishes the factories of one process; empty by default.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.settings.name);
        self
    }

    /// Sets the metrics of all informers.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn MetricsProvider>) -> Self {
        self.settings.metrics = Some(metrics);
        self
    }

    /// Builds the factory, which has no informers yet.
    pub fn build(self) -> SharedInformerFactory {
        SharedInformerFactory::new(self.client, self.settings)
    }

    fn of_kind<K: Kind>(&mut self) -> &mut OfKind {
        self.settings.of_kind.entry(TypeId::of::<K>()).or_default()
    }
}

impl fmt::Debug for SharedInformerFactoryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { resync, scope, selection, queue, .. } = &self.settings;
        let mut f = f.debug_struct("SharedInformerFactoryBuilder");
        f.field("resync", resync).field("scope", scope).field("selection", selection).field("queue", queue);
        f.finish_non_exhaustive()
    }
}
