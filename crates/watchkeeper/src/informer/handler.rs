//! Handlers, and the notifications they receive.

use crate::object::{Object, ObjectName};
use crate::queue::Deleted;

/// Receives every change of a kind, one at a time and in order: on a task of its own in a
/// [`SharedInformer`](super::SharedInformer), in the loop itself in an [`Informer`](super::Informer).
///
/// Handlers are synchronous: slow work belongs in a work queue. The store shows each change, or a later one, before a
/// handler is notified of it.
///
/// A handler of a shared informer that is further behind than [its bound](super::HandlerOptions::bound) does not see
/// every state: changes A, B, C of an object are coalesced into one update from A to C, and an object that was added
/// and deleted meanwhile is not delivered at all. That is enough to follow objects. It is not enough to follow their
/// references: an owner that only state B named would be missed. A handler that maps states to keys has to [see every
/// state](Self::sees_every_state), as [`enqueue_mapped`](crate::workqueue::enqueue_mapped) does.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::Object;
/// use watchkeeper::informer::Handler;
/// use watchkeeper::queue::Deleted;
///
/// /// Counts the Pods.
/// #[derive(Default)]
/// struct Count(usize);
///
/// impl Handler<Pod> for Count {
///     fn add(&mut self, _: &Object<Pod>, _in_initial_list: bool) {
///         self.0 += 1;
///     }
///
///     fn delete(&mut self, _: &Deleted<Pod>) {
///         self.0 -= 1;
///     }
/// }
/// # let mut count = Count::default();
/// # count.add(&Object::from_json(br#"{"metadata":{"name":"a"}}"#).unwrap(), false);
/// # assert_eq!(count.0, 1);
/// ```
pub trait Handler<K>: Send + 'static {
    /// Returns whether the handler has to see every state that was in the cache, however many changes come at once;
    /// `false` by default.
    ///
    /// A shared informer calls this once, when the handler is added. It calls such a handler in the informer's own
    /// task, where it distributes changes, and not from a mailbox in a task of the handler: nothing is buffered, so
    /// nothing is coalesced. Everything else waits meanwhile, including the cache, so the handler must be quick and
    /// must not block. It should only put keys into a work queue, which is its buffer.
    ///
    /// Such a handler has been notified of the initial list when its informer has synced. One that is added to a
    /// running informer is notified of all objects before [`add_handler`](super::SharedInformer::add_handler) returns,
    /// on the caller's thread.
    fn sees_every_state(&self) -> bool {
        false
    }

    /// Called when an object appears; `in_initial_list` is set if it existed when this handler was added.
    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        let _ = (object, in_initial_list);
    }

    /// Called when an object changes, and in a resync, when both have the same version. `old` is the state that this
    /// handler received last.
    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        let _ = (old, new);
    }

    /// Called when an object was deleted.
    fn delete(&mut self, deleted: &Deleted<K>) {
        let _ = deleted;
    }

    /// Called with the cached state of an object before [`delete`](Self::delete) if its final state is another one: the
    /// last change and the delete arrived as one. Only for a handler that [sees every state](Self::sees_every_state).
    fn superseded(&mut self, last_cached: &Object<K>) {
        let _ = last_cached;
    }
}

/// One change of any type.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// An object appeared.
    Added {
        /// The object.
        object: &'a Object<K>,
        /// Whether it existed when the handler was added.
        in_initial_list: bool,
    },
    /// An object changed, or is delivered again in a resync.
    Updated {
        /// The previous state.
        old: &'a Object<K>,
        /// The current state.
        new: &'a Object<K>,
    },
    /// An object was deleted.
    Deleted(&'a Deleted<K>),
}

impl<'a, K> Change<'a, K> {
    /// Returns whether this is a resync: the object is delivered again, with an equal version and content.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new } if old.is_resynced_as(new))
    }

    /// Returns the newest state, including a deleted object's last one; none for a tombstone without one.
    pub fn last_known(&self) -> Option<&'a Object<K>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted(deleted) => deleted.last_known(),
        }
    }
}

/// Returns a handler that calls a function with every object that is added, changed or resynced.
pub fn on_apply<K, F: FnMut(&Object<K>) + Send + 'static>(apply: F) -> OnApply<F> {
    OnApply(apply)
}

/// The handler of [`on_apply`].
#[derive(Debug)]
pub struct OnApply<F>(F);

impl<K, F: FnMut(&Object<K>) + Send + 'static> Handler<K> for OnApply<F> {
    fn add(&mut self, object: &Object<K>, _in_initial_list: bool) {
        (self.0)(object);
    }

    fn update(&mut self, _old: &Object<K>, new: &Object<K>) {
        (self.0)(new);
    }
}

