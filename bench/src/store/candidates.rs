//! Alternative stores. Each keeps objects by key and by namespace, with a new state for every change.

use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::{Mutex, RwLock};
use watchkeeper::store::{Indexer, NAMESPACE_INDEX, namespace_index};
use watchkeeper::{Env, Object, ObjectName, ResourceVersion};

type Map<V> = HashMap<ObjectName, V, FixedState>;
type Keys = HashSet<ObjectName, FixedState>;
type Buckets<S> = HashMap<String, S, FixedState>;

/// A store of Pods with an index by namespace. Lists are copies, as client-go makes them.
pub(super) trait Candidate: Sync {
    fn fill(&self, pods: &[Object<Pod>]);
    fn put(&self, pod: &Object<Pod>);
    fn get(&self, key: &ObjectName) -> Option<Object<Pod>>;
    fn by_namespace(&self, namespace: &str) -> Vec<Object<Pod>>;
    fn list(&self) -> Vec<Object<Pod>>;
}

/// All candidates, under the names that the output shows.
pub(super) fn all(env: &Env) -> [(&'static str, Box<dyn Candidate>); 4] {
    [
        ("indexer", Box::new(Indexer::<Pod>::new(env, [namespace_index()]))),
        ("shards", Box::new(Shards::default())),
        ("rpds", Box::new(Persistent::default())),
        ("rwlock", Box::new(Locked::default())),
    ]
}

impl Candidate for Indexer<Pod> {
    fn fill(&self, pods: &[Object<Pod>]) {
        self.replace(pods.to_vec(), ResourceVersion::UNSET);
    }

    fn put(&self, pod: &Object<Pod>) {
        self.add(pod.clone());
    }

    fn get(&self, key: &ObjectName) -> Option<Object<Pod>> {
        Indexer::get(self, key)
    }

    fn by_namespace(&self, namespace: &str) -> Vec<Object<Pod>> {
        let now = self.snapshot();
        now.by_index(NAMESPACE_INDEX, namespace).into_iter().flatten().cloned().collect()
    }

    fn list(&self) -> Vec<Object<Pod>> {
        self.snapshot().iter().cloned().collect()
    }
}

/// One lock around everything: what client-go's thread-safe store is.
#[derive(Default)]
struct Locked(RwLock<(Map<Object<Pod>>, Buckets<Keys>)>);

impl Candidate for Locked {
    fn fill(&self, pods: &[Object<Pod>]) {
        pods.iter().for_each(|pod| self.put(pod));
    }

    fn put(&self, pod: &Object<Pod>) {
        let key = pod.key();
        let (items, buckets) = &mut *self.0.write();
        if items.insert(key.clone(), pod.clone()).is_none() {
            buckets.entry_ref(namespace_of(&key)).or_default().insert(key);
        }
    }

    fn get(&self, key: &ObjectName) -> Option<Object<Pod>> {
        self.0.read().0.get(key).cloned()
    }

    fn by_namespace(&self, namespace: &str) -> Vec<Object<Pod>> {
        let (items, buckets) = &*self.0.read();
        let keys = buckets.get(namespace).into_iter().flatten();
        keys.filter_map(|key| items.get(key).cloned()).collect()
    }

    fn list(&self) -> Vec<Object<Pod>> {
        self.0.read().0.values().cloned().collect()
    }
}

/// Copy-on-write hash maps behind one atomic pointer: a change copies one of them.
#[derive(Default)]
struct Shards {
    published: ArcSwap<ShardState>,
    writing: Mutex<()>,
}

const SHARDS: usize = 512;

#[derive(Clone)]
struct ShardState {
    items: Vec<Arc<Map<Object<Pod>>>>,
    buckets: Arc<Buckets<Arc<Keys>>>,
    hasher: FixedState,
}

impl Default for ShardState {
    fn default() -> Self {
        Self { items: vec![Arc::default(); SHARDS], buckets: Arc::default(), hasher: FixedState::default() }
    }
}

impl ShardState {
    fn shard(&self, key: &ObjectName) -> usize {
        use std::hash::BuildHasher;
        // The high bits: the low ones choose the place within the shard.
        (self.hasher.hash_one(key) >> 48) as usize % SHARDS
    }

    fn get(&self, key: &ObjectName) -> Option<&Object<Pod>> {
        self.items[self.shard(key)].get(key)
    }
}

impl Candidate for Shards {
    fn fill(&self, pods: &[Object<Pod>]) {
        pods.iter().for_each(|pod| self.put(pod));
    }

    fn put(&self, pod: &Object<Pod>) {
        let writing = self.writing.lock();
        let (key, mut next) = (pod.key(), ShardState::clone(&self.published.load()));
        let shard = next.shard(&key);
        if Arc::make_mut(&mut next.items[shard]).insert(key.clone(), pod.clone()).is_none() {
            let bucket = Arc::make_mut(&mut next.buckets).entry_ref(namespace_of(&key)).or_default();
            Arc::make_mut(bucket).insert(key);
        }
        let old = self.published.swap(Arc::new(next));
        drop(writing);
        drop(old);
    }

    fn get(&self, key: &ObjectName) -> Option<Object<Pod>> {
        self.published.load().get(key).cloned()
    }

    fn by_namespace(&self, namespace: &str) -> Vec<Object<Pod>> {
        let now = self.published.load_full();
        let keys = now.buckets.get(namespace).into_iter().flat_map(|keys| keys.iter());
        keys.filter_map(|key| now.get(key).cloned()).collect()
    }

    fn list(&self) -> Vec<Object<Pod>> {
        let now = self.published.load_full();
        now.items.iter().flat_map(|shard| shard.values().cloned()).collect()
    }
}

type Trie<K, V> = rpds::HashTrieMap<K, V, archery::ArcTK, FixedState>;
type TrieSet = rpds::HashTrieSet<ObjectName, archery::ArcTK, FixedState>;

/// A persistent map of a library behind an atomic pointer.
#[derive(Default)]
struct Persistent {
    published: ArcSwap<PersistentState>,
    writing: Mutex<()>,
}

#[derive(Clone, Default)]
struct PersistentState {
    items: Trie<ObjectName, Object<Pod>>,
    buckets: Trie<String, TrieSet>,
}

impl Candidate for Persistent {
    fn fill(&self, pods: &[Object<Pod>]) {
        pods.iter().for_each(|pod| self.put(pod));
    }

    fn put(&self, pod: &Object<Pod>) {
        let writing = self.writing.lock();
        let (key, mut next) = (pod.key(), PersistentState::clone(&self.published.load()));
        if !next.items.contains_key(&key) {
            let namespace = namespace_of(&key).to_owned();
            let keys = next.buckets.get(&namespace).cloned().unwrap_or_default().insert(key.clone());
            next.buckets.insert_mut(namespace, keys);
        }
        next.items.insert_mut(key, pod.clone());
        let old = self.published.swap(Arc::new(next));
        drop(writing);
        drop(old);
    }

    fn get(&self, key: &ObjectName) -> Option<Object<Pod>> {
        self.published.load().items.get(key).cloned()
    }

    fn by_namespace(&self, namespace: &str) -> Vec<Object<Pod>> {
        let now = self.published.load_full();
        let keys = now.buckets.get(namespace).into_iter().flat_map(|keys| keys.iter());
        keys.filter_map(|key| now.items.get(key).cloned()).collect()
    }

    fn list(&self) -> Vec<Object<Pod>> {
        self.published.load_full().items.values().cloned().collect()
    }
}

fn namespace_of(key: &ObjectName) -> &str {
    key.namespace().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_candidates_give_the_same_answers() {
        let pod = |key: &str, version: u64| {
            let (namespace, name) = key.split_once('/').unwrap();
            let json = format!(
                r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","resourceVersion":"{version}"}}}}"#
            );
            Object::<Pod>::from_json(json.as_bytes()).unwrap()
        };
        let sorted = |pods: Vec<Object<Pod>>| {
            let mut all: Vec<_> = pods.iter().map(|pod| format!("{}@{}", pod.key(), pod.version())).collect();
            all.sort();
            all
        };
        for (name, store) in all(&Env::simulated(1)) {
            store.fill(&[pod("a/x", 1), pod("b/x", 2), pod("a/y", 3)]);
            store.put(&pod("a/x", 4));
            store.put(&pod("c/z", 5));
            assert_eq!(sorted(store.list()), ["a/x@4", "a/y@3", "b/x@2", "c/z@5"], "{name}");
            assert_eq!(sorted(store.by_namespace("a")), ["a/x@4", "a/y@3"], "{name}");
            assert_eq!(store.by_namespace("d").len(), 0, "{name}");
            let get = |key: &str| store.get(&key.parse().unwrap()).map(|pod| pod.version().to_string());
            assert_eq!((get("c/z").as_deref(), get("c/y")), (Some("5"), None), "{name}");
        }
    }
}
