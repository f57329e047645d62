//! Read-your-writes: a key is not started before the caches have seen what its last run wrote.
//!
//! `write.rs` decides when a cache has seen a write; this file keeps the writes of each key, parks keys and wakes them;
//! `unfinished.rs` completes requests whose run was dropped.

mod unfinished;
mod write;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::fast::FixedState;
use futures::future::BoxFuture;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;

use self::write::{Cache, Write};
use crate::clock::{Clock, Instant};
use crate::env::Env;
use crate::explain::{OpenWrites, PastWrite, PendingWrite};
use crate::object::{Kind, Object, ObjectName, ResourceVersion};
use crate::store::{Indexer, Subscriber};
use crate::wire::ApiError;
use crate::workqueue::{Key, RateLimitingQueue, WorkItem};

/// How long a key waits for its own writes before it runs all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a key waits for a request of a dropped run: longer than any request takes.
const IN_FLIGHT: Duration = Duration::from_secs(120);

/// How many writes are remembered, of all keys together.
const RECENT: usize = 1_024;

/// With how many keys the writes that caches have seen meanwhile are first dropped.
const SWEEP: usize = 1_024;

/// The writes of a controller that its caches have not seen yet.
///
/// A reconcile that reads from a cache which is behind its own last write creates an object twice, or reverts what it has just
/// done. So each write is entered under the key whose reconcile made it, and [`admit`](Self::admit) lets a key start only when
/// the caches have seen its writes. Until then the key is parked: no worker waits for it and no attempt is counted. The cache
/// wakes it. After 5 s it runs all the same, and [`get`](Self::get) lays the server's answers over the cache.
///
/// A [`Context`](super::Context) does all of this by itself. A controller written on the low-level parts needs one line in its
/// worker and one after each write. Clones share the writes.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::controller::Writes;
/// use watchkeeper::store::Indexer;
/// use watchkeeper::workqueue::{RateLimitingQueue, limiter};
/// use watchkeeper::{Env, ObjectName};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let env = Env::simulated(1);
/// # let cache = Indexer::<ConfigMap>::new(&env, []);
/// let queue = RateLimitingQueue::new("maps", limiter::default_controller(), &env);
/// let writes = Writes::new(&queue, &env);
/// let key = ObjectName::namespaced("default", "web");
/// # let mut answer = ConfigMap::default();
/// # answer.metadata.name = Some("web".to_owned());
/// # answer.metadata.namespace = Some("default".to_owned());
/// # answer.metadata.resource_version = Some("7".to_owned());
/// writes.wrote(&key, &cache, &answer); // what the server answered to a write
///
/// queue.add(key.clone());
/// let item = queue.get().await.unwrap();
/// assert!(writes.admit(item).is_none(), "the cache has not seen version 7");
/// cache.write(|batch| batch.set_version(7.into()));
/// let item = queue.get().await.unwrap();
/// writes.admit(item).unwrap().forget();
/// # }
/// ```
pub struct Writes<T: Key = ObjectName>(Arc<Shared<T>>);

struct Shared<T: Key> {
    queue: RateLimitingQueue<T>,
    clock: Clock,
    /// How many keys have anything open: most often none, and then nothing is locked.
    open: AtomicUsize,
    state: Mutex<State<T>>,
    overdue: AtomicU64,
    /// Requests of runs that were dropped, and go on.
    unfinished: Mutex<JoinSet<()>>,
}

struct State<T: Key> {
    keys: HashMap<T, Open, FixedState>,
    /// By the cache that has not seen a write of theirs.
    waiting: BTreeMap<usize, Waiting<T>>,
    /// Keys that wrote objects which are gone again without a notification: they are reconciled again.
    vanished: Vec<T>,
    wakers: BTreeMap<usize, Arc<Waker<T>>>,
    sweep_at: usize,
    hasher: FixedState,
    /// The last writes, seen or not, the oldest first.
    recent: VecDeque<Recent<T>>,
}

