//! The ownership graph: an informer of object metadata per served kind, indexed by the uid of the owners.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_client::core::metadata::PartialObjectMeta;
use kube_client::core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::Handler;
use watchkeeper::queue::Deleted;
use watchkeeper::source::{ApiSource, Scope};
use watchkeeper::store::Index;
use watchkeeper::{Client, Env, Object, ObjectName, RateLimitingQueue, SharedInformer};

use super::decide::Dependent;
use super::kinds::{Kinds, OwnedKind, resource_name};
use super::{CollectError, live};

/// What the caches hold of an object.
pub(super) type Meta = PartialObjectMeta<DynamicObject>;

const OWNER: &str = "owner";
/// How many objects the search for a cycle visits.
const CIRCLE: usize = 100;

/// The informer of one kind.
pub(super) struct Monitor {
    pub(super) resource: ApiResource,
    is_namespaced: bool,
    informer: SharedInformer<Meta>,
    stop: CancellationToken,
}

impl Monitor {
    /// The cached object with this key and uid.
    pub(super) fn cached(&self, key: &ObjectName, uid: &str) -> Option<Arc<Meta>> {
        let object = self.informer.indexer().get(key).filter(|object| object.uid() == uid)?;
        object.get().ok()
    }

    /// The key of an owner of this kind; `None` where a cluster-scoped object names a namespaced owner, which cannot be.
    pub(super) fn key_of_owner(&self, item: &Item, owner: &OwnerReference) -> Option<ObjectName> {
        match (self.is_namespaced, item.key.namespace()) {
            (true, namespace) => Some(ObjectName::namespaced(namespace?, &owner.name)),
            (false, _) => Some(ObjectName::cluster(&owner.name)),
        }
    }
}

/// One object, identified by its uid: a later object of the same name is another item.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) monitor: Arc<Monitor>,
    pub(super) key: ObjectName,
    pub(super) uid: Arc<str>,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        // Uids are unique across kinds.
        self.uid == other.uid && self.key == other.key
    }
}

impl Eq for Item {}

impl Hash for Item {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uid.hash(state);
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.monitor.resource.plural, self.key)
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The monitors of all kinds that can be listed, watched and deleted.
pub(super) struct Graph {
    client: Client,
    /// The resources to look at; all if there are none.
    only: Option<BTreeSet<String>>,
    /// How long watches last, and may be silent.
    watch: Option<Duration>,
    queue: RateLimitingQueue<Item>,
    /// Notified when a CustomResourceDefinition changes, as kinds may have been added or removed.
    changed: Arc<Notify>,
    monitors: Arc<Mutex<Monitors>>,
    /// Objects to enqueue once every monitor has synced.
    waiting: Arc<Mutex<Waiting>>,
    tasks: Mutex<JoinSet<()>>,
}

/// By group and kind, for the group's preferred version.
type Monitors = BTreeMap<(String, String), Arc<Monitor>>;
/// By uid.
type Waiting = BTreeMap<Arc<str>, Item>;
impl Graph {
    pub(super) fn new(
        client: &Client,
        queue: &RateLimitingQueue<Item>,
        changed: &Arc<Notify>,
        only: Option<BTreeSet<String>>,
        watch: Option<Duration>,
    ) -> Self {
        Self {
            client: client.clone(),
            only,
            watch,
            queue: queue.clone(),
            changed: changed.clone(),
            monitors: Arc::default(),
            waiting: Arc::default(),
            tasks: Mutex::default(),
        }
    }

    /// Starts monitors for new kinds, and stops those of kinds that are no longer served.
    pub(super) fn watch(&self, kinds: &Kinds, env: &Env) {
        let found: BTreeMap<_, _> =
            kinds.wanted(self.only.as_ref()).map(|kind| (kind.name(), kind)).collect();
        let mut monitors = self.monitors.lock();
        monitors.retain(|name, monitor| {
            let same = |kind: &&OwnedKind| {
                kind.resource == monitor.resource && kind.is_namespaced == monitor.is_namespaced
            };
            // A monitor that ended with a panic is started again.
            let stays = found.get(name).is_some_and(same) && !monitor.informer.is_stopped();
            if !stays {
                monitor.stop.cancel();
            }
            stays
        });
        for (name, OwnedKind { resource, is_namespaced }) in found {
            monitors.entry(name).or_insert_with(|| self.start(resource.clone(), *is_namespaced, env));
        }
        drop(monitors);
        // Kinds that are gone no longer delay a sync.
        release(&self.monitors, &self.waiting, &self.queue);
    }

