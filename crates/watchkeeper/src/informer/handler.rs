//! What is a handler told, and in which form?

use crate::object::{Object, ObjectName};
use crate::queue::Deleted;

/// Hears of every change of a kind, one at a time and in order: on a task of its own in a [`SharedInformer`](super::SharedInformer), in the
/// loop itself in an [`Informer`](super::Informer).
///
/// Synchronous: slow work belongs into a work queue. The store shows each change, or a later one, before a handler hears of it.
///
/// A handler of a shared informer that is further behind than [its bound](super::HandlerOptions::bound) does not hear of every state: changes
/// A, B, C of an object become one update from A to C, and an object that came and went is not told at all. That is enough to follow objects.
/// It is not enough to follow what they refer to: the owner that only B named is never heard of. A handler that turns states into keys has to
/// [see every state](Self::sees_every_state), as [`enqueue_mapped`](crate::workqueue::enqueue_mapped) does.
pub trait Handler<K>: Send + 'static {
    /// Whether the handler has to see every state that was in the cache, however many changes come at once; `false` by default.
    ///
    /// A shared informer asks once, when the handler is added. It calls such a handler on its own task, where it distributes changes, and not
    /// from a mailbox on a task of the handler's: nothing is buffered, so nothing is coalesced. All else waits meanwhile, the cache included:
    /// the handler must be quick and must not block. It is expected to do no more than to put keys into a work queue, which is its buffer.
    ///
    /// Such a handler has been told of the first list when its informer has synced. One that is added to a running informer is told of
    /// all objects before [`add_handler`](super::SharedInformer::add_handler) returns, on the caller's thread.
    fn sees_every_state(&self) -> bool {
        false
    }

    /// An object came into sight; `in_initial_list` tells whether it was there when this handler began.
    fn add(&mut self, object: &Object<K>, in_initial_list: bool) {
        let _ = (object, in_initial_list);
    }

    /// An object changed, or is told again: then both have the same version. `old` is the state that this handler was told last.
    fn update(&mut self, old: &Object<K>, new: &Object<K>) {
        let _ = (old, new);
    }

    /// An object is gone.
    fn delete(&mut self, deleted: &Deleted<K>) {
        let _ = deleted;
    }

    /// The state in the cache of an object whose end [`delete`](Self::delete) tells next, where its final state is another. Only for a handler
    /// that [sees every state](Self::sees_every_state): its last change and its end came as one.
    fn superseded(&mut self, last_cached: &Object<K>) {
        let _ = last_cached;
    }
}

/// One change, whichever it is.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// An object came into sight.
    Added {
        /// The object.
        object: &'a Object<K>,
        /// Whether it was there when the handler began.
        in_initial_list: bool,
    },
    /// An object changed, or is told again.
    Updated {
        /// The state before.
        old: &'a Object<K>,
        /// The state now.
        new: &'a Object<K>,
    },
    /// An object is gone.
    Deleted(&'a Deleted<K>),
}

impl<'a, K> Change<'a, K> {
    /// Whether nothing changed: the object is told again, with an equal version.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new } if old.version() == new.version())
    }

    /// The newest state there is, a deleted object's last one included; none for a tombstone without one.
    pub fn last_known(&self) -> Option<&'a Object<K>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted(deleted) => deleted.last_known(),
        }
    }
}

/// A handler from a function that is called with every object added or changed, and told again.
pub fn on_apply<K, F: FnMut(&Object<K>) + Send + 'static>(apply: F) -> OnApply<F> {
    OnApply(apply)
}

/// See [`on_apply`].
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

/// A handler from a function that is called with every change.
pub fn on_change<K, F: FnMut(Change<'_, K>) + Send + 'static>(change: F) -> OnChange<F> {
    OnChange(change)
}

/// See [`on_change`].
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

/// A handler that hears only of the objects for which `keep` holds.
///
/// An update that makes `keep` true is told as an add, one that makes it false as a delete; a delete is told where `keep` holds for the last
/// state known. `keep` should depend on nothing but the object.
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

/// See [`filtered`].
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

    /// Whether nothing changed: only handlers that asked to be told again are.
    pub(super) fn is_resync(&self) -> bool {
        matches!(self, Self::Update { old, new } if old.version() == new.version())
    }

    pub(super) fn tell(&self, handler: &mut (impl Handler<K> + ?Sized)) {
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