/// A write, as it is remembered for those who ask what a key did.
struct Recent<T> {
    key: T,
    kind: &'static str,
    name: ObjectName,
    /// Unset for a delete.
    version: ResourceVersion,
    deleted: bool,
    at: Instant,
}

/// The keys with writes that one cache has not seen, parked or not.
struct Waiting<T> {
    /// Each with the version that the cache must reach for the first of them.
    keys: HashMap<T, u64, FixedState>,
    /// The version that the cache had when it last published.
    reached: u64,
    /// The last question of the cache's informer that was answered by then.
    answered: u64,
}

/// What is open of one key; never nothing.
#[derive(Default)]
struct Open {
    /// One per cache and object.
    writes: Vec<Write>,
    in_flight: usize,
    unknown: Vec<Unknown>,
}

/// A write whose outcome is not known.
pub(crate) struct Unknown {
    pub(crate) kind: String,
    pub(crate) name: ObjectName,
    /// Reads the object from the server, and enters its state.
    pub(crate) settle: Box<dyn Fn() -> BoxFuture<'static, Result<(), ApiError>> + Send>,
}

/// Whether a key may start.
enum Turn {
    Now,
    /// Though its caches are behind.
    Overdue,
    Later(Instant),
}

/// Wakes the keys that wait for one cache.
struct Waker<T: Key> {
    writes: Weak<Shared<T>>,
    cache: Arc<dyn Cache>,
}

impl<T: Key + Sync> Writes<T> {
    /// Creates the writes of the controller that works on `queue`.
    pub fn new(queue: &RateLimitingQueue<T>, env: &Env) -> Self {
        let hasher = env.generator.fork("writes").hasher();
        let state = State {
            keys: HashMap::with_hasher(hasher.clone()),
            waiting: BTreeMap::new(),
            vanished: Vec::new(),
            wakers: BTreeMap::new(),
            sweep_at: SWEEP,
            hasher,
            recent: VecDeque::new(),
        };
        Self(Arc::new(Shared {
            queue: queue.clone(),
            clock: env.clock.clone(),
            open: AtomicUsize::new(0),
            state: Mutex::new(state),
            overdue: AtomicU64::new(0),
            unfinished: Mutex::default(),
        }))
    }

    /// Returns `item` if its key may start now. Otherwise the key is parked and handed out again when the caches have seen its
    /// writes, or after 5 s.
    pub fn admit(&self, item: WorkItem<T>) -> Option<WorkItem<T>> {
        if self.0.open.load(Ordering::Acquire) == 0 {
            return Some(item);
        }
        let (key, now) = (item.key().clone(), self.0.clock.now());
        let turn = self.0.change(|state| state.turn(&key, item.parked_since().unwrap_or(now), now));
        match turn {
            Turn::Now => Some(item),
            Turn::Overdue => {
                self.0.overdue.fetch_add(1, Ordering::Relaxed);
                Some(item)
            }
            // A cache that publishes between the look and this unparks the key while it is held, which the queue remembers.
            Turn::Later(until) => {
                item.park(until);
                None
            }
        }
    }

    /// Enters that the reconcile of `key` wrote an object of the kind in `cache`; `answer` is what the server returned.
    pub fn wrote<K: Kind + Serialize>(&self, key: &T, cache: &Indexer<K>, answer: &K) {
        // An object without a name was not written.
        if let Ok(object) = Object::from_typed(answer) {
            self.enter(key, cache, &object, false);
        }
    }

