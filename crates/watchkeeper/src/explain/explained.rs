//! One controller, as it is registered to be explained.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::facts::{PastWrite, PendingWrite};
use super::key_view::ViewRelation;
use super::view::{HistogramView, KindView};
use super::watched::{AnyWatched, Watched, kind_view};
use crate::informer::SharedInformer;
use crate::object::{Kind, Object, ObjectName};
use crate::source::{Scope, Selection};
use crate::workqueue::RateLimitingQueue;

/// The writes of a controller that its caches have not seen, such as [`Writes`](crate::controller::Writes).
pub trait OpenWrites: Send + Sync {
    /// Returns those of one key.
    fn of_key(&self, key: &ObjectName) -> Vec<PendingWrite>;

    /// Returns the last writes of one key, also those that the caches have seen, the oldest first. None by default.
    fn recent(&self, key: &ObjectName) -> Vec<PastWrite> {
        let _ = key;
        Vec::new()
    }
}

/// A controller of kind `K`, to be [added](super::Explain::add) to what a program explains.
///
/// A [`Manager`](crate::controller::Manager) registers its controllers by itself. A program of low-level parts does so as
/// here:
///
/// ```
/// use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
/// use watchkeeper::explain::{Explain, Explained, ProgramPhase};
/// use watchkeeper::{Env, ObjectName, RateLimitingQueue, SharedInformerFactory};
///
/// # fn register(env: &Env, factory: &SharedInformerFactory, queue: &RateLimitingQueue<ObjectName>) {
/// let explain = Explain::new("set-controller", env);
/// explain.informers(factory);
/// explain.add(
///     Explained::new("deployment", queue, &factory.informer::<Deployment>())
///         .owns(&factory.informer::<ReplicaSet>())
///         .workers(2),
/// );
/// explain.set_phase(ProgramPhase::Running); // once the workers run
/// # }
/// ```
#[must_use = "a controller is given to Explain::add"]
pub struct Explained<K: Kind> {
    pub(super) known: Known,
    kind: K::DynamicType,
}

/// A controller of any kind.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) kind: KindView,
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) workers: usize,
    pub(super) mains: Vec<Arc<dyn AnyWatched>>,
    pub(super) related: Vec<(ViewRelation, Arc<dyn AnyWatched>)>,
    pub(super) has_predicates: bool,
    pub(super) finalizer: Option<String>,
    pub(super) writes: Option<Arc<dyn OpenWrites>>,
    pub(super) runs: Option<Box<dyn Fn() -> Runs + Send + Sync>>,
}

/// What a controller says of its runs.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) active: usize,
    pub(crate) is_paused: bool,
    pub(crate) reconciles: BTreeMap<String, u64>,
    pub(crate) terminal: u64,
    pub(crate) panics: u64,
    pub(crate) timeouts: u64,
    pub(crate) times: HistogramView,
}

impl<K: Kind> Explained<K> {
    /// Returns the controller `name`, which reconciles the keys of `queue`, those of the objects of `informer`.
    pub fn new(name: &str, queue: &RateLimitingQueue<ObjectName>, informer: &SharedInformer<K>) -> Self {
        let explained = Self::of(name, queue, informer.kind().clone());
        explained.also(informer, Scope::Cluster, Selection::default())
    }

    /// Returns the same without an informer.
    pub(crate) fn of(name: &str, queue: &RateLimitingQueue<ObjectName>, kind: K::DynamicType) -> Self {
        let known = Known {
            name: name.to_owned(),
            kind: kind_view::<K>(&kind),
            queue: queue.clone(),
            workers: 1,
            mains: Vec::new(),
            related: Vec::new(),
            has_predicates: false,
            finalizer: None,
            writes: None,
            runs: None,
        };
        Self { known, kind }
    }

    /// Adds an informer of the objects whose keys are reconciled, which has those of a scope and a selection.
    pub fn also(mut self, informer: &SharedInformer<K>, scope: Scope, selection: Selection) -> Self {
        let informer = informer.clone();
        let watched = Watched { informer, scope, selection, metadata_only: false, mapping: None };
        self.known.mains.push(Arc::new(watched));
        self
    }

    /// Adds the informer of a kind whose objects' owners are reconciled.
    pub fn owns<W: Kind>(mut self, informer: &SharedInformer<W>) -> Self {
        let kind = self.kind.clone();
        let mapping =
            move |object: &Object<W>| object.controller_of_kind::<K>(&kind).into_iter().collect::<Vec<_>>();
        let watched = Watched {
            informer: informer.clone(),
            scope: Scope::Cluster,
            selection: Selection::default(),
            metadata_only: false,
            mapping: Some(Box::new(mapping)),
        };
        self.known.related.push((ViewRelation::Owner, Arc::new(watched)));
        self
    }

    /// Sets the number of workers; 1 by default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.known.workers = workers;
        self
    }

    /// Adds the writes that its caches have not seen.
    pub fn writes(mut self, writes: impl OpenWrites + 'static) -> Self {
        self.known.writes = Some(Arc::new(writes));
        self
    }

    /// Says that predicates do not pass all updates of the objects.
    pub fn filtered(mut self) -> Self {
        self.known.has_predicates = true;
        self
    }

    pub(crate) fn main(mut self, watched: Watched<K>) -> Self {
        self.known.mains.push(Arc::new(watched));
        self
    }

    pub(crate) fn related(mut self, relation: ViewRelation, watched: Arc<dyn AnyWatched>) -> Self {
        self.known.related.push((relation, watched));
        self
    }

    pub(crate) fn finalizer(mut self, finalizer: Option<String>) -> Self {
        self.known.finalizer = finalizer;
        self
    }

    pub(crate) fn runs(mut self, runs: impl Fn() -> Runs + Send + Sync + 'static) -> Self {
        self.known.runs = Some(Box::new(runs));
        self
    }
}

impl<K: Kind> fmt::Debug for Explained<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explained").field("name", &self.known.name).finish_non_exhaustive()
    }
}
