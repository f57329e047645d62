//! How do the changes that an informer tells become keys to work on? By a handler that adds each object's key, urgent or not.

use super::priority::Priority;
use super::rate_limiting::RateLimitingQueue;
use crate::informer::{Change, Handler};
use crate::object::{Object, ObjectName};
use crate::queue::Deleted;

/// A handler that adds the key of every object it hears of, with the priority that [`Priority::of`] gives the change.
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

/// See [`enqueue`].
#[derive(Debug)]
pub struct Enqueue(RateLimitingQueue<ObjectName>);

impl<K> Handler<K> for Enqueue {
    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        self.0.add_with(object.key(), Priority::of(&Change::Added { object, in_initial_list }));
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        self.0.add_with(new.key(), Priority::of(&Change::Updated { old, new }));
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        self.0.add_with(deleted.key(), Priority::of(&Change::Deleted(deleted)));
    }
}
