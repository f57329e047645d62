//! The notifications and the store of an unshared informer.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, Informer, on_change};
use watchkeeper::queue::{Deleted, QueueKind};
use watchkeeper::source::{Feed, Reply, ScriptedSource};
use watchkeeper::store::{Indexer, NAMESPACE_INDEX};
use watchkeeper::{Env, Object, ObjectName};

use crate::common::{Log, QUEUES, cached, event, gone, list, settle, show, silence, within_a_minute};
use crate::{UnsharedInformer, deleting, object};

impl UnsharedInformer<ScriptedSource> {
    fn scripted(kind: QueueKind) -> Self {
        Self::new(Env::simulated(1), ScriptedSource::new(), kind, Duration::ZERO)
    }

    /// Waits until `count` requests have come.
    async fn until_asked(&self, count: usize) {
        within_a_minute(&self.env, self.source.until_asked(count)).await;
    }

    async fn watching(kind: QueueKind, items: &[&str]) -> (Self, Feed) {
        let unshared = Self::scripted(kind);
        let (reply, feed) = Reply::live();
        unshared.source.on_list(list(10, items)).on_watch(reply);
        unshared.start();
        unshared.until_synced().await;
        settle(&unshared.env).await;
        (unshared, feed)
    }
}

// client-go: ExampleNewInformer, TestResetWatch, TestReplaceEvents
#[tokio::test(start_paused = true)]
async fn an_unshared_informer_hears_of_everything_unchanged_objects_of_a_relist_included() {
    for kind in QUEUES {
        let (unshared, feed) = UnsharedInformer::watching(kind, &["a@1", "b@2", "c@3"]).await;
        assert_eq!(unshared.log.take_sorted(), ["+ a@1 initial", "+ b@2 initial", "+ c@3 initial"]);
        feed.send(event("MODIFIED", "a@11"));
        settle(&unshared.env).await;
        assert_eq!(unshared.log.take(), ["a 1->11"]);
        unshared.source.on_list(list(20, &["a@11", "b@15", "d@16"])).on_watch(silence());
        feed.send(gone());
        unshared.until_asked(4).await;
        settle(&unshared.env).await;
        assert_eq!(unshared.log.take_sorted(), ["+ d@16", "- c@3 tombstone", "= a@11", "b 2->15"]);
        assert_eq!(cached(&unshared.store), ["a@11", "b@15", "d@16"]);
        assert_eq!(unshared.store.snapshot().by_index(NAMESPACE_INDEX, "ns").unwrap().count(), 3);
        assert_eq!((unshared.store.version(), unshared.informer.last_sync_version()), (20.into(), 20.into()));
        unshared.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_put_in_by_hand_is_reported_gone_by_the_first_list() {
    for kind in QUEUES {
        let unshared = UnsharedInformer::scripted(kind);
        unshared.store.add(object("mypod@0"));
        let listed = json!({"metadata": {"name": "listed", "namespace": "ns"}});
        unshared.store.add(Object::from_json(listed.to_string().as_bytes()).unwrap());
        unshared.source.on_list(list(10, &["a@1", "listed@2"])).on_watch(silence());
        unshared.start();
        unshared.until_synced().await;
        assert_eq!(unshared.log.take_sorted(), ["+ a@1 initial", "- mypod@0 tombstone", "listed ->2"]);
        assert_eq!(cached(&unshared.store), ["a@1", "listed@2"]);
        unshared.stop.cancel();
    }
}

// client-go: TestReplaceEvents
#[tokio::test(start_paused = true)]
async fn the_store_shows_what_the_handler_is_told() {
    for kind in QUEUES {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let asked = source.clone();
        let seen = Arc::new(Mutex::new(None::<Indexer<ConfigMap>>));
        let (look, log) = (seen.clone(), Log::default());
        let told = log.clone();
        let (store, informer) = Informer::builder(source, &env)
            .queue(kind)
            .handler(on_change(move |change: Change<'_, ConfigMap>| {
                let store = look.lock().clone().unwrap();
                told.add(format!("{}: {}", show(&change), cached(&store).join(" ")));
            }))
            .build();
        *seen.lock() = Some(store);
        let (stop, running) = (CancellationToken::new(), informer.clone());
        let token = stop.clone();
        let task = tokio::spawn(async move { running.run(token).await });
        within_a_minute(&env, informer.wait_until_synced()).await;
        for change in [event("MODIFIED", "a@11"), event("ADDED", "b@12"), event("DELETED", "a@13")] {
            feed.send(change);
            settle(&env).await;
        }
        assert_eq!(log.take(), ["+ a@1 initial: a@1", "a 1->11: a@11", "+ b@12: a@11 b@12", "- a@13: b@12"]);
        // The same holds for a relist: an update, then an add, then a delete.
        let relists = [list(20, &["b@15"]), list(30, &["b@15", "c@25"]), list(40, &["c@25"])];
        let mut feed = Some(feed);
        for (number, relist) in relists.into_iter().enumerate() {
            let (reply, next) = Reply::live();
            asked.on_list(relist).on_watch(reply);
            feed.replace(next).unwrap().send(gone());
            within_a_minute(&env, asked.until_asked(4 + 2 * number)).await;
            settle(&env).await;
        }
        let told: Vec<_> = log.take().into_iter().filter(|line| !line.starts_with('=')).collect();
        assert_eq!(told, ["b 12->15: b@15", "+ c@25: b@15 c@25", "- b@15 tombstone: c@25"]);
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}

// client-go: TestPanicPropagated; here the panic is reported, and the next change is told
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_reported_and_told_the_next_change() {
    for kind in QUEUES {
        let (unshared, feed) = UnsharedInformer::watching(kind, &["a@1"]).await;
        feed.send(event("ADDED", "bad@11") + &event("ADDED", "good@12"));
        settle(&unshared.env).await;
        assert_eq!(unshared.log.take(), ["+ a@1 initial", "+ good@12"]);
        assert_eq!(cached(&unshared.store), ["a@1", "bad@11", "good@12"]);
        assert_eq!(unshared.env.reporter.panics(), 1);
        unshared.stop.cancel();
    }
}

// client-go: TestDeletionHandlingObjectToName, TestDeletedObjectGetObjectName, TestDeletedObjectGetKey
#[test]
fn an_object_and_its_tombstone_have_one_key() {
    let key = ObjectName::namespaced("ns", "a");
    let last_known = Some(object("a@1"));
    for deleted in [
        Deleted::Final(object("a@1")),
        Deleted::Unknown { key: key.clone(), last_known },
        Deleted::Unknown { key: key.clone(), last_known: None },
    ] {
        assert_eq!(deleted.key(), key);
    }
}

// client-go: ExampleNewInformer
#[tokio::test(start_paused = true)]
async fn an_informer_whose_handler_deletes_what_is_added_ends_empty() {
    for kind in QUEUES {
        let (env, source, log) = (Env::simulated(1), ScriptedSource::new(), Log::default());
        let (reply, feed) = Reply::live();
        source.on_list(list(1, &["a-hello@1"])).on_watch(reply);
        feed.send(event("ADDED", "b-controller@2") + &event("ADDED", "c-framework@3"));
        let (store, informer) =
            Informer::<ConfigMap>::builder(source, &env).queue(kind).handler(deleting(feed, &log)).build();
        let (stop, running) = (CancellationToken::new(), informer.clone());
        let token = stop.clone();
        let task = tokio::spawn(async move { running.run(token).await });
        settle(&env).await;
        assert_eq!(log.take_sorted(), ["ns/a-hello", "ns/b-controller", "ns/c-framework"]);
        assert!(cached(&store).is_empty());
        stop.cancel();
        within_a_minute(&env, task).await.unwrap();
    }
}
