//! The thread-safe store: any number of readers of snapshots, and one writer at a time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;

use super::asked::{Asked, Shown};
use super::batch::Batch;
use super::index::Index;
use super::publish::Published;
use super::snapshot::Snapshot;
use super::state::{IndexPanics, State, Tools, bytes_of};
use crate::clock::Clock;
use crate::env::Env;
use crate::object::{Object, ObjectName, ResourceVersion};
use crate::queue::KnownObjects;

/// The thread-safe store of one kind. Clones share the contents.
///
/// Writers wait for each other; readers take a [`Snapshot`] and never wait.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::store::{Indexer, namespace_index};
/// use watchkeeper::{Env, Object};
///
/// let pods = Indexer::<Pod>::new(&Env::simulated(1), [namespace_index()]);
/// pods.add(Object::from_json(br#"{"metadata":{"name":"a","namespace":"ns"}}"#)?);
/// assert_eq!(pods.snapshot().by_index("namespace", "ns")?.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Indexer<K>(Arc<Shared<K>>);

struct Shared<K> {
    state: Published<State<K>>,
    clock: Clock,
    /// Whether the informer that fills the store has stopped.
    ended: AtomicBool,
    /// What the informer has asked the server.
    asked: Asked,
    subscribers: RwLock<Vec<Weak<dyn Subscriber>>>,
}

/// Something that is called after each publication of a store, on the writer's thread and without its lock.
pub(crate) trait Subscriber: Send + Sync {
    fn published(&self);
}

/// An [`Indexer`] that is not kept alive.
pub(crate) struct WeakIndexer<K>(Weak<Shared<K>>);

impl<K> WeakIndexer<K> {
    pub(crate) fn upgrade(&self) -> Option<Indexer<K>> {
        self.0.upgrade().map(Indexer)
    }

    /// Returns a value that is the same for the clones of one store only, even after the store is dropped.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

/// The error of two indexes with one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("indexer conflict: there is an index {0:?} already; give the other one another name")]
pub struct IndexConflict(pub String);

/// The error of a store that did not reach a version in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has not reached version {wanted:?} within {waited:?}: it is at {reached:?}")]
pub struct NotFresh {
    /// The requested version.
    pub wanted: ResourceVersion,
    /// The version of the store.
    pub reached: ResourceVersion,
    /// The time waited.
    pub waited: Duration,
}

impl<K> Shared<K> {
    fn published(&self) {
        // Not under the lock: a subscriber may subscribe to others, or be dropped by what it does.
        let subscribers = self.subscribers.read();
        if subscribers.is_empty() {
            return;
        }
        let alive: Vec<_> = subscribers.iter().filter_map(Weak::upgrade).collect();
        drop(subscribers);
        alive.iter().for_each(|subscriber| subscriber.published());
    }
}

impl<K> Indexer<K> {
    /// Returns an empty store with `indexes`. Of two indexes with one name the second is ignored, and reported as an
    /// [`IndexConflict`].
    pub fn new(env: &Env, indexes: impl IntoIterator<Item = Index<K>>) -> Self {
        Self::with_mask(env, indexes, u64::MAX)
    }

    /// Returns a store that uses only some bits of hashes.
    pub(super) fn with_mask(env: &Env, indexes: impl IntoIterator<Item = Index<K>>, mask: u64) -> Self {
        let tools = Tools { hasher: env.generator.hasher(), mask, reporter: env.reporter.clone() };
        let mut state = State::new(tools);
        let mut batch = Batch::new(&mut state);
        for index in indexes {
            if batch.index_names().any(|name| name == index.name()) {
                let conflict = IndexConflict(index.name().to_owned());
                env.reporter.error("indexer", index.name(), &conflict);
            } else {
                batch.add_index(index);
            }
        }
        Self(Arc::new(Shared {
            state: Published::new(state),
            clock: env.clock.clone(),
            ended: AtomicBool::new(false),
            asked: Asked::default(),
            subscribers: RwLock::default(),
        }))
    }

    /// Returns everything in the store at this moment, in O(1).
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::of(self.0.state.read())
    }

    /// Returns the object of that key.
    pub fn get(&self, key: &ObjectName) -> Option<Object<K>> {
        self.0.state.peek().find(bytes_of(key)).cloned()
    }

    /// Returns the object with the key of `like`.
    pub fn get_like(&self, like: &Object<K>) -> Option<Object<K>> {
        self.0.state.peek().find(like.key_bytes()).cloned()
    }

    /// Returns the version that the contents reflect; see [`Batch::set_version`].
    pub fn version(&self) -> ResourceVersion {
        self.0.state.peek().version.clone()
    }

    /// Adds an object, or replaces the one with the same key.
    pub fn add(&self, object: Object<K>) {
        // The write returns what it replaces, so that it is freed outside the lock.
        self.write(|batch| batch.put(&object));
    }

    /// Removes an object and returns it.
    pub fn delete(&self, key: &ObjectName) -> Option<Object<K>> {
        self.write(|batch| batch.remove(key))
    }