    /// Enters that the reconcile of `key` deleted an object of the kind in `cache`. An empty `uid` stands for any.
    pub fn deleted<K: Send + Sync + 'static>(
        &self,
        key: &T,
        cache: &Indexer<K>,
        name: &ObjectName,
        uid: &str,
    ) {
        let write = Write {
            cache: Arc::new(cache.downgrade()),
            name: name.clone(),
            version: ResourceVersion::UNSET,
            uid: uid.to_owned(),
            deleted: true,
            outside: false,
            base: cache.version(),
            asked: cache.asked().0,
            answer: None,
            entered: self.0.clock.now(),
            overdue: false,
        };
        self.0.enter(key, write);
    }

    /// The object of that name as the reconcile of `key` should see it: as in `cache` or, where the cache has not seen the
    /// reconcile's own writes, as the server answered.
    pub fn get<K: Send + Sync + 'static>(
        &self,
        key: &T,
        cache: &Indexer<K>,
        name: &ObjectName,
    ) -> Option<Object<K>> {
        let own = self.0.unseen(key, cache, Some(name)).pop();
        own.map_or_else(|| cache.get(name), |(_, own)| own)
    }

    /// How many runs began although a cache had not seen the key's writes for 5 s.
    pub fn overdue(&self) -> u64 {
        self.0.overdue.load(Ordering::Relaxed)
    }

    /// As [`wrote`](Self::wrote), with the object itself. `outside` says that it does not match the selectors of the informer
    /// behind `cache`.
    pub(crate) fn enter<K: Send + Sync + 'static>(
        &self,
        key: &T,
        cache: &Indexer<K>,
        answer: &Object<K>,
        outside: bool,
    ) {
        let write = Write {
            cache: Arc::new(cache.downgrade()),
            name: answer.key(),
            version: answer.version().clone(),
            uid: answer.uid().to_owned(),
            deleted: false,
            outside,
            base: cache.version(),
            asked: cache.asked().0,
            answer: Some(Arc::new(answer.clone())),
            entered: self.0.clock.now(),
            overdue: false,
        };
        self.0.enter(key, write);
    }

    /// Every object of `cache` that the reconcile of `key` wrote and the cache has not seen, by name; `None` for deleted ones.
    pub(crate) fn unseen<K: Send + Sync + 'static>(
        &self,
        key: &T,
        cache: &Indexer<K>,
    ) -> Vec<(ObjectName, Option<Object<K>>)> {
        self.0.unseen(key, cache, None)
    }

    /// Enters a write whose outcome is not known, to be settled by a live read before the key's next run.
    pub(crate) fn lost(&self, key: &T, unknown: Unknown) {
        self.0.change(|state| {
            let open = state.keys.entry(key.clone()).or_default();
            open.unknown.retain(|earlier| earlier.name != unknown.name || earlier.kind != unknown.kind);
            open.unknown.push(unknown);
        });
    }

    /// Reads from the server what became of the writes of `key` whose outcome is not known. What cannot be read stays unknown.
    pub(crate) async fn settle(&self, key: &T) -> Result<(), ApiError> {
        if self.0.open.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let take = |state: &mut State<T>| {
            let unknown = state.keys.get_mut(key).and_then(|open| open.unknown.pop());
            state.open(key);
            unknown
        };
        while let Some(unknown) = self.0.change(take) {
            if let Err(error) = (unknown.settle)().await {
                self.lost(key, unknown);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the requests of dropped runs. Cancel-safe.
    pub(crate) async fn join(&self) {
        let next = |context: &mut std::task::Context<'_>| self.0.unfinished.lock().poll_join_next(context);
        while std::future::poll_fn(next).await.is_some() {}
    }

    /// Ends the requests of dropped runs: the controller is at its end.
    pub(crate) fn abort(&self) {
        self.0.unfinished.lock().abort_all();
    }

    /// Runs `request` to its end, even if the returned future is dropped; the key is not handed out before.
    pub(crate) fn finish<R: Send + 'static>(
        &self,
        key: &T,
        request: impl Future<Output = R> + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        unfinished::finish(self.0.clone(), key.clone(), request)
    }
}

impl<T: Key + Sync> Shared<T> {
    /// Changes the state; afterwards the count of keys with anything open is right.
    fn change<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let (result, vanished) = {
            let mut state = self.state.lock();
            let result = change(&mut state);
            state.sweep();
            self.open.store(state.keys.len(), Ordering::Release);
            (result, std::mem::take(&mut state.vanished))
        };
        vanished.into_iter().for_each(|key| self.queue.add(key));
        result
    }

    fn enter(self: &Arc<Self>, key: &T, write: Write) {
        let cache = write.cache.clone();
        let is_new_cache = self.change(|state| {
            state.remember(key, &write);
            let writes = &mut state.keys.entry(key.clone()).or_default().writes;
            let is_same =
                |earlier: &Write| earlier.cache.id() == write.cache.id() && earlier.name == write.name;
            let write = match writes.iter().position(is_same) {
                Some(at) => write.follow(writes.swap_remove(at)),
                None => write,
            };
            let (needs, reached) = (write.needs(), write.base.as_number());
            writes.push(write);
            let waiting = state.wait_for(cache.id(), needs, key.clone());
            // While nothing was open, nobody looked at what the cache published.
            waiting.reached = reached.unwrap_or(waiting.reached);
            !state.wakers.contains_key(&cache.id())
        });
        if is_new_cache {
            let waker = Arc::new(Waker { writes: Arc::downgrade(self), cache: cache.clone() });
            let subscriber: Weak<Waker<T>> = Arc::downgrade(&waker);
            cache.subscribe(subscriber);
            self.change(|state| state.wakers.insert(cache.id(), waker));
        }
    }

    fn unseen<K: Send + Sync + 'static>(
        &self,
        key: &T,
        cache: &Indexer<K>,
        name: Option<&ObjectName>,
    ) -> Vec<(ObjectName, Option<Object<K>>)> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let id = cache.downgrade().address();
        let state = self.state.lock();
        let writes = state.keys.get(key).into_iter().flat_map(|open| &open.writes);
        let of_cache =
            writes.filter(|write| write.cache.id() == id && name.is_none_or(|name| *name == write.name));
        let unseen = of_cache.filter(|write| !write.is_seen());
        unseen.map(|write| (write.name.clone(), write.answer.as_deref().and_then(object))).collect()
    }
}

