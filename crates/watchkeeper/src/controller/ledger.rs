//! Has the cache seen what this controller wrote? A ledger of the writes it has not, and a wait for them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::clock::{Clock, Instant};
use crate::env::Env;
use crate::object::{Kind, ObjectName, ResourceVersion};
use crate::store::{Indexer, WeakIndexer};
use crate::workqueue::Key;

/// How long [`Ledger::settled`] waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// After which time a write is struck off though no cache has seen it: a server whose versions went back never reaches it.
const OLDEST: Duration = Duration::from_secs(600);

/// With how many keys the ledger begins to strike off what the caches have seen meanwhile.
const SWEEP: usize = 1_024;

/// What a controller wrote for its keys and its caches have not seen yet: read-your-writes.
///
/// A reconcile that reads from a cache which is behind its own last write creates an object twice, or sets back what it has just done.
/// So each write is entered here, under the key whose work it was, and the next work on that key begins with
/// [`settled`](Self::settled). Mostly that returns at once: what brings a key back into the queue is the news of the write itself.
///
/// Clones share the ledger. It is in memory: a controller that starts has an empty one, and a first list that knows everything.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::controller::Ledger;
/// use watchkeeper::store::Indexer;
/// use watchkeeper::{Env, ObjectName};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let env = Env::simulated(1);
/// let (cache, ledger) = (Indexer::<ConfigMap>::new(&env, []), Ledger::new(&env));
/// let key = ObjectName::namespaced("default", "web");
/// ledger.wrote_version(&key, &cache, 7.into());
/// assert!(ledger.settled(&key).await.is_err(), "the cache has not seen version 7");
/// cache.write(|batch| batch.set_version(7.into()));
/// assert!(ledger.settled(&key).await.is_ok());
/// # }
/// ```
pub struct Ledger<T: Key = ObjectName>(Arc<Inner<T>>);

struct Inner<T> {
    clock: Clock,
    state: Mutex<State<T>>,
    behind: AtomicU64,
}

struct State<T> {
    /// No list is empty, and none has two writes of one cache.
    writes: HashMap<T, Vec<Write>, FixedState>,
    /// With how many keys those that are settled are struck off: twice as many as were left the last time.
    sweep_at: usize,
}

#[derive(Clone)]
struct Write {
    cache: Arc<dyn Cache>,
    version: ResourceVersion,
    at: Instant,
}

/// A store, whatever is in it. The ledger does not keep it alive.
trait Cache: Send + Sync {
    /// The same for clones of one store only.
    fn id(&self) -> usize;
    /// How far the store has come; `None` where it is gone, or nobody fills it any more.
    fn version(&self) -> Option<ResourceVersion>;
    fn wait(&self, version: ResourceVersion) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<K: Send + Sync + 'static> Cache for WeakIndexer<K> {
    fn id(&self) -> usize {
        self.address()
    }

    fn version(&self) -> Option<ResourceVersion> {
        let store = self.upgrade()?;
        (!store.has_ended()).then(|| store.version())
    }

    fn wait(&self, version: ResourceVersion) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Some(store) = self.upgrade() {
                store.wait_until_fresh_or_ended(&version).await;
            }
        })
    }
}

impl Write {
    /// A version that cannot be compared is not waited for, nor is an informer that is gone or has stopped: it could be for ever.
    fn is_seen(&self) -> bool {
        let Some(reached) = self.cache.version() else { return true };
        let wanted = &self.version;
        let unknown = !reached.is_unset() && reached.partial_cmp(wanted).is_none();
        reached >= *wanted || wanted.is_unset() || unknown
    }
}

/// A cache has not seen what was written for a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is at version {reached} and has not seen our own write at {wanted}: try again later")]
pub struct Behind {
    /// The version of the write.
    pub wanted: ResourceVersion,
    /// How far the cache has come.
    pub reached: ResourceVersion,
}

impl<T: Key> Ledger<T> {
    /// An empty ledger.
    pub fn new(env: &Env) -> Self {
        let writes = HashMap::with_hasher(env.generator.fork("ledger").hasher());
        let state = Mutex::new(State { writes, sweep_at: SWEEP });
        Self(Arc::new(Inner { clock: env.clock.clone(), state, behind: AtomicU64::new(0) }))
    }

    /// Enters that the work on `key` wrote an object of a kind that `cache` watches; `written` is the server's answer.
    pub fn wrote<K: Kind>(&self, key: &T, cache: &Indexer<K>, written: &K) {
        let version = written.meta().resource_version.as_deref().unwrap_or_default();
        self.wrote_version(key, cache, version.into());
    }