    fn start(&self, resource: ApiResource, is_namespaced: bool, env: &Env) -> Arc<Monitor> {
        let source = ApiSource::new::<Meta>(&self.client, &resource, &Scope::Cluster);
        let by_owner = Index::new(OWNER, |object: &Object<Meta>| {
            object.owner_references().into_iter().map(|owner| owner.uid)
        });
        let mut informer =
            SharedInformer::<Meta>::builder_of(resource.clone(), source, env).indexes([by_owner]);
        if let Some(time) = self.watch {
            informer = informer.min_watch_timeout(time).max_watch_silence(time);
        }
        let informer = informer.build();
        let monitor = Arc::new(Monitor { resource, is_namespaced, informer, stop: CancellationToken::new() });
        let handler = Relations {
            monitor: Arc::downgrade(&monitor),
            monitors: Arc::downgrade(&self.monitors),
            queue: self.queue.clone(),
            changed: self.changed.clone(),
        };
        if monitor.informer.add_handler(handler).is_ok() {
            let running = monitor.clone();
            let (monitors, waiting, queue) =
                (self.monitors.clone(), self.waiting.clone(), self.queue.clone());
            let reporter = env.reporter.clone();
            self.tasks.lock().spawn(async move {
                let synced = async {
                    if running.informer.synced_or_stopped().await {
                        release(&monitors, &waiting, &queue);
                    }
                };
                let run = AssertUnwindSafe(running.informer.run(running.stop.clone())).catch_unwind();
                if let (Err(payload), ()) = tokio::join!(run, synced) {
                    reporter.panic("garbage collector", running.informer.name(), payload.as_ref());
                }
            });
        }
        monitor
    }

    /// The cached state of an item.
    pub(super) fn cached(&self, item: &Item) -> Option<Arc<Meta>> {
        item.monitor.cached(&item.key, &item.uid)
    }

    pub(super) fn of_owner(&self, owner: &OwnerReference) -> Option<Arc<Monitor>> {
        of_owner(&self.monitors.lock(), owner)
    }

    /// Whether all monitors have synced. Only then does absence from the caches mean anything.
    pub(super) fn are_synced(&self) -> bool {
        are_synced(&self.monitors.lock())
    }

    /// Enqueues an item once all monitors have synced.
    pub(super) fn add_when_synced(&self, item: Item) {
        self.waiting.lock().insert(item.uid.clone(), item);
        release(&self.monitors, &self.waiting, &self.queue);
    }

    /// All dependents of an item that the server has now, independent of the caches.
    pub(super) async fn dependents_now(
        &self,
        owner: &Item,
    ) -> Result<Vec<(ApiResource, Meta)>, CollectError> {
        let (mut found, namespace) = (Vec::new(), owner.key.namespace());
        for kind in Kinds::discover(&self.client).await?.wanted(self.only.as_ref()) {
            // A namespaced object owns nothing outside its namespace.
            if namespace.is_none() || kind.is_namespaced {
                let owned = live::owned(&owner.uid, &kind.resource, namespace, &self.client).await?;
                found.extend(owned.into_iter().map(|object| (kind.resource.clone(), object)));
            }
        }
        Ok(found)
    }

    /// The cached dependents of an item.
    pub(super) fn dependents(&self, owner: &Item) -> Vec<(Item, Arc<Meta>)> {
        dependents(&self.monitors.lock(), owner)
    }