/// Returns a handler that calls a function with every change.
pub fn on_change<K, F: FnMut(Change<'_, K>) + Send + 'static>(change: F) -> OnChange<F> {
    OnChange(change)
}

/// The handler of [`on_change`].
#[derive(Debug)]
pub struct OnChange<F>(F);

impl<K, F: FnMut(Change<'_, K>) + Send + 'static> Handler<K> for OnChange<F> {
    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        (self.0)(Change::Added { object, in_initial_list });
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        (self.0)(Change::Updated { old, new });
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        (self.0)(Change::Deleted(deleted));
    }
}

/// Returns a handler that is notified only of the objects for which `keep` holds.
///
/// An update that makes `keep` true is delivered as an add, one that makes it false as a delete; a delete is delivered
/// if `keep` holds for the last known state. `keep` should depend on the object alone.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::Object;
/// use watchkeeper::informer::{filtered, on_apply};
///
/// let web = filtered(
///     |pod: &Object<Pod>| pod.labels().get("app").as_deref() == Some("web"),
///     on_apply(|pod: &Object<Pod>| println!("{}", pod.key())),
/// );
/// # fn is_handler(_: impl watchkeeper::informer::Handler<Pod>) {}
/// # is_handler(web);
/// ```
pub fn filtered<K, F, H>(keep: F, handler: H) -> Filtered<F, H>
where
    F: FnMut(&Object<K>) -> bool + Send + 'static,
    H: Handler<K>,
{
    Filtered { keep, handler }
}

/// The handler of [`filtered`].
#[derive(Debug)]
pub struct Filtered<F, H> {
    keep: F,
    handler: H,
}

impl<K, F, H> Handler<K> for Filtered<F, H>
where
    F: FnMut(&Object<K>) -> bool + Send + 'static,
    H: Handler<K>,
{
    fn sees_every_state(&self) -> bool {
        self.handler.sees_every_state()
    }

    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        if (self.keep)(object) {
            self.handler.add(object, in_initial_list);
        }
    }

    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        match ((self.keep)(old), (self.keep)(new)) {
            (true, true) => self.handler.update(old, new),
            (false, true) => self.handler.add(new, false),
            (true, false) => self.handler.delete(&Deleted::Final(old.clone())),
            (false, false) => {}
        }
    }

    fn delete(&mut self, deleted: &Deleted<K>) {
        if deleted.last_known().is_some_and(&mut self.keep) {
            self.handler.delete(deleted);
        }
    }

    fn superseded(&mut self, last_cached: &Object<K>) {
        if (self.keep)(last_cached) {
            self.handler.superseded(last_cached);
        }
    }
}

/// One change on its way to a handler.
#[derive(Debug)]
pub(super) enum Notification<K> {
    Add {
        object: Object<K>,
        in_initial_list: bool,
    },
    Update {
        old: Object<K>,
        new: Object<K>,
    },
    Delete(Deleted<K>),
    /// The cached state before a delete with another final state; never in a mailbox.
    Superseded(Object<K>),
}

impl<K> Notification<K> {
    pub(super) fn key(&self) -> ObjectName {
        match self {
            Self::Add { object, .. } | Self::Update { new: object, .. } | Self::Superseded(object) => {
                object.key()
            }
            Self::Delete(deleted) => deleted.key(),
        }
    }

    pub(super) fn is_initial_add(&self) -> bool {
        matches!(self, Self::Add { in_initial_list: true, .. })
    }

    /// Returns whether this is a resync, which only handlers that are due receive.
    pub(super) fn is_resync(&self) -> bool {
        matches!(self, Self::Update { old, new } if old.is_resynced_as(new))
    }

    pub(super) fn deliver_to(&self, handler: &mut (impl Handler<K> + ?Sized)) {
        match self {
            Self::Add { object, in_initial_list } => handler.add(object, *in_initial_list),
            Self::Update { old, new } => handler.update(old, new),
            Self::Delete(deleted) => handler.delete(deleted),
            Self::Superseded(object) => handler.superseded(object),
        }
    }
}

impl<K> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, in_initial_list } => {
                Self::Add { object: object.clone(), in_initial_list: *in_initial_list }
            }
            Self::Update { old, new } => Self::Update { old: old.clone(), new: new.clone() },
            Self::Delete(deleted) => Self::Delete(deleted.clone()),
            Self::Superseded(object) => Self::Superseded(object.clone()),
        }
    }
}