    /// As [`wrote`](Self::wrote), where only the version is known.
    pub fn wrote_version<K>(&self, key: &T, cache: &Indexer<K>, version: ResourceVersion)
    where
        K: Send + Sync + 'static,
    {
        let write = Write { cache: Arc::new(cache.downgrade()), version, at: self.0.clock.now() };
        let mut state = self.0.state.lock();
        let writes = state.writes.entry(key.clone()).or_default();
        // A write that changed nothing is answered with the version of an earlier one: the later of the two is waited for.
        let is_later =
            |earlier: &Write| earlier.cache.id() == write.cache.id() && earlier.version >= write.version;
        if !writes.iter().any(is_later) {
            writes.retain(|earlier| earlier.cache.id() != write.cache.id());
            writes.push(write);
        }
        state.sweep(self.0.clock.now());
    }

    /// Waits until the caches have seen what was written for `key`, up to 5 s. Cancel-safe.
    ///
    /// # Errors
    ///
    /// A cache is still behind: whoever goes on works with an old world. A write is forgotten after 10 minutes.
    pub async fn settled(&self, key: &T) -> Result<(), Behind> {
        let Some(writes) = self.open(key) else { return Ok(()) };
        let all = async {
            for write in &writes {
                write.cache.wait(write.version.clone()).await;
            }
        };
        // Whether in time or not, what counts is what the caches have seen.
        let _ = self.0.clock.timeout(PATIENCE, all).await;
        match self.open(key).as_deref() {
            Some([write, ..]) => {
                self.0.behind.fetch_add(1, Ordering::Relaxed);
                Err(Behind {
                    wanted: write.version.clone(),
                    reached: write.cache.version().unwrap_or_default(),
                })
            }
            _ => Ok(()),
        }
    }

    /// How often [`settled`](Self::settled) found a cache behind when its patience ended.
    pub fn behind(&self) -> u64 {
        self.0.behind.load(Ordering::Relaxed)
    }

    /// The writes for `key` that are not seen yet; the others are struck off.
    fn open(&self, key: &T) -> Option<Vec<Write>> {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        let writes = state.writes.get_mut(key)?;
        if !keep_open(writes, now) {
            state.writes.remove(key);
            return None;
        }
        Some(writes.clone())
    }
}

impl<T> State<T> {
    fn sweep(&mut self, now: Instant) {
        if self.writes.len() >= self.sweep_at {
            self.writes.retain(|_, writes| keep_open(writes, now));
            self.sweep_at = SWEEP.max(2 * self.writes.len());
        }
    }
}

/// Strikes off what is seen or too old; whether anything is left.
fn keep_open(writes: &mut Vec<Write>, now: Instant) -> bool {
    writes.retain(|write| !write.is_seen() && now.saturating_duration_since(write.at) < OLDEST);
    !writes.is_empty()
}

