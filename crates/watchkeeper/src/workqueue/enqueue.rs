//! Handlers that enqueue keys for the changes of an informer.

use std::sync::Arc;

use super::item::Key;
use super::priority::Priority;
use super::rate_limiting::RateLimitingQueue;
use super::trigger::{ObjectRef, Reason, Relation, Trigger};
use crate::informer::{Change, Handler};
use crate::object::{Object, ObjectName, ResourceVersion};
use crate::queue::Deleted;

/// Returns a handler that adds the key of every changed object, with the priority of [`Priority::of`].
///
/// Each add carries the change as its [trigger](Trigger). The handler runs in the informer's own task: see
/// [`Handler::sees_every_state`].
///
/// ```
/// # use watchkeeper::informer::Handler;
/// # use watchkeeper::workqueue::{RateLimitingQueue, enqueue, limiter};
/// # use watchkeeper::{Env, Object};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// let queue = RateLimitingQueue::new("config", limiter::default_controller(), &Env::system());
/// let mut handler = enqueue(queue.clone());
/// # let json = br#"{"metadata":{"name":"a","namespace":"ns"}}"#;
/// # let object = Object::<ConfigMap>::from_json(json).unwrap();
/// handler.add(&object, true);
/// assert_eq!(queue.len(), 1);
/// ```
pub fn enqueue(queue: RateLimitingQueue<ObjectName>) -> Enqueue {
    Enqueue(queue)
}

/// The handler of [`enqueue`].
#[derive(Clone, Debug)]
pub struct Enqueue(RateLimitingQueue<ObjectName>);

impl Enqueue {
    fn enqueue<K>(&self, key: ObjectName, change: &Change<'_, K>) {
        let version = change.last_known().map_or(&ResourceVersion::UNSET, Object::version);
        let trigger = Trigger::itself(Reason::of(change), version);
        self.0.add_because(key, Priority::of(change), trigger);
    }
}

impl<K> Handler<K> for Enqueue {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        self.enqueue(object.key(), &Change::Added { object, in_initial_list });
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        self.enqueue(new.key(), &Change::Updated { old, new });
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        self.enqueue(deleted.key(), &Change::Deleted(deleted));
    }

    /// A filter in front of this handler may keep this state, and not the final one.
    fn superseded(&mut self, last_cached: &Object<K>) {
        let trigger = Trigger::itself(Reason::Changed, last_cached.version());
        self.0.add_because(last_cached.key(), Priority::Normal, trigger);
    }
}

/// Returns a handler that adds the keys to which `map` maps an object, such as that of its owner, with the priority of
/// [`Priority::of`].
///
/// `map` is called with every state that was in the cache, old and new: if an object goes from one owner to the next,
/// both are added, and none in between is missed. It runs in the informer's own task, so it must be quick and must not
/// block: see [`Handler::sees_every_state`]. A panic in it is reported and loses the keys of that change.
///
/// ```
/// # use watchkeeper::informer::Handler;
/// # use watchkeeper::workqueue::{RateLimitingQueue, enqueue_mapped, limiter};
/// # use watchkeeper::{Env, Object, ObjectName};
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # let pod = |owner: &str| {
/// #     let owners = format!(r#"[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}","uid":"u","controller":true}}]"#);
/// #     let json = format!(r#"{{"metadata":{{"name":"p","namespace":"ns","resourceVersion":"{}","ownerReferences":{owners}}}}}"#, owner.len());
/// #     Object::<Pod>::from_json(json.as_bytes()).unwrap()
/// # };
/// # let queue = RateLimitingQueue::<ObjectName>::new("sets", limiter::default_controller(), &Env::system());
/// // Whenever a Pod changes, the ReplicaSet that controls it is looked at, and so is the one that did before.
/// let mut handler = enqueue_mapped(queue.clone(), Object::<Pod>::controller_of::<ReplicaSet>);
/// # let (old, new) = (pod("web"), pod("api-2"));
/// handler.update(&old, &new);
/// assert!(queue.explain(&ObjectName::namespaced("ns", "web")).is_some());
/// assert!(queue.explain(&ObjectName::namespaced("ns", "api-2")).is_some());
/// ```
pub fn enqueue_mapped<K, T, F, I>(queue: RateLimitingQueue<T>, map: F) -> EnqueueMapped<T, F>
where
    T: Key,
    F: FnMut(&Object<K>) -> I + Send + 'static,
    I: IntoIterator<Item = T>,
{
    EnqueueMapped { queue, map, kind: kind_of::<K>().into(), relation: Relation::Mapping }
}

/// Returns the name of a kind from that of its Rust type, which is the same in `k8s-openapi` and `kube-derive`.
fn kind_of<K>() -> &'static str {
    let path = std::any::type_name::<K>().trim_end_matches('>');
    path.rsplit([':', '<']).next().unwrap_or(path)
}

/// The handler of [`enqueue_mapped`].
#[derive(Clone, Debug)]
pub struct EnqueueMapped<T: Key, F> {
    queue: RateLimitingQueue<T>,
    map: F,
    kind: Arc<str>,
    relation: Relation,
}

impl<T: Key, F> EnqueueMapped<T, F> {
    /// Sets the name of the objects' kind in [triggers](Trigger). The default is the name of the Rust type, which does
    /// not fit types for many kinds.
    #[must_use]
    pub fn kind(mut self, name: &str) -> Self {
        self.kind = name.into();
        self
    }

    /// Sets the relation of the objects to the keys in [triggers](Trigger); [`Relation::Mapping`] by default.
    #[must_use]
    pub fn relation(mut self, relation: Relation) -> Self {
        self.relation = relation;
        self
    }

    /// Adds the keys of an object that was last seen in `state`.
    fn enqueue<K>(
        &self,
        keys: impl IntoIterator<Item = T>,
        state: &Object<K>,
        priority: Priority,
        reason: Reason,
    ) {
        let mut keys = keys.into_iter();
        let Some(mut key) = keys.next() else { return };
        let object = ObjectRef::new(self.kind.clone(), state.key());
        let trigger = Trigger::related(self.relation, object, reason, state.version());
        for next in keys {
            self.queue.add_because(std::mem::replace(&mut key, next), priority, trigger.clone());
        }
        self.queue.add_because(key, priority, trigger);
    }
}

impl<K, T, F, I> Handler<K> for EnqueueMapped<T, F>
where
    T: Key,
    F: FnMut(&Object<K>) -> I + Send + 'static,
    I: IntoIterator<Item = T>,
{
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        let change = Change::Added { object, in_initial_list };
        let keys = (self.map)(object);
        self.enqueue(keys, object, Priority::of(&change), Reason::of(&change));
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        let change = Change::Updated { old, new };
        let mut keys: Vec<T> = (self.map)(new).into_iter().collect();
        if !change.is_resync() {
            let before: Vec<T> = (self.map)(old).into_iter().collect();
            if before != keys {
                keys.extend(before);
            }
        }
        self.enqueue(keys, new, Priority::of(&change), Reason::of(&change));
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        if let Some(state) = deleted.last_known()
            && !planted!(UnmappedDelete)
        {
            let change = Change::Deleted(deleted);
            let keys = (self.map)(state);
            self.enqueue(keys, state, Priority::of(&change), Reason::of(&change));
        }
    }

    fn superseded(&mut self, last_cached: &Object<K>) {
        let keys = (self.map)(last_cached);
        self.enqueue(keys, last_cached, Priority::Normal, Reason::Changed);
    }
}
