//! The builder of a controller: what it watches, how changes become keys, and what happens to a key.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;

use super::applied::Applied;
use super::attach::attach;
use super::caches::{CONTROLLER_INDEX, KindCaches, View};
use super::context::{Context, Shared, is_cluster_scoped, is_scope_unknown};
use super::figures::Figures;
use super::index_key::IndexKey;
use super::manager::{Manager, Registered, Verb};
use super::outcome::{Action, Error};
use super::reconcile::{Reconcile, ReconcileDeleted, Reconciler};
use super::relation::{Map, Passing};
use super::running::RunningController;
use super::setup::SetupError;
use super::stale::Pause;
use super::watch::Watch;
use super::writes::Writes;
use crate::clock::FAR;
use crate::explain::{AnyWatched, Explained, Mapping, ViewRelation};
use crate::object::{Kind, Object, ObjectName};
use crate::store::Index;
use crate::workqueue::{RateLimiter, RateLimitingQueue, Relation, enqueue, enqueue_mapped, limiter};

/// A controller in the making: assembled in one expression, which [`reconcile`](Self::reconcile) ends.
///
/// It is registered with a [`Manager`], which runs it. Its informers are shared with the manager's other controllers.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use watchkeeper::controller::{Action, Controller, Manager, SetupError, Watch};
///
/// fn register(manager: &mut Manager) -> Result<(), SetupError> {
///     Controller::<ConfigMap>::new(manager)
///         .owns(Watch::<Secret>::new())
///         .workers(2)
///         .reconcile(|map, cx| async move {
///             let mut secret = Secret::default();
///             secret.metadata.name = map.metadata.name.clone();
///             cx.apply(&secret).await?;
///             Ok(Action::done())
///         })
/// }
/// ```
#[must_use = "a controller is registered by its reconcile method"]
pub struct Controller<'m, K: Kind> {
    manager: &'m mut Manager,
    name: String,
    main: Watch<K>,
    indexes: Vec<IndexKey<K>>,
    relations: Vec<Wire<K>>,
    events: Vec<mpsc::Receiver<ObjectName>>,
    finalizer: Option<(String, Reconcile<K>)>,
    deleted: Option<ReconcileDeleted<K>>,
    limiter: Option<Box<dyn RateLimiter<ObjectName>>>,
    workers: usize,
    timeout: Option<Duration>,
    component: Option<String>,
}

/// Connects a related kind with the controller's queue.
type Wire<K> = Box<dyn FnOnce(&mut Manager, &Wiring<K>) -> Result<Related, SetupError>>;

/// The informers of a related kind, to be explained.
type Related = Vec<(ViewRelation, Arc<dyn AnyWatched>)>;

/// What relations are connected to.
struct Wiring<K: Kind> {
    controller: String,
    kind: K::DynamicType,
    queue: RateLimitingQueue<ObjectName>,
    mains: Arc<KindCaches<K>>,
}

impl<K: Kind> Wiring<K> {
    /// Caches a related kind, and enqueues the keys to which `map` maps its objects.
    fn attach<W: Kind>(
        &self,
        manager: &mut Manager,
        watch: &Watch<W>,
        relation: Relation,
        indexes: Vec<Index<W>>,
        map: Arc<Map<W, K>>,
    ) -> Result<Related, SetupError> {
        let (mains, explained) = (self.mains.clone(), map.clone());
        let keys = move |object: &Object<W>| map(object, &View(&mains));
        let handler = enqueue_mapped(self.queue.clone(), keys).kind(&W::kind(&watch.kind)).relation(relation);
        let handler = Passing { predicates: watch.predicates.clone(), handler };
        let attached = attach(manager, &self.controller, watch, indexes, handler)?;
        let mapping = || -> Option<Mapping<W>> {
            let (mains, map) = (self.mains.clone(), explained.clone());
            Some(Box::new(move |object| map(object, &View(&mains))))
        };
        let view = if relation == Relation::Owner { ViewRelation::Owner } else { ViewRelation::Mapping };
        let watched = attached.watched(watch, mapping).into_iter();
        Ok(watched.map(|watched| (view, Arc::new(watched) as Arc<dyn AnyWatched>)).collect())
    }
}

impl<'m, K: Kind<DynamicType: Default>> Controller<'m, K> {
    /// A controller of a kind known at compile time, called after it.
    pub fn new(manager: &'m mut Manager) -> Self {
        Self::of(K::DynamicType::default(), manager)
    }
}

impl<'m, K: Kind> Controller<'m, K> {
    /// A controller of a kind known at run time, called after it.
    pub fn of(kind: K::DynamicType, manager: &'m mut Manager) -> Self {
        let name = K::kind(&kind).to_lowercase();
        Self {
            manager,
            name,
            main: Watch::of(kind),
            indexes: Vec::new(),
            relations: Vec::new(),
            events: Vec::new(),
            finalizer: None,
            deleted: None,
            limiter: None,
            workers: 1,
            timeout: None,
            component: None,
        }
    }

    /// Calls the controller `name` in logs, metrics and events; the kind in lower case by default.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Records events as `component` instead of the manager's name.
    pub fn component(mut self, component: &str) -> Self {
        self.component = Some(component.to_owned());
        self
    }