    /// Whether the dependents that block an item wait for it in turn, as far as the caches know. Visits at most [`CIRCLE`] of them.
    pub(super) fn waits_for_itself(&self, item: &Item) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![item.clone()]);
        while let Some(owner) = next.pop().filter(|_| seen.len() < CIRCLE) {
            for (dependent, meta) in self.dependents(&owner) {
                let Dependent { blocks, is_waiting } = Dependent::of(&meta, &owner.uid);
                if blocks && is_waiting && seen.insert(dependent.uid.clone()) {
                    next.push(dependent);
                }
            }
        }
        seen.contains(&item.uid)
    }

    /// Stops all monitors and waits for them to end.
    pub(super) async fn stop(&self) {
        self.monitors.lock().values().for_each(|monitor| monitor.stop.cancel());
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// Enqueues what a change of an object may affect: the object, its dependents, and its present and former owners.
struct Relations {
    monitor: Weak<Monitor>,
    monitors: Weak<Mutex<Monitors>>,
    queue: RateLimitingQueue<Item>,
    changed: Arc<Notify>,
}

impl Relations {
    fn item(&self, object: &Object<Meta>) -> Option<Item> {
        let monitor = self.monitor.upgrade()?;
        Some(Item { monitor, key: object.key(), uid: object.uid().into() })
    }

    /// A definition has changed: kinds may have been added or removed.
    fn notice(&self, object: &Object<Meta>, in_initial_list: bool) {
        let Some(monitor) = self.monitor.upgrade() else { return };
        if monitor.resource.kind != "CustomResourceDefinition" {
            return;
        }
        // A definition that was there at the start was mostly discovered then.
        let is_known = || {
            let monitors = self.monitors.upgrade();
            let is_of = |monitor: &Arc<Monitor>| object.key().name() == resource_name(&monitor.resource);
            monitors.is_some_and(|monitors| monitors.lock().values().any(is_of))
        };
        if !(in_initial_list && is_known()) {
            self.changed.notify_one();
        }
    }

    fn add_object(&self, object: &Object<Meta>) {
        if let Some(item) = self.item(object)
            && (object.is_deleting() || !object.owner_references().is_empty())
        {
            self.queue.add(item);
        }
    }

    /// The owners may have waited for the object.
    fn add_owners(&self, object: &Object<Meta>) {
        if let (Some(item), Some(monitors)) = (self.item(object), self.monitors.upgrade()) {
            owners(&monitors.lock(), &item, object).into_iter().for_each(|owner| self.queue.add(owner));
        }
    }

    /// The dependents may have no owner left.
    fn add_dependents(&self, object: &Object<Meta>) {
        if let (Some(item), Some(monitors)) = (self.item(object), self.monitors.upgrade()) {
            let dependents = dependents(&monitors.lock(), &item);
            dependents.into_iter().for_each(|(dependent, _)| self.queue.add(dependent));
        }
    }
}

impl Handler<Meta> for Relations {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<Meta>, in_initial_list: bool) {
        self.notice(object, in_initial_list);
        self.add_object(object);
    }

    fn update(&mut self, old: &Object<Meta>, new: &Object<Meta>) {
        self.notice(new, false);
        self.add_object(new);
        if old.owner_references() != new.owner_references() {
            self.add_owners(old);
        }
    }

    fn delete(&mut self, deleted: &Deleted<Meta>) {
        if let Some(object) = deleted.last_known() {
            self.notice(object, false);
            self.add_dependents(object);
            self.add_owners(object);
        }
    }

    fn superseded(&mut self, last_cached: &Object<Meta>) {
        self.add_owners(last_cached);
    }
}

fn are_synced(monitors: &Monitors) -> bool {
    monitors.values().all(|monitor| monitor.informer.has_synced())
}

/// Enqueues the waiting items if all monitors have synced.
fn release(monitors: &Mutex<Monitors>, waiting: &Mutex<Waiting>, queue: &RateLimitingQueue<Item>) {
    if are_synced(&monitors.lock()) {
        std::mem::take(&mut *waiting.lock()).into_values().for_each(|item| queue.add(item));
    }
}

fn of_owner(monitors: &Monitors, owner: &OwnerReference) -> Option<Arc<Monitor>> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    monitors.get(&(group.to_owned(), owner.kind.clone())).cloned()
}

fn dependents(monitors: &Monitors, owner: &Item) -> Vec<(Item, Arc<Meta>)> {
    let mut found = Vec::new();
    for monitor in monitors.values() {
        // Every monitor has this index.
        let snapshot = monitor.informer.indexer().snapshot();
        for object in snapshot.by_index(OWNER, &owner.uid).into_iter().flatten() {
            // A namespaced object owns nothing outside its namespace.
            let is_near = owner.key.namespace().is_none() || owner.key.namespace() == object.namespace();
            if let (true, Ok(meta)) = (is_near, object.get()) {
                found.push((
                    Item { monitor: monitor.clone(), key: object.key(), uid: object.uid().into() },
                    meta,
                ));
            }
        }
    }
    found
}

/// The cached owners of an object.
fn owners(monitors: &Monitors, item: &Item, object: &Object<Meta>) -> Vec<Item> {
    let references = object.owner_references().into_iter();
    let owners = references.filter_map(|reference| {
        let monitor = of_owner(monitors, &reference)?;
        let key = monitor.key_of_owner(item, &reference)?;
        monitor.cached(&key, &reference.uid)?;
        Some(Item { monitor, key, uid: reference.uid.into() })
    });
    owners.collect()
}
