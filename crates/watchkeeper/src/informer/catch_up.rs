//! Waiting until a cache is as fresh as the server is now, and repairing one that has lost events.
//!
//! The version of a store says little on its own: it moves with events of its kind, and otherwise with bookmarks, once a minute; and it
//! moves past an event that was lost. So the metadata of all objects is listed, and the store is waited for until it reflects every
//! one of them. What the watch does not bring in time is left to the reflector's comparison, which lists everything again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::env::Env;
use crate::object::{Object, ObjectName, ResourceVersion};
use crate::reflector::{VerifyError, list_metadata};
use crate::source::{ApiSource, ListOptions};
use crate::store::Indexer;
use crate::wire::{ApiError, OBJECT_CAP};

/// The number of items in a page: metadata is small.
const PAGE: u32 = 5_000;

/// The pause after a list that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a watch may be behind before it is taken to have lost something. The comparison gives it ten seconds more.
const PATIENCE: Duration = Duration::from_secs(3);

/// The objects that the server had, by name, with their versions.
#[derive(Debug, Default)]
struct Listed {
    version: ResourceVersion,
    objects: BTreeMap<ObjectName, ResourceVersion>,
}

/// What a store is, compared with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has every listed object, or a later state of it, and no deleted one.
    Reflects,
    /// It may still get what it lacks.
    Behind,
    /// It differs, and its watch has passed the version of the list: an event was lost, or an object was deleted since.
    Differs,
}

/// How a store has come to be as fresh as the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaughtUp {
    /// It was, or its watch has brought what it lacked.
    ByItself,
    /// It was compared with the server by its reflector, and listed again if something was lost.
    Compared,
}

/// Waits until `store` reflects everything that the server had when this was called. A list that fails is repeated. Cancel-safe.
///
/// What the watch does not bring is repaired by `verify`, which compares the store with the server. The store of a kind that is not
/// served reflects that when it is empty and its reflector `is_parked`.
pub(super) async fn catch_up<'a, K>(
    store: &Indexer<K>,
    source: &ApiSource,
    name: &str,
    env: &Env,
    is_parked: impl Fn() -> bool,
    verify: impl Fn() -> BoxFuture<'a, Result<(), VerifyError>>,
) -> CaughtUp {
    loop {
        match list(source, env).await {
            Ok(listed) => match env.clock.timeout(PATIENCE, listed.reach(store, name, &is_parked)).await {
                Ok(Standing::Reflects) => return CaughtUp::ByItself,
                // The kind has just come or gone: another list tells which.
                Ok(Standing::Behind) => {}
                Ok(Standing::Differs) | Err(_) => {
                    let by_itself = async {
                        match listed.reach(store, name, &is_parked).await {
                            Standing::Differs => std::future::pending().await,
                            standing => standing,
                        }
                    };
                    // A reflector that waits for its kind to be served compares nothing: another list tells whether it is.
                    let parked = async {
                        while !is_parked() {
                            env.clock.sleep(PAUSE).await;
                        }
                    };
                    tokio::select! {
                        biased;
                        // Errors are reported by the reflector.
                        verified = verify() => if verified.is_ok() {
                            return CaughtUp::Compared;
                        },
                        standing = by_itself => if standing == Standing::Reflects {
                            return CaughtUp::ByItself;
                        },
                        () = parked => {}
                    }
                }
            },
            Err(error) if error.is_not_found() && is_parked() => {
                if store.snapshot().is_empty() {
                    return CaughtUp::ByItself;
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
    /// Waits until `store` reflects the list, or cannot any more. [`Standing::Behind`] means that it is of no use to wait, as the
    /// kind has just come or gone. Cancel-safe.
    async fn reach<K>(&self, store: &Indexer<K>, name: &str, is_parked: impl Fn() -> bool) -> Standing {
        loop {
            let version = store.version();
            let standing = self.compare(store);
            if standing != Standing::Behind || is_parked() {
                return standing;
            }
            tracing::debug!(kind = name, %version, wanted = %self.version, "the cache is behind the server");
            store.wait_for_another_version(&version).await;
        }
    }

    fn compare<K>(&self, store: &Indexer<K>) -> Standing {
        let snapshot = store.snapshot();
        let is_listed_or_newer = |object: &Object<K>| match self.objects.get(&object.key()) {
            Some(version) => is_at_least(object.version(), version),
            // Created after the list; otherwise deleted before it.
            None => object.version() > &self.version,
        };
        let is_cached = |name: &ObjectName| snapshot.get(name).is_some();
        if snapshot.iter().all(is_listed_or_newer) && self.objects.keys().all(is_cached) {
            return Standing::Reflects;
        }
        if is_at_least(snapshot.version(), &self.version) { Standing::Differs } else { Standing::Behind }
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
        let compare = |version, objects: &[_]| listed.compare(&store(version, objects));
        let (reflects, behind, differs) = (Standing::Reflects, Standing::Behind, Standing::Differs);
        assert_eq!(compare(7, &[("a", 5), ("b", 7)]), reflects, "nothing of this kind has changed since");
        assert_eq!(compare(6, &[("a", 5)]), behind, "b was created");
        assert_eq!(compare(6, &[("a", 5), ("b", 6)]), behind, "b has changed");
        assert_eq!(compare(8, &[("a", 5), ("b", 7), ("c", 3)]), behind, "c was deleted");
        assert_eq!(compare(12, &[("a", 5), ("b", 11), ("c", 12)]), reflects, "all is newer");
        // The watch has passed the version of the list, or was told so by a bookmark.
        assert_eq!(compare(10, &[("a", 5)]), differs, "the creation of b was lost, or b was deleted since");
        assert_eq!(compare(12, &[("a", 5), ("b", 6), ("c", 12)]), differs, "a change of b was lost");
        assert_eq!(compare(10, &[("a", 5), ("b", 7), ("c", 3)]), differs, "the deletion of c was lost");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_was_deleted_after_the_list_is_waited_for_no_longer_than_its_version() {
        let listed = Listed { version: 10.into(), objects: [(ObjectName::cluster("a"), 5.into())].into() };
        let store = store(9, &[]);
        let advance = async {
            store.replace(Vec::new(), 11.into());
        };
        let (standing, ()) = tokio::join!(listed.reach(&store, "things", || false), advance);
        assert_eq!(standing, Standing::Differs);
    }
}
