//! Which kinds are there, and who owns whom? An informer of metadata per kind, with indexes by uid and by owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_client::core::metadata::PartialObjectMeta;
use kube_client::core::{ApiResource, DynamicObject};
use kube_client::discovery::{Discovery, Scope as KindScope, verbs};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::Handler;
use watchkeeper::queue::Deleted;
use watchkeeper::source::{ApiSource, Scope};
use watchkeeper::store::Index;
use watchkeeper::{Clients, Env, Object, ObjectName, RateLimitingQueue, SharedInformer};

use super::decide::Dependent;
use super::{CollectError, live};

/// All that is cached of an object.
pub(super) type Meta = PartialObjectMeta<DynamicObject>;

const OWNER: &str = "owner";
/// How many objects are looked at to find out whether they wait for each other.
const CIRCLE: usize = 100;

/// One kind, and the cache of its objects.
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    is_namespaced: bool,
    informer: SharedInformer<Meta>,
    stop: CancellationToken,
}

impl Kind {
    /// The object of that key, if it has that uid.
    pub(super) fn cached(&self, key: &ObjectName, uid: &str) -> Option<Arc<Meta>> {
        let object = self.informer.indexer().get(key).filter(|object| object.uid() == uid)?;
        object.get().ok()
    }

    /// The key under which an owner of this kind is found; none where an object without a namespace names one that has to have one.
    pub(super) fn key_of_owner(&self, item: &Item, owner: &OwnerReference) -> Option<ObjectName> {
        match (self.is_namespaced, item.key.namespace()) {
            (true, namespace) => Some(ObjectName::namespaced(namespace?, &owner.name)),
            (false, _) => Some(ObjectName::cluster(&owner.name)),
        }
    }
}

/// One object, as long as it lives.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) kind: Arc<Kind>,
    pub(super) key: ObjectName,
    pub(super) uid: Arc<str>,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        // Uids are unique among all kinds.
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
        write!(f, "{} {}", self.kind.resource.plural, self.key)
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All kinds that can be collected.
pub(super) struct Kinds {
    clients: Clients,
    queue: RateLimitingQueue<Item>,
    /// A kind may have come or gone.
    changed: Arc<Notify>,
    /// By group and kind; of several versions the recommended one.
    known: Arc<Mutex<Known>>,
    /// Those whose turn comes when all kinds can be seen.
    waiting: Arc<Mutex<Waiting>>,
    tasks: Mutex<JoinSet<()>>,
}

type Known = BTreeMap<(String, String), Arc<Kind>>;
/// By uid.
type Waiting = BTreeMap<Arc<str>, Item>;
/// By group and kind, with whether its objects have namespaces.
type Served = BTreeMap<(String, String), (ApiResource, bool)>;

impl Kinds {
    pub(super) fn new(clients: &Clients, queue: &RateLimitingQueue<Item>, changed: &Arc<Notify>) -> Self {
        Self {
            clients: clients.clone(),
            queue: queue.clone(),
            changed: changed.clone(),
            known: Arc::default(),
            waiting: Arc::default(),
            tasks: Mutex::default(),
        }
    }

