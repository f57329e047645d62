//! The toolkit's informers against the server.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

mod common;

use common::{CONFIG_MAPS, Server, get};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::metadata::PartialObjectMeta;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::ListMode;
use watchkeeper::source::Api;
use watchkeeper::{ObjectName, SharedInformerFactory};

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

fn config_map(key: &ObjectName) -> ConfigMap {
    let metadata = json!({"name": key.name(), "namespace": key.namespace(), "labels": {"name": key.name()}});
    serde_json::from_value(json!({"metadata": metadata, "data": {"k": "v"}})).unwrap()
}

fn key(server: &Server, name: &str) -> ObjectName {
    ObjectName::namespaced(server.ours(), name)
}

async fn listed(server: &Server) -> BTreeMap<String, String> {
    let (_, list) = get(server, CONFIG_MAPS).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]);
    items.map(|meta| (text(&meta["name"]), text(&meta["resourceVersion"]))).collect()
}

/// Makes random changes; on the embedded server also cuts watches and compacts.
async fn stir(server: &Server, config_maps: &Api<'_, ConfigMap>) {
    let generator = &server.env.generator;
    for _ in 0..400 {
        let key = key(server, &format!("o{}", generator.below(30)));
        match (generator.below(12), server.inside()) {
            (0..4, _) => drop(config_maps.create(&config_map(&key)).await),
            (4..8, _) => {
                let patch = Patch::Merge(json!({"data": {"k": generator.next_u64().to_string()}}));
                drop(config_maps.patch(&key, &patch).await);
            }
            (8..10, _) => drop(config_maps.delete(&key).await),
            (_, None) => {}
            (10, Some(inside)) => inside.end_watches(),
            (_, Some(inside)) => {
                inside.compact_now();
                inside.end_watches();
            }
        }
    }
}

async fn follow(server: &Server, queue: QueueKind, list: ListMode) {
    let clients = server.clients();
    let (config_maps, stop) = (clients.api::<ConfigMap>(), CancellationToken::new());
    let factory = SharedInformerFactory::builder(&clients).queue(queue).list_mode(list).build();
    let factory = factory.in_namespace(server.ours());
    let informer = factory.informer::<ConfigMap>();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    stir(server, &config_maps).await;
    let last = config_maps.create(&config_map(&key(server, "last"))).await.unwrap();
    informer.indexer().wait_until_fresh(&last.metadata.resource_version.unwrap().as_str().into()).await;
    let snapshot = informer.indexer().snapshot();
    let cached: BTreeMap<_, _> =
        snapshot.iter().map(|object| (object.name().to_owned(), object.version().to_string())).collect();
    assert_eq!(cached, listed(server).await, "{queue:?} {list:?}");
    config_maps.delete(&key(server, "last")).await.unwrap();
    stop.cancel();
    factory.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn paged_and_streamed_informers_follow_random_changes_through_cuts_and_compactions() {
    let server = Server::start().await;
    for queue in QUEUES {
        for list in [ListMode::Paged, ListMode::Stream] {
            follow(&server, queue, list).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn informers_follow_a_server_that_does_not_stream() {
    for queue in QUEUES {
        follow(&Server::embedded(|s| s.streaming_lists(false)).await, queue, ListMode::Stream).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_metadata_alone_sees_no_bodies() {
    let server = Server::start().await;
    let clients = server.clients();
    let config_maps = clients.api::<ConfigMap>();
    config_maps.create(&config_map(&key(&server, "o1"))).await.unwrap();
    let factory = SharedInformerFactory::builder(&clients).build().in_namespace(server.ours());
    let stop = CancellationToken::new();
    let informer = factory.informer::<PartialObjectMeta<ConfigMap>>();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    let made = config_maps.create(&config_map(&key(&server, "o2"))).await.unwrap();
    informer.indexer().wait_until_fresh(&made.metadata.resource_version.unwrap().as_str().into()).await;
    for name in ["o1", "o2"] {
        let object = informer.lister().object(&key(&server, name)).unwrap();
        let body: Value = serde_json::from_slice(object.json()).unwrap();
        assert_eq!((&body["kind"], &body["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
        assert_eq!(object.get().unwrap().metadata.name.as_deref(), Some(name));
    }
    stop.cancel();
    factory.join().await.unwrap();
}

/// Restores the server from a backup under a running informer, and changes an object before the informer has noticed.
async fn restore_under(queue: QueueKind, list: ListMode) {
    let server = Server::embedded(|settings| settings).await;
    let (clients, inside, clock) = (server.clients(), server.inside().unwrap(), &server.env.clock);
    let (config_maps, stop) = (clients.api::<ConfigMap>(), CancellationToken::new());
    let factory = SharedInformerFactory::builder(&clients).queue(queue).list_mode(list).build();
    let factory = factory.in_namespace(server.ours());
    let informer = factory.informer::<ConfigMap>();
    factory.start(&stop);
    let set = async |name: &str, value: &str| {
        let patch = Patch::Merge(json!({"data": {"k": value}}));
        config_maps.patch(&key(&server, name), &patch).await.unwrap().metadata.resource_version.unwrap()
    };
    for name in ["changed", "deleted", "same"] {
        config_maps.create(&config_map(&key(&server, name))).await.unwrap();
    }
    let backup = inside.checkpoint();
    let lost = set("changed", "lost").await;
    config_maps.create(&config_map(&key(&server, "created"))).await.unwrap();
    config_maps.delete(&key(&server, "deleted")).await.unwrap();
    clock.sleep(Duration::from_secs(10)).await;
    let notified = Arc::new(Mutex::new(Vec::new()));
    let notes = notified.clone();
    let note = on_change(move |change: Change<'_, ConfigMap>| {
        let (word, object) = match &change {
            Change::Added { object, .. } => ("added", *object),
            Change::Updated { new, .. } => ("updated", *new),
            Change::Deleted(deleted) => ("deleted", deleted.last_known().unwrap()),
        };
        // A list also notifies of what has not changed.
        if !change.is_resync() {
            notes.lock().push(format!("{word} {}", object.name()));
        }
    });
    informer.add_handler(note).unwrap();
    clock.sleep(Duration::from_secs(10)).await;
    notified.lock().clear();

    inside.restore(&backup);
    assert_eq!(set("changed", "kept").await, lost, "versions are used again");
    clock.sleep(Duration::from_secs(5)).await;
    let cached = informer.indexer().snapshot();
    let versions: BTreeMap<_, _> =
        cached.iter().map(|object| (object.name().to_owned(), object.version().to_string())).collect();
    assert_eq!(versions, listed(&server).await);
    let changed = informer.lister().get(&key(&server, "changed")).unwrap();
    assert_eq!(changed.data.as_ref().unwrap()["k"], "kept");
    let mut notified = std::mem::take(&mut *notified.lock());
    notified.sort();
    assert_eq!(notified, ["added deleted", "deleted created", "updated changed"]);
    let health = informer.health();
    assert_eq!((health.lists, health.rewritten, server.env.reporter.errors()), (2, 1, 1));

    // The watch goes on from there.
    let last = set("same", "last").await;
    informer.indexer().wait_until_fresh(&last.as_str().into()).await;
    clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!((informer.health().lists, informer.health().rewritten), (2, 1));
    stop.cancel();
    factory.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restore_from_a_backup_is_noticed_once_and_its_changes_are_notified() {
    for queue in QUEUES {
        for list in [ListMode::Paged, ListMode::Stream] {
            restore_under(queue, list).await;
        }
    }
}
