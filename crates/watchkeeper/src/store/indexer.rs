//! The thread-safe store: any number of readers of snapshots, and one writer at a time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

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
/// Writers wait for each other; readers take a [`Snapshot`] and wait for nobody.
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
    /// Whoever filled it has stopped.
    ended: AtomicBool,
}

/// An [`Indexer`] that is not kept alive.
pub(crate) struct WeakIndexer<K>(Weak<Shared<K>>);

impl<K> WeakIndexer<K> {
    pub(crate) fn upgrade(&self) -> Option<Indexer<K>> {
        self.0.upgrade().map(Indexer)
    }

    /// The same for the clones of one store only, also after the store is gone.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

/// Two indexes of one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("indexer conflict: there is an index {0:?} already; give the other one another name")]
pub struct IndexConflict(pub String);

/// The store did not reach a version in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has not reached version {wanted:?} within {waited:?}: it is at {reached:?}")]
pub struct NotFresh {
    /// The version that was waited for.
    pub wanted: ResourceVersion,
    /// The version that the store is at.
    pub reached: ResourceVersion,
    /// For how long it was waited for.
    pub waited: Duration,
}

impl<K> Indexer<K> {
    /// An empty store with `indexes`. Of two indexes with one name the second is refused, and reported as an [`IndexConflict`].
    pub fn new(env: &Env, indexes: impl IntoIterator<Item = Index<K>>) -> Self {
        Self::with_mask(env, indexes, u64::MAX)
    }

    /// A store in which only some bits of hashes count.
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
        }))
    }

    /// Everything in the store at this moment, in O(1).
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::of(self.0.state.read())
    }

    /// The object of that key.
    pub fn get(&self, key: &ObjectName) -> Option<Object<K>> {
        self.0.state.peek().find(bytes_of(key)).cloned()
    }

    /// The object with the key of `like`.
    pub fn get_like(&self, like: &Object<K>) -> Option<Object<K>> {
        self.0.state.peek().find(like.key_bytes()).cloned()
    }

    /// The version that the contents reflect; see [`Batch::set_version`].
    pub fn version(&self) -> ResourceVersion {
        self.0.state.peek().version.clone()
    }

    /// Adds an object, or replaces the one with the same key.
    pub fn add(&self, object: Object<K>) {
        // What it replaces is returned by the write, so that it is freed outside the lock.
        self.write(|batch| batch.put(&object));
    }

    /// Takes an object out.
    pub fn delete(&self, key: &ObjectName) -> Option<Object<K>> {
        self.write(|batch| batch.remove(key))
    }

    /// Replaces the whole contents in one step; see [`Batch::replace`].
    ///
    /// What was there before is returned. Dropping it frees what nobody else holds, which takes milliseconds where 50,000 objects
    /// go: it happens where and when the caller likes, and nobody waits for it.
    pub fn replace(&self, items: Vec<Object<K>>, version: ResourceVersion) -> Snapshot<K> {
        self.write(|batch| batch.replace(&items, version))
    }

    /// Adds indexes, filled with what is in the store.
    ///
    /// # Errors
    ///
    /// A name is taken, or stands twice in `indexes`: then nothing changes.
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

    /// Applies all changes of `write` in one step: readers see all of them or none. Where it panics, nothing changes.
    ///
    /// Other writers wait meanwhile, readers do not: to call a writing method of this store in `write` would wait for ever.
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

    /// As [`Indexer::write`], for one who holds locks, and reports the panics of index functions without them.
    pub(crate) fn write_unreported<R>(&self, write: impl FnOnce(&mut Batch<'_, K>) -> R) -> (R, IndexPanics) {
        self.0.state.write(|state| {
            let mut batch = Batch::new(state);
            (write(&mut batch), batch.panics)
        })
    }

    pub(crate) fn downgrade(&self) -> WeakIndexer<K> {
        WeakIndexer(Arc::downgrade(&self.0))
    }

    /// Takes note that whoever filled it has stopped, and wakes those who wait for that.
    pub(crate) fn ended(&self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.state.wake();
    }

    /// Whether the informer that filled it has stopped: then its version does not move any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Waits until the contents reflect `version`, or will not. Cancel-safe.
    pub(crate) async fn wait_until_fresh_or_ended(&self, version: &ResourceVersion) {
        self.0.state.wait(|reached| reached >= version || reached == version || self.has_ended()).await;
    }

    /// Waits until the contents reflect `version`. Cancel-safe.
    ///
    /// A version that cannot be compared is waited for by equality, and may be passed unseen; an unset one is reflected by anything.
    pub async fn wait_until_fresh(&self, version: &ResourceVersion) {
        if !version.is_unset() {
            self.0.state.wait(|reached| reached >= version || reached == version).await;
        }
    }

    /// As [`Indexer::wait_until_fresh`], but for no longer than `patience`. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The time was up first; the error says how far the store has come.
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