    /// The kinds that the server has now.
    async fn served(&self) -> Result<Served, kube_client::Error> {
        let discovery = Discovery::new(self.clients.watch().clone()).run_aggregated().await?;
        let mut found = Served::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let can = |verb| capabilities.supports_operation(verb);
                // Events own nothing and are owned by nobody, and there are many.
                if resource.kind != "Event" && can(verbs::LIST) && can(verbs::WATCH) && can(verbs::DELETE) {
                    let is_namespaced = capabilities.scope == KindScope::Namespaced;
                    found.insert((resource.group.clone(), resource.kind.clone()), (resource, is_namespaced));
                }
            }
        }
        Ok(found)
    }

    /// Starts informers for kinds that are new, and stops those of kinds that are gone.
    pub(super) async fn discover(&self, env: &Env) -> Result<(), kube_client::Error> {
        let found = self.served().await?;
        let mut known = self.known.lock();
        known.retain(|name, kind| {
            let same = |(resource, is_namespaced): &(ApiResource, bool)| {
                *resource == kind.resource && *is_namespaced == kind.is_namespaced
            };
            // One that a panic has ended is started anew.
            let stays = found.get(name).is_some_and(same) && !kind.informer.is_stopped();
            if !stays {
                kind.stop.cancel();
            }
            stays
        });
        for (name, (resource, is_namespaced)) in found {
            known.entry(name).or_insert_with(|| self.start(resource, is_namespaced, env));
        }
        drop(known);
        // A kind that has gone is not waited for.
        release(&self.known, &self.waiting, &self.queue);
        Ok(())
    }

    fn start(&self, resource: ApiResource, is_namespaced: bool, env: &Env) -> Arc<Kind> {
        let source = ApiSource::new::<Meta>(&self.clients, &resource, &Scope::Cluster);
        let by_owner = Index::new(OWNER, |object: &Object<Meta>| {
            object.owner_references().into_iter().map(|owner| owner.uid)
        });
        let informer =
            SharedInformer::<Meta>::builder_of(resource.clone(), env).indexes([by_owner]).build(source);
        let kind = Arc::new(Kind { resource, is_namespaced, informer, stop: CancellationToken::new() });
        let handler = Relations {
            kind: Arc::downgrade(&kind),
            known: Arc::downgrade(&self.known),
            queue: self.queue.clone(),
            changed: self.changed.clone(),
        };
        if kind.informer.add_handler(handler).is_ok() {
            let running = kind.clone();
            let (known, waiting, queue) = (self.known.clone(), self.waiting.clone(), self.queue.clone());
            let reporter = env.reporter.clone();
            self.tasks.lock().spawn(async move {
                let synced = async {
                    if running.informer.synced_or_stopped().await {
                        release(&known, &waiting, &queue);
                    }
                };
                let run = AssertUnwindSafe(running.informer.run(running.stop.clone())).catch_unwind();
                if let (Err(payload), ()) = tokio::join!(run, synced) {
                    reporter.panic("garbage collector", running.informer.name(), payload.as_ref());
                }
            });
        }
        kind
    }

    /// The object as the cache has it.
    pub(super) fn cached(&self, item: &Item) -> Option<Arc<Meta>> {
        item.kind.cached(&item.key, &item.uid)
    }

    pub(super) fn of_owner(&self, owner: &OwnerReference) -> Option<Arc<Kind>> {
        of_owner(&self.known.lock(), owner)
    }

    /// Whether the caches of all kinds are filled: only then may anything follow from what they do not have.
    pub(super) fn are_synced(&self) -> bool {
        are_synced(&self.known.lock())
    }

    /// Adds an object to the queue once all kinds have synced.
    pub(super) fn add_when_synced(&self, item: Item) {
        self.waiting.lock().insert(item.uid.clone(), item);
        release(&self.known, &self.waiting, &self.queue);
    }

    /// All that an object owns and the server has now, whatever the caches know of it, each with its kind.
    pub(super) async fn dependents_now(
        &self,
        owner: &Item,
    ) -> Result<Vec<(ApiResource, Meta)>, CollectError> {
        let (mut found, namespace) = (Vec::new(), owner.key.namespace());
        for (kind, is_namespaced) in self.served().await?.into_values() {
            // What is in a namespace owns nothing elsewhere.
            if namespace.is_none() || is_namespaced {
                let owned = live::owned(&owner.uid, &kind, namespace, &self.clients).await?;
                found.extend(owned.into_iter().map(|object| (kind.clone(), object)));
            }
        }
        Ok(found)
    }

    /// All that an object owns, as far as the caches know.
    pub(super) fn dependents(&self, owner: &Item) -> Vec<(Item, Arc<Meta>)> {
        dependents(&self.known.lock(), owner)
    }

    /// Whether those that keep an object from going wait for it in turn, as far as the caches know; looks at a number of them only.
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

    /// Stops all informers, and waits for their end.
    pub(super) async fn stop(&self) {
        self.known.lock().values().for_each(|kind| kind.stop.cancel());
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// Queues what has to be looked at after a change of an object of one kind: itself, those that it owns, and those that own it or did.
struct Relations {
    kind: Weak<Kind>,
    known: Weak<Mutex<Known>>,
    queue: RateLimitingQueue<Item>,
    changed: Arc<Notify>,
}

impl Relations {
    fn item(&self, object: &Object<Meta>) -> Option<Item> {
        let kind = self.kind.upgrade()?;
        if kind.resource.kind == "CustomResourceDefinition" {
            self.changed.notify_one();
        }
        Some(Item { kind, key: object.key(), uid: object.uid().into() })
    }

    fn add_object(&self, object: &Object<Meta>) {
        if let Some(item) = self.item(object)
            && (object.is_deleting() || !object.owner_references().is_empty())
        {
            self.queue.add(item);
        }
    }

    /// They may have waited for the object.
    fn add_owners(&self, object: &Object<Meta>) {
        if let (Some(item), Some(known)) = (self.item(object), self.known.upgrade()) {
            owners(&known.lock(), &item, object).into_iter().for_each(|owner| self.queue.add(owner));
        }
    }

    /// They may have no owner left.
    fn add_dependents(&self, object: &Object<Meta>) {
        if let (Some(item), Some(known)) = (self.item(object), self.known.upgrade()) {
            let dependents = dependents(&known.lock(), &item);
            dependents.into_iter().for_each(|(dependent, _)| self.queue.add(dependent));
        }
    }
}

impl Handler<Meta> for Relations {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<Meta>, _in_initial_list: bool) {
        self.add_object(object);
    }

    fn update(&mut self, old: &Object<Meta>, new: &Object<Meta>) {
        self.add_object(new);
        if old.owner_references() != new.owner_references() {
            self.add_owners(old);
        }
    }

    fn delete(&mut self, deleted: &Deleted<Meta>) {
        if let Some(object) = deleted.last_known() {
            self.add_dependents(object);
            self.add_owners(object);
        }
    }

    fn superseded(&mut self, last_cached: &Object<Meta>) {
        self.add_owners(last_cached);
    }
}

