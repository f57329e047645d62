//! The toolkit's informers against the server.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;

mod common;

use common::{CONFIG_MAPS, Server, get};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::metadata::PartialObjectMeta;
use kube_core::params::Patch;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
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
