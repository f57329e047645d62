//! Handlers that enqueue keys for the changes of an informer.

use super::item::Key;
use super::priority::Priority;
use super::rate_limiting::RateLimitingQueue;
use crate::informer::{Change, Handler};
use crate::object::{Object, ObjectName};
use crate::queue::Deleted;

/// Returns a handler that adds the key of every changed object, with the priority of [`Priority::of`].
///
/// It runs in the informer's own task: see [`Handler::sees_every_state`].
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
#[derive(Debug)]
pub struct Enqueue(RateLimitingQueue<ObjectName>);

impl<K> Handler<K> for Enqueue {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        self.0.add_with(object.key(), Priority::of(&Change::Added { object, in_initial_list }));
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        self.0.add_with(new.key(), Priority::of(&Change::Updated { old, new }));
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        self.0.add_with(deleted.key(), Priority::of(&Change::Deleted(deleted)));
    }

    /// A filter in front of this handler may keep this state, and not the final one.
    fn superseded(&mut self, last_cached: &Object<K>) {
        self.0.add_with(last_cached.key(), Priority::Normal);
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
    EnqueueMapped { queue, map }
}

/// The handler of [`enqueue_mapped`].
#[derive(Debug)]
pub struct EnqueueMapped<T: Key, F> {
    queue: RateLimitingQueue<T>,
    map: F,
}

impl<T: Key, F> EnqueueMapped<T, F> {
    fn enqueue<K, I>(&mut self, state: &Object<K>, priority: Priority)
    where
        F: FnMut(&Object<K>) -> I,
        I: IntoIterator<Item = T>,
    {
        (self.map)(state).into_iter().for_each(|key| self.queue.add_with(key, priority));
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
        self.enqueue(object, Priority::of(&Change::Added { object, in_initial_list }));
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        let change = Change::Updated { old, new };
        let priority = Priority::of(&change);
        self.enqueue(new, priority);
        if !change.is_resync() {
            self.enqueue(old, priority);
        }
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        if let Some(state) = deleted.last_known() {
            self.enqueue(state, Priority::of(&Change::Deleted(deleted)));
        }
    }

    fn superseded(&mut self, last_cached: &Object<K>) {
        self.enqueue(last_cached, Priority::Normal);
    }
}