impl OpenWrites for Writes {
    fn of_key(&self, key: &ObjectName) -> Vec<PendingWrite> {
        let now = self.0.clock.now();
        let state = self.0.state.lock();
        let writes = state.keys.get(key).into_iter().flat_map(|open| &open.writes);
        let unseen = writes.filter(|write| !write.is_seen()).map(|write| {
            let age = now.saturating_duration_since(write.entered);
            let cached = write.cache.version().unwrap_or_default();
            let version = if write.deleted { ResourceVersion::UNSET } else { write.version.clone() };
            let mut pending = PendingWrite::new(write.name.clone(), version, cached, age);
            pending.deleted = write.deleted;
            write.cache.kind().clone_into(&mut pending.kind);
            pending
        });
        unseen.collect()
    }

    fn recent(&self, key: &ObjectName) -> Vec<PastWrite> {
        let now = self.0.clock.now();
        let state = self.0.state.lock();
        let recent = state.recent.iter().filter(|write| write.key == *key).map(|write| {
            let age = now.saturating_duration_since(write.at);
            let mut past = PastWrite::new(write.name.clone(), write.version.clone(), age);
            (past.kind, past.deleted) = (write.kind.to_owned(), write.deleted);
            past
        });
        recent.collect()
    }
}

fn object<K: 'static>(answer: &(dyn Any + Send + Sync)) -> Option<Object<K>> {
    answer.downcast_ref::<Object<K>>().cloned()
}