    /// Replaces the whole contents in one step and returns the old ones; see [`Batch::replace`].
    ///
    /// Dropping the result frees the objects that nothing else holds, which takes milliseconds for 50,000 objects. The
    /// caller decides where and when; the store does not wait for it.
    pub fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion) -> Snapshot<K> {
        self.write(|batch| batch.replace(&items, version))
    }

    /// Adds indexes, filled with the current contents.
    ///
    /// # Errors
    ///
    /// A name exists already, or occurs twice in `indexes`; then nothing changes.
    pub fn add_indexes(&self, indexes: impl IntoIterator<Item = Index<K>>) -> Result<(), IndexConflict> {
        let indexes: Vec<_> = indexes.into_iter().collect();
        self.write(|batch| {
            let mut names: BTreeSet<&str> = batch.index_names().collect();
            if let Some(taken) = indexes.iter().map(Index::name).find(|name| !names.insert(name)) {
                return Err(IndexConflict(taken.to_owned()));
            }
            indexes.into_iter().for_each(|index| batch.add_index(index));
            Ok(())
        })
    }

    /// Applies all changes of `write` in one step: readers see all of them or none. If it panics, nothing changes.
    ///
    /// Meanwhile other writers wait and readers do not. Calling a writing method of this store in `write` is a
    /// deadlock.
    ///
    /// ```
    /// # use watchkeeper::{Env, Object, ObjectName, store::Indexer};
    /// let store = Indexer::<()>::new(&Env::simulated(1), []);
    /// store.add(Object::from_json(br#"{"metadata":{"name":"old"}}"#)?);
    /// store.write(|batch| {
    ///     batch.put(&Object::from_json(br#"{"metadata":{"name":"new"}}"#)?);
    ///     batch.remove(&ObjectName::cluster("old"));
    ///     batch.set_version(7.into());
    ///     Ok::<_, watchkeeper::object::IdentityError>(())
    /// })?;
    /// assert_eq!((store.snapshot().len(), store.version()), (1, 7.into()));
    /// # Ok::<(), watchkeeper::object::IdentityError>(())
    /// ```
    pub fn write<R>(&self, write: impl FnOnce(&mut Batch<'_, K>) -> R) -> R {
        let (result, panics) = self.write_unreported(write);
        panics.report();
        result
    }

    /// Does the same as [`Indexer::write`] for a caller that holds locks, which reports the panics of index functions
    /// after releasing them.
    pub(crate) fn write_unreported<R>(&self, write: impl FnOnce(&mut Batch<'_, K>) -> R) -> (R, IndexPanics) {
        let written = self.0.state.write(|state| {
            let mut batch = Batch::new(state);
            (write(&mut batch), batch.panics)
        });
        self.0.published();
        written
    }

    /// Calls `subscriber` after each publication, and when the store has ended, until it is dropped.
    pub(crate) fn subscribe(&self, subscriber: Weak<dyn Subscriber>) {
        let mut subscribers = self.0.subscribers.write();
        subscribers.retain(|known| known.strong_count() > 0);
        subscribers.push(subscriber);
    }

    pub(crate) fn downgrade(&self) -> WeakIndexer<K> {
        WeakIndexer(Arc::downgrade(&self.0))
    }

    /// Records that the informer of this store has stopped, and wakes the waiters.
    pub(crate) fn ended(&self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.state.wake();
        self.0.published();
    }

    /// Returns whether the informer of this store has stopped: then its version does not change any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Returns how many questions to the server have begun, and the answer to the last one that has one.
    pub(crate) fn asked(&self) -> (u64, Option<Shown>) {
        (self.0.asked.begun(), self.0.asked.shown())
    }

    /// Waits until the contents reflect `version`. Cancel-safe.
    ///
    /// A version that is not a number is compared by equality, and may be missed; an unset one is reflected by any
    /// contents.
    pub async fn wait_until_fresh(&self, version: &ResourceVersion) {
        if !version.is_unset() {
            self.0.state.wait(|reached| reached >= version || reached == version).await;
        }
    }

    /// Waits until the contents have another version than `version`. Cancel-safe.
    pub(crate) async fn wait_for_another_version(&self, version: &ResourceVersion) {
        self.0.state.wait(|reached| reached != version).await;
    }

    /// Waits as [`Indexer::wait_until_fresh`] does, at most for `patience`. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The time is up; the error has the version of the store.
    pub async fn wait_until_fresh_within(
        &self,
        version: &ResourceVersion,
        patience: Duration,
    ) -> Result<(), NotFresh> {
        let waited = self.0.clock.timeout(patience, self.wait_until_fresh(version)).await;
        waited.map_err(|_| NotFresh { wanted: version.clone(), reached: self.version(), waited: patience })
    }
}

impl<K> KnownObjects<K> for Indexer<K> {
    fn known(&self, key: &ObjectName) -> Option<Object<K>> {
        self.get(key)
    }

    fn each_known(&self, each: &mut dyn FnMut(&Object<K>)) {
        self.snapshot().iter().for_each(each);
    }

    fn unchanged(&self, object: &Object<K>) -> Option<Object<K>> {
        self.get_like(object).filter(|known| known.same_state(object))
    }

    fn ended(&self) {
        self.ended();
    }

    fn asking(&self) -> u64 {
        self.0.asked.begin()
    }

    fn answered(&self, question: u64, version: &ResourceVersion) {
        self.0.asked.answered(question, version);
        self.0.published();
    }
}

impl<K> Clone for Indexer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.snapshot(), f)
    }
}