fn are_synced(known: &Known) -> bool {
    known.values().all(|kind| kind.informer.has_synced())
}

/// Queues those that wait, if all kinds have synced.
fn release(known: &Mutex<Known>, waiting: &Mutex<Waiting>, queue: &RateLimitingQueue<Item>) {
    if are_synced(&known.lock()) {
        std::mem::take(&mut *waiting.lock()).into_values().for_each(|item| queue.add(item));
    }
}

fn of_owner(known: &Known, owner: &OwnerReference) -> Option<Arc<Kind>> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    known.get(&(group.to_owned(), owner.kind.clone())).cloned()
}

fn dependents(known: &Known, owner: &Item) -> Vec<(Item, Arc<Meta>)> {
    let mut found = Vec::new();
    for kind in known.values() {
        // Every informer here has the index.
        let snapshot = kind.informer.indexer().snapshot();
        for object in snapshot.by_index(OWNER, &owner.uid).into_iter().flatten() {
            // What is in a namespace owns nothing in another.
            let is_near = owner.key.namespace().is_none() || owner.key.namespace() == object.namespace();
            if let (true, Ok(meta)) = (is_near, object.get()) {
                found.push((Item { kind: kind.clone(), key: object.key(), uid: object.uid().into() }, meta));
            }
        }
    }
    found
}

/// Those that own an object and are in the cache.
fn owners(known: &Known, item: &Item, object: &Object<Meta>) -> Vec<Item> {
    let references = object.owner_references().into_iter();
    let owners = references.filter_map(|reference| {
        let kind = of_owner(known, &reference)?;
        let key = kind.key_of_owner(item, &reference)?;
        kind.cached(&key, &reference.uid)?;
        Some(Item { kind, key, uid: reference.uid.into() })
    });
    owners.collect()
}