    /// Reconciles only the objects of `watch`, instead of all that the manager looks at.
    pub fn only(mut self, watch: Watch<K>) -> Self {
        let predicates = std::mem::take(&mut self.main.predicates);
        self.main = watch;
        self.main.predicates.extend(predicates);
        self
    }

    /// Watches objects that the main objects control: a change of one reconciles the main object that its controller reference
    /// names, and the one that it named before.
    pub fn owns<W: Kind>(mut self, watch: Watch<W>) -> Self {
        self.relations.push(Box::new(move |manager, wiring| {
            let is_impossible =
                is_cluster_scoped::<W>() && !is_cluster_scoped::<K>() && !is_scope_unknown::<K>();
            if is_impossible {
                return Err(SetupError::CannotOwn {
                    controller: wiring.controller.clone(),
                    main: K::kind(&wiring.kind).into_owned(),
                    kind: W::kind(&watch.kind).into_owned(),
                });
            }
            let kind = wiring.kind.clone();
            let map = move |object: &Object<W>, _: &View<'_, K>| {
                object.controller_of_kind::<K>(&kind).into_iter().collect()
            };
            manager.needs(&watch, &[Verb::Get, Verb::Create, Verb::Patch]);
            let by_owner =
                Index::new(CONTROLLER_INDEX, |object: &Object<W>| object.controller().map(|owner| owner.uid));
            wiring.attach(manager, &watch, Relation::Owner, vec![by_owner], Arc::new(map))
        }));
        self
    }

    /// Watches other objects: a change of one reconciles the main objects to whose keys `map` maps it.
    ///
    /// `map` gets every state of an object, old and new, and the cached main objects to look up by an [index](Self::index). It runs
    /// on the informer's own task, so it must be quick and must not block.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::controller::{Action, Controller, IndexKey, Manager, SetupError, Watch};
    /// const SECRET: IndexKey<ConfigMap> = IndexKey::field("secret", "data.secret");
    ///
    /// # fn register(manager: &mut Manager) -> Result<(), SetupError> {
    /// Controller::<ConfigMap>::new(manager)
    ///     .index(&SECRET)
    ///     .watches(Watch::<Secret>::new(), |secret, maps| {
    ///         maps.keys_in(&SECRET, secret.namespace(), secret.name())
    ///     })
    ///     .reconcile(|map, cx| async move { Ok(Action::done()) })
    /// # }
    /// ```
    pub fn watches<W: Kind, F>(mut self, watch: Watch<W>, map: F) -> Self
    where
        F: Fn(&Object<W>, &View<'_, K>) -> Vec<ObjectName> + Send + Sync + 'static,
    {
        self.relations.push(Box::new(move |manager, wiring| {
            wiring.attach(manager, &watch, Relation::Mapping, Vec::new(), Arc::new(map))
        }));
        self
    }

    /// Adds an index to the cache of the main kind.
    pub fn index(mut self, index: &IndexKey<K>) -> Self {
        self.indexes.push(*index);
        self
    }

    /// Reconciles after an update of a main object only if `predicate`, given the old and the new state, passes it; called several
    /// times, if all pass. Objects that are added or deleted always pass, and so do changes of related objects.
    pub fn when(
        mut self,
        predicate: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.main = self.main.when(predicate);
        self
    }

    /// Reconciles the keys that come through a channel, such as those of objects whose external state has changed.
    pub fn events(mut self, keys: mpsc::Receiver<ObjectName>) -> Self {
        self.events.push(keys);
        self
    }

    /// Holds each main object by a finalizer from before its first reconcile until `cleanup` has succeeded.
    ///
    /// `cleanup` is called, instead of reconcile, for an object that is being deleted. If it returns [`Action::done`], the finalizer
    /// is taken off; if it fails or asks for a requeue, it is called again. An object that was never reconciled is not held.
    pub fn finalizer<F, Fut>(mut self, name: &str, cleanup: F) -> Self
    where
        F: Fn(Arc<K>, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        self.finalizer = Some((name.to_owned(), boxed(cleanup)));
        self
    }

    /// Calls `deleted` for keys whose object is gone. Without it nothing is called for them: a finalizer is the right tool to clean
    /// up, as it also works while the controller is not running.
    pub fn reconcile_deleted<F, Fut>(mut self, deleted: F) -> Self
    where
        F: Fn(ObjectName, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        self.deleted = Some(Box::new(move |key, context| deleted(key, context).boxed()));
        self
    }

    /// Reconciles so many objects at once; 1 by default. Runs of one object never overlap.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Delays retries as `limiter` says; 5 ms doubling up to 1000 s per object, and 10 a second for all, by default.
    pub fn limiter(mut self, limiter: impl RateLimiter<ObjectName>) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Drops a reconcile that has not ended after `timeout`, and retries it. A write that is under way is completed before.
    ///
    /// By default there is no timeout; a reconcile that runs for 5 minutes is reported, and again after each further 5.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Reconciles objects by calling `reconcile`, and registers the controller with its manager.
    ///
    /// # Errors
    ///
    /// Something in the controller's setup is wrong; nothing of it runs then.
    pub fn reconcile<F, Fut>(self, reconcile: F) -> Result<(), SetupError>
    where
        F: Fn(Arc<K>, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        self.check()?;
        let Self {
            manager,
            name,
            main,
            indexes,
            relations,
            events,
            finalizer,
            deleted,
            limiter,
            workers,
            timeout,
            component,
        } = self;
        let env = manager.env().fork(&format!("controller {name}"));
        let limiter = limiter.unwrap_or_else(|| Box::new(limiter::default_controller()));
        let queue = RateLimitingQueue::new(&name, limiter, &env);
        let kind = main.kind.clone();
        let verbs: &[Verb] = if finalizer.is_some() { &[Verb::Get, Verb::Patch] } else { &[Verb::Get] };
        manager.reconciles(&main, verbs);
        let indexes = indexes.iter().map(IndexKey::index).collect::<Result<Vec<_>, _>>();
        let indexes = indexes
            .map_err(|source| SetupError::Index { controller: name.clone(), source: source.into() })?;
        let itself = Passing { predicates: main.predicates.clone(), handler: enqueue(queue.clone()) };
        let attached = attach(manager, &name, &main, indexes, itself)?;
        let mut explained = Explained::<K>::of(&name, &queue, kind.clone())
            .workers(workers)
            .finalizer(finalizer.as_ref().map(|(name, _)| name.clone()));
        for watched in attached.watched(&main, || None) {
            explained = explained.main(watched);
        }
        if !main.predicates.is_empty() {
            explained = explained.filtered();
        }
        let mains = attached.caches;
        let wiring = Wiring {
            controller: name.clone(),
            kind: kind.clone(),
            queue: queue.clone(),
            mains: mains.clone(),
        };
        for relation in relations {
            for (relation, watched) in relation(manager, &wiring)? {
                explained = explained.related(relation, watched);
            }
        }
        let figures = Arc::new(Figures::new(&name, workers));
        let shared = Arc::new(Shared {
            name: name.as_str().into(),
            kind,
            requests: manager.client().requests().clone().manager(manager.name()),
            caches: manager.caches().clone(),
            writes: Writes::new(&queue, &env),
            applied: Applied::new(&env),
            recorder: match component {
                Some(component) => manager.recorder().clone().component(&component),
                None => manager.recorder().clone(),
            },
            env,
        });
        let (reconcile, pause) = (boxed(reconcile), Arc::<Pause>::default());
        let (counted, held) = (figures.clone(), pause.clone());
        explained = explained.writes(shared.writes.clone()).runs(move || counted.runs(held.is_on()));
        manager.explain().add(explained);
        let reconciler =
            Reconciler { shared, mains, reconcile, deleted, finalizer, timeout, figures: figures.clone() };
        manager.register(Registered {
            name,
            queue: queue.clone(),
            figures,
            pause: pause.clone(),
            controller: Box::new(RunningController {
                reconciler: Arc::new(reconciler),
                queue,
                events,
                workers,
                pause,
            }),
        });
        Ok(())
    }

    /// Checks the settings that stand for themselves.
    fn check(&self) -> Result<(), SetupError> {
        let controller = || self.name.clone();
        let is_plain = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || "-.".contains(sign);
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(SetupError::BadName(controller()));
        }
        if self.manager.has_controller(&self.name) {
            return Err(SetupError::NameTaken(controller()));
        }
        if let Some((finalizer, _)) = &self.finalizer
            && !is_finalizer(finalizer)
        {
            return Err(SetupError::BadFinalizer { controller: controller(), finalizer: finalizer.clone() });
        }
        if self.workers == 0 {
            return Err(SetupError::Zero { controller: controller(), what: "the number of workers" });
        }
        match self.timeout {
            Some(Duration::ZERO) => Err(SetupError::Zero { controller: controller(), what: "the timeout" }),
            Some(given) if given > FAR => {
                Err(SetupError::TooLong { controller: controller(), what: "the timeout", given })
            }
            _ => Ok(()),
        }
    }
}

/// Whether the server accepts a finalizer of that name without a warning: a domain, a slash and a name.
fn is_finalizer(name: &str) -> bool {
    let is_plain = |text: &str| {
        !text.is_empty() && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "-_.".contains(sign))
    };
    let parts = name.split_once('/');
    parts.is_some_and(|(domain, name)| is_plain(domain) && is_plain(name) && name.len() <= 63)
}

fn boxed<K: Kind, F, Fut>(function: F) -> Reconcile<K>
where
    F: Fn(Arc<K>, Context<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send + 'static,
{
    Box::new(move |object, context| function(object, context).boxed())
}

impl<K: Kind> fmt::Debug for Controller<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("main", &self.main)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_has_a_domain_and_a_name() {
        for good in ["example.dev/bucket", "a.b/c-d_e"] {
            assert!(is_finalizer(good), "{good}");
        }
        for bad in ["bucket", "/bucket", "example.dev/", "a/b/c", "a b/c", ""] {
            assert!(!is_finalizer(bad), "{bad}");
        }
    }
}