impl<T: Key> State<T> {
    fn remember(&mut self, key: &T, write: &Write) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent {
            key: key.clone(),
            kind: write.cache.kind(),
            name: write.name.clone(),
            version: if write.deleted { ResourceVersion::UNSET } else { write.version.clone() },
            deleted: write.deleted,
            at: write.entered,
        });
    }

    /// What is still open of `key`, without the writes that its caches have seen.
    fn open(&mut self, key: &T) -> Option<&mut Open> {
        let open = self.keys.get_mut(key)?;
        let mut has_vanished = false;
        open.writes.retain(|write| {
            let is_seen = write.is_seen();
            has_vanished |= is_seen && write.has_vanished();
            !is_seen
        });
        if has_vanished {
            self.vanished.push(key.clone());
        }
        if open.is_empty() {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// Whether `key`, which has been waiting since `since`, may start.
    fn turn(&mut self, key: &T, since: Instant, now: Instant) -> Turn {
        let turn = match self.open(key) {
            None => Turn::Now,
            Some(open) if open.in_flight > 0 => Turn::Later(now + IN_FLIGHT),
            Some(open) => match open.awaited() {
                None => Turn::Now,
                // What a request of a dropped run wrote may be younger than the wait.
                Some(write) if now < since.max(write.entered) + PATIENCE => {
                    Turn::Later(since.max(write.entered) + PATIENCE)
                }
                Some(_) => {
                    open.writes.iter_mut().for_each(|write| write.overdue = true);
                    Turn::Overdue
                }
            },
        };
        // Its run, now or later, finds out.
        self.vanished.retain(|vanished| vanished != key);
        turn
    }

    fn wait_for(&mut self, cache: usize, needs: u64, key: T) -> &mut Waiting<T> {
        let hasher = &self.hasher;
        let waiting = self.waiting.entry(cache).or_insert_with(|| Waiting {
            keys: HashMap::with_hasher(hasher.clone()),
            reached: 0,
            answered: 0,
        });
        let least = waiting.keys.entry(key).or_insert(needs);
        *least = needs.min(*least);
        waiting
    }

    /// The keys that may start, as far as they are parked, now that `cache` has published.
    fn woken_by(&mut self, cache: &dyn Cache) -> Vec<T> {
        let Some(waiting) = self.waiting.get_mut(&cache.id()) else { return Vec::new() };
        // A cache that has ended, or was set back, shows all it will ever show.
        let reached = cache.version().and_then(|version| version.as_number()).unwrap_or(u64::MAX);
        let answered = cache.shown().map_or(0, |shown| shown.question);
        // What the server shows of itself may prove that it has lost a write.
        let is_shown = reached < waiting.reached || answered > waiting.answered;
        (waiting.reached, waiting.answered) = (reached, answered);
        let due = waiting.keys.extract_if(|_, needs| *needs <= reached || is_shown);
        let mut due: Vec<_> = due.map(|(key, _)| key).collect();
        due.retain(|key| {
            let Some(open) = self.open(key) else { return true };
            let is_ready = open.in_flight == 0 && open.awaited().is_none();
            let unseen = open.writes.iter().filter(|write| write.cache.id() == cache.id());
            if let Some(needs) = unseen.map(Write::needs).min() {
                self.wait_for(cache.id(), needs, key.clone());
            }
            is_ready
        });
        due
    }

    /// Drops from time to time what the caches have seen of keys that do not come back.
    fn sweep(&mut self) {
        if self.keys.len() >= self.sweep_at {
            let keys: Vec<_> = self.keys.keys().cloned().collect();
            for key in &keys {
                self.open(key);
            }
            self.sweep_at = SWEEP.max(2 * self.keys.len());
        }
    }
}

impl Open {
    /// A write that the key has to wait for.
    fn awaited(&self) -> Option<&Write> {
        self.writes.iter().find(|write| !write.overdue)
    }

    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.unknown.is_empty() && self.in_flight == 0
    }
}

impl<T: Key + Sync> Subscriber for Waker<T> {
    fn published(&self) {
        let Some(writes) = self.writes.upgrade() else { return };
        if writes.open.load(Ordering::Acquire) == 0 {
            return;
        }
        let woken = writes.change(|state| state.woken_by(&*self.cache));
        woken.iter().for_each(|key| writes.queue.unpark(key));
    }
}

impl<T: Key> Clone for Writes<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Key> fmt::Debug for Writes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.open.load(Ordering::Relaxed);
        f.debug_struct("Writes").field("keys", &keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