impl<T: Key> Clone for Ledger<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Key> fmt::Debug for Ledger<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.0.state.lock().writes.len();
        f.debug_struct("Ledger").field("keys", &open).field("behind", &self.behind()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::informer::SharedInformer;
    use crate::source::{Reply, ScriptedSource};
    use crate::store::Index;

    fn ledger_of_a_store() -> (Env, Ledger<u32>, Indexer<ConfigMap>) {
        let env = Env::simulated(1);
        (env.clone(), Ledger::new(&env), Indexer::new(&env, []))
    }

    fn reach<K>(cache: &Indexer<K>, version: u64) {
        cache.write(|batch| batch.set_version(version.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_own_writes_only() {
        let (_, ledger, cache) = ledger_of_a_store();
        ledger.wrote_version(&1, &cache, 5.into());
        assert_eq!(ledger.settled(&2).now_or_never(), Some(Ok(())));
        let mut settled = Box::pin(ledger.settled(&1));
        assert_eq!(settled.as_mut().now_or_never(), None);
        reach(&cache, 4);
        assert_eq!(settled.as_mut().now_or_never(), None);
        reach(&cache, 5);
        assert_eq!(settled.await, Ok(()));
        assert_eq!(ledger.0.state.lock().writes.len(), 0, "what is seen is struck off");
    }

    #[tokio::test(start_paused = true)]
    async fn an_informer_that_is_gone_is_neither_kept_alive_nor_waited_for() {
        let (_, ledger, cache) = ledger_of_a_store();
        let contents = Arc::new(());
        let held = contents.clone();
        cache
            .add_indexes([Index::new("held", move |_| {
                let _ = &held;
                []
            })])
            .unwrap();
        ledger.wrote_version(&1, &cache, 5.into());
        drop(cache);
        assert_eq!(Arc::strong_count(&contents), 1, "the store is freed with its informer");
        assert_eq!(ledger.settled(&1).now_or_never(), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn an_informer_that_has_stopped_or_stops_meanwhile_is_not_waited_for() {
        let env = Env::simulated(1);
        let (ledger, source, stop) = (Ledger::new(&env), ScriptedSource::new(), CancellationToken::new());
        source.on_list(Reply::body(r#"{"metadata":{"resourceVersion":"3"},"items":[]}"#));
        let informer = SharedInformer::<ConfigMap>::builder(source, &env).build();
        ledger.wrote_version(&1, informer.indexer(), 5.into());
        let (running, token) = (informer.clone(), stop.clone());
        let run = tokio::spawn(async move { running.run(token).await });
        informer.wait_until_synced().await;
        let mut settled = Box::pin(ledger.settled(&1));
        assert_eq!(settled.as_mut().now_or_never(), None);
        stop.cancel();
        run.await.unwrap();
        assert_eq!(settled.as_mut().now_or_never(), Some(Ok(())));
        ledger.wrote_version(&1, informer.indexer(), 6.into());
        assert_eq!(ledger.settled(&1).now_or_never(), Some(Ok(())));
        assert_eq!(ledger.behind(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_of_a_write_is_that_of_the_answer() {
        let (_, ledger, cache) = ledger_of_a_store();
        let mut written = ConfigMap::default();
        written.metadata.resource_version = Some("8".into());
        ledger.wrote(&1, &cache, &written);
        reach(&cache, 7);
        assert_eq!(ledger.settled(&1).await, Err(Behind { wanted: 8.into(), reached: 7.into() }));
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_the_latest_version_written_to_each_cache() {
        let (env, ledger, maps) = ledger_of_a_store();
        let pods = Indexer::<Pod>::new(&env, []);
        ledger.wrote_version(&1, &maps, 5.into());
        ledger.wrote_version(&1, &maps.clone(), 6.into());
        ledger.wrote_version(&1, &maps, 3.into());
        ledger.wrote_version(&1, &pods, 7.into());
        reach(&pods, 7);
        reach(&maps, 5);
        let behind = ledger.settled(&1).await;
        assert_eq!(behind, Err(Behind { wanted: 6.into(), reached: 5.into() }));
        reach(&maps, 9);
        assert_eq!(ledger.settled(&1).now_or_never(), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn after_five_seconds_it_says_that_the_cache_is_behind_and_counts() {
        let (env, ledger, cache) = ledger_of_a_store();
        ledger.wrote_version(&1, &cache, 5.into());
        let start = env.clock.now();
        assert_eq!(ledger.behind(), 0);
        assert!(ledger.settled(&1).await.is_err());
        assert_eq!((env.clock.now() - start, ledger.behind()), (PATIENCE, 1));
        assert!(ledger.settled(&1).await.is_err(), "it is not forgotten");
        assert_eq!(format!("{ledger:?}"), "Ledger { keys: 1, behind: 2 }");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_no_cache_ever_sees_is_forgotten_after_ten_minutes() {
        let (env, ledger, cache) = ledger_of_a_store();
        ledger.wrote_version(&1, &cache, 5.into());
        env.clock.sleep(OLDEST - Duration::from_millis(1)).await;
        assert_eq!(ledger.settled(&1).now_or_never(), None);
        env.clock.sleep(Duration::from_millis(1)).await;
        assert_eq!(ledger.settled(&1).now_or_never(), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_never_come_back_do_not_pile_up() {
        let (_, ledger, cache) = ledger_of_a_store();
        for key in 0..100_000 {
            ledger.wrote_version(&key, &cache, u64::from(key).into());
            reach(&cache, u64::from(key));
        }
        assert!(ledger.0.state.lock().writes.len() <= SWEEP);
    }

    #[tokio::test(start_paused = true)]
    async fn the_ledger_is_gone_through_only_when_it_has_doubled() {
        let (_, ledger, cache) = ledger_of_a_store();
        let keys_and_limit = || {
            let state = ledger.0.state.lock();
            (state.writes.len(), state.sweep_at)
        };
        for key in 1..SWEEP as u32 {
            ledger.wrote_version(&key, &cache, 5.into());
        }
        reach(&cache, 5);
        assert_eq!(keys_and_limit(), (SWEEP - 1, SWEEP));
        ledger.wrote_version(&0, &cache, 6.into());
        assert_eq!(keys_and_limit(), (1, SWEEP));
        for key in 1..SWEEP as u32 {
            ledger.wrote_version(&key, &cache, 6.into());
        }
        assert_eq!(keys_and_limit(), (SWEEP, 2 * SWEEP));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_unset_or_no_number_is_not_waited_for() {
        let (_, ledger, cache) = ledger_of_a_store();
        ledger.wrote_version(&1, &cache, ResourceVersion::UNSET);
        assert_eq!(ledger.settled(&1).now_or_never(), Some(Ok(())));
        reach(&cache, 3);
        ledger.wrote_version(&1, &cache, "opaque".into());
        assert_eq!(ledger.settled(&1).now_or_never(), Some(Ok(())));
    }
}
