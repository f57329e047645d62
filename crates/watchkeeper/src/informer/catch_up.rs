//! Waiting until a cache is as fresh as the server is now.
//!
//! The version of a store says little on its own: it moves with events of its kind, and otherwise with bookmarks, once a minute. So the
//! metadata of all objects is listed, and the store is waited for until it reflects every one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::env::Env;
use crate::object::{Object, ObjectName, ResourceVersion};
use crate::reflector::list_metadata;
use crate::source::{ApiSource, ListOptions};
use crate::store::Indexer;
use crate::wire::{ApiError, OBJECT_CAP};

/// The number of items in a page: metadata is small.
const PAGE: u32 = 5_000;

/// The pause after a list that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The objects that the server had, by name, with their versions.
#[derive(Debug, Default)]
struct Listed {
    version: ResourceVersion,
    objects: BTreeMap<ObjectName, ResourceVersion>,
}

/// Waits until `store` reflects everything that the server had when this was called. A list that fails is repeated. Cancel-safe.
///
/// The store of a kind that is not served does so when it is empty and its reflector `is_parked`.
pub(super) async fn catch_up<K>(
    store: &Indexer<K>,
    source: &ApiSource,
    name: &str,
    env: &Env,
    is_parked: impl Fn() -> bool,
) {
    loop {
        match list(source, env).await {
            Ok(listed) if listed.reach(store, name, &is_parked).await => return,
            Ok(_) => {}
            Err(error) if error.is_not_found() && is_parked() => {
                if store.snapshot().is_empty() {
                    return;
                }
            }
            Err(error) => env.reporter.error("informer", name, &error),
        }
        env.clock.sleep(env.generator.jitter(PAUSE, 1.0)).await;
    }
}

async fn list(source: &ApiSource, env: &Env) -> Result<Listed, ApiError> {
    let options = ListOptions { limit: PAGE, ..ListOptions::default() };
    let mut objects = BTreeMap::new();
    let version = list_metadata(source, &env.clock, OBJECT_CAP, options, |object| {
        objects.insert(object.key(), object.version().clone());
    });
    Ok(Listed { version: version.await?, objects })
}

impl Listed {
    /// Waits until `store` reflects the list. Returns false if that is of no use, as the kind has just come or gone: another list
    /// tells which. Cancel-safe.
    async fn reach<K>(&self, store: &Indexer<K>, name: &str, is_parked: impl Fn() -> bool) -> bool {
        loop {
            let version = store.version();
            if self.is_reflected_by(store) {
                return true;
            }
            if is_parked() {
                return false;
            }
            tracing::debug!(kind = name, %version, wanted = %self.version, "the cache is behind the server");
            store.wait_for_another_version(&version).await;
        }
    }

    fn is_reflected_by<K>(&self, store: &Indexer<K>) -> bool {
        let snapshot = store.snapshot();
        if is_at_least(snapshot.version(), &self.version) {
            return true;
        }
        let is_listed_or_newer = |object: &Object<K>| match self.objects.get(&object.key()) {
            Some(version) => is_at_least(object.version(), version),
            // Created after the list; otherwise deleted before it.
            None => object.version() > &self.version,
        };
        let is_cached = |name: &ObjectName| snapshot.get(name).is_some();
        snapshot.iter().all(is_listed_or_newer) && self.objects.keys().all(is_cached)
    }
}

/// Whether the first is not older; what cannot be compared is taken to be so, as there is nothing to wait for.
fn is_at_least(version: &ResourceVersion, other: &ResourceVersion) -> bool {
    version.partial_cmp(other).is_none_or(|order| order.is_ge())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(version: u64, objects: &[(&str, u64)]) -> Indexer<()> {
        let store = Indexer::new(&Env::simulated(1), []);
        let objects = objects.iter().map(|(name, version)| {
            let json = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
            Object::from_json(json.as_bytes()).unwrap()
        });
        store.replace(objects.collect(), version.into());
        store
    }

    #[test]
    fn a_store_reflects_a_list_when_it_has_every_listed_object_and_no_deleted_one() {
        let objects = [("a", 5), ("b", 7)].map(|(name, version)| (ObjectName::cluster(name), version.into()));
        let listed = Listed { version: 10.into(), objects: objects.into() };
        let reflects = |version, objects: &[_]| listed.is_reflected_by(&store(version, objects));
        assert!(reflects(7, &[("a", 5), ("b", 7)]), "nothing of this kind has changed since");
        assert!(!reflects(6, &[("a", 5)]), "b was created");
        assert!(!reflects(6, &[("a", 5), ("b", 6)]), "b has changed");
        assert!(!reflects(8, &[("a", 5), ("b", 7), ("c", 3)]), "c was deleted");
        assert!(reflects(12, &[("a", 5), ("b", 11), ("c", 12)]), "all is newer");
        assert!(reflects(10, &[]), "the version says it");
    }

    #[test]
    fn an_object_that_was_deleted_after_the_list_is_waited_for_no_longer_than_its_version() {
        let listed = Listed { version: 10.into(), objects: [(ObjectName::cluster("a"), 5.into())].into() };
        assert!(!listed.is_reflected_by(&store(9, &[])));
        assert!(listed.is_reflected_by(&store(11, &[])), "the delete is newer than the list");
    }
}
