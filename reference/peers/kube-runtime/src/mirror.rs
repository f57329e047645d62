//! A reflector's store that is compared with a list.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use kube::api::ListParams;
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How long a store may take to catch up with a list.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a kind must be to be mirrored.
pub(crate) trait Mirrored:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Mirrored for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// Objects by namespace and name.
type Objects = BTreeMap<(String, String), Value>;

/// The errors and restarts of a watcher.
#[derive(Default)]
struct Counts {
    lists: AtomicUsize,
    gone: AtomicUsize,
    errors: AtomicUsize,
}

pub(crate) struct Mirror {
    name: &'static str,
    listed: Box<dyn Fn() -> BoxFuture<'static, Result<Objects, kube::Error>> + Send + Sync>,
    stored: Box<dyn Fn() -> Objects + Send + Sync>,
    counts: Arc<Counts>,
}

impl Mirror {
    /// Watches what `config` selects, and returns when the store has its first state.
    pub(crate) async fn start<K: Mirrored>(
        name: &'static str,
        api: Api<K>,
        config: watcher::Config,
        dyntype: K::DynamicType,
    ) -> Self {
        let writer = Writer::<K>::new(dyntype);
        let reader = writer.as_reader();
        let counts = Arc::new(Counts::default());
        let events = watch(api.clone(), config.clone()).default_backoff().reflect(writer);
        tokio::spawn(follow(events, counts.clone()));
        let mirror = Self {
            name,
            listed: Box::new(move || list(api.clone(), config.clone()).boxed()),
            stored: Box::new({
                let reader = reader.clone();
                move || objects(reader.state().iter().map(|object| &**object))
            }),
            counts,
        };
        ready(&reader).await;
        mirror
    }

    /// The same for a store with two subscribers, which must have been given what is stored.
    pub(crate) async fn start_shared<K: Mirrored + Resource<DynamicType: Default>>(
        name: &'static str,
        api: Api<K>,
    ) -> Self {
        let writer = Writer::<K>::new_shared(64, Default::default());
        let reader = writer.as_reader();
        let counts = Arc::new(Counts::default());
        let subscribers =
            [writer.subscribe(), writer.subscribe()].map(|handle| handle.expect("the store is shared"));
        let seen: [Arc<std::sync::Mutex<Objects>>; 2] = Default::default();
        for (subscriber, seen) in subscribers.into_iter().zip(seen.clone()) {
            tokio::spawn(async move {
                let mut subscriber = std::pin::pin!(subscriber);
                // kube-runtime 5.0 does not wake a subscriber again that was told of an object which is gone already: it is asked again.
                loop {
                    match tokio::time::timeout(Duration::from_millis(50), subscriber.next()).await {
                        Ok(Some(object)) => seen.lock().expect("no panic").extend(objects([&*object])),
                        Ok(None) => return,
                        Err(_) => {}
                    }
                }
            });
        }
        let config = watcher::Config::default();
        let events = watch(api.clone(), config.clone()).default_backoff().reflect_shared(writer);
        tokio::spawn(follow(events, counts.clone()));
        let stored = {
            let reader = reader.clone();
            move || {
                let stored = objects(reader.state().iter().map(|object| &**object));
                // Subscribers hear of every state, and of no deletion: what is stored must be the last that each has seen.
                let told = |seen: &Arc<std::sync::Mutex<Objects>>| {
                    let seen = seen.lock().expect("no panic");
                    stored.iter().all(|(key, object)| seen.get(key) == Some(object))
                };
                if seen.iter().all(told) { stored } else { Objects::new() }
            }
        };
        let mirror = Self {
            name,
            listed: Box::new(move || list(api.clone(), config.clone()).boxed()),
            stored: Box::new(stored),
            counts,
        };
        ready(&reader).await;
        mirror
    }

    /// Lists until the store shows the same, and says how that went.
    pub(crate) async fn catch_up(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let difference = match (self.listed)().await {
                Ok(listed) => match differ(&listed, &(self.stored)()) {
                    None => {
                        return format!("equal {}: {} objects, {}", self.name, listed.len(), self.history());
                    }
                    Some(difference) => difference,
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() > deadline {
                return format!("different {}: {difference}, {}", self.name, self.history());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn history(&self) -> String {
        let [lists, gone, errors] = [&self.counts.lists, &self.counts.gone, &self.counts.errors]
            .map(|count| count.load(Ordering::Relaxed));
        format!("{lists} lists, {gone} gone, {errors} errors")
    }
}

async fn ready<K: Mirrored>(reader: &Store<K>) {
    reader.wait_until_ready().await.expect("the watcher runs")
}

async fn follow<K>(events: impl Stream<Item = watcher::Result<Event<K>>>, counts: Arc<Counts>) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => counts.lists.fetch_add(1, Ordering::Relaxed),
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                counts.gone.fetch_add(1, Ordering::Relaxed)
            }
            Err(_) => counts.errors.fetch_add(1, Ordering::Relaxed),
            Ok(_) => continue,
        };
    }
}

async fn list<K: Mirrored>(api: Api<K>, config: watcher::Config) -> Result<Objects, kube::Error> {
    let parameters = ListParams {
        label_selector: config.label_selector,
        field_selector: config.field_selector,
        ..ListParams::default()
    };
    Ok(objects(&api.list(&parameters).await?.items))
}

/// Without their types, which a list gives once for all of its items.
fn objects<'a, K: Mirrored>(all: impl IntoIterator<Item = &'a K>) -> Objects {
    let entry = |object: &K| {
        let meta = object.meta();
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let mut object = serde_json::to_value(object).expect("an object is JSON");
        for field in ["apiVersion", "kind"] {
            object.as_object_mut().expect("an object").remove(field);
        }
        (key, object)
    };
    all.into_iter().map(entry).collect()
}

/// The first difference found.
fn differ(wanted: &Objects, found: &Objects) -> Option<String> {
    let mut keys = wanted.keys().chain(found.keys());
    keys.find(|key| wanted.get(key) != found.get(key)).map(|(namespace, name)| {
        let key = &(namespace.clone(), name.clone());
        let how = match (wanted.get(key), found.get(key)) {
            (Some(_), None) => "is missing",
            (None, Some(_)) => "should be gone",
            _ => "is not as in the list",
        };
        format!("{namespace}/{name} {how}")
    })
}
