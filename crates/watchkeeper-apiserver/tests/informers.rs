//! Do the toolkit's informers and the embedded server understand each other? In process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::metadata::PartialObjectMeta;
use kube_core::params::Patch;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::QueueKind;
use watchkeeper::reflector::ListMode;
use watchkeeper::{Clients, Env, ObjectName, SharedInformerFactory};
use watchkeeper_apiserver::ApiServer;

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

fn config_map(name: &str) -> ConfigMap {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"name": name}});
    serde_json::from_value(json!({"metadata": metadata, "data": {"k": "v"}})).unwrap()
}

fn key(number: u64) -> ObjectName {
    ObjectName::namespaced("default", &format!("o{number}"))
}

async fn listed(clients: &Clients) -> BTreeMap<String, String> {
    let request = http::Request::get("/api/v1/configmaps").body(Vec::new()).unwrap();
    let list: Value = clients.watch().request(request).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]);
    items.map(|meta| (text(&meta["name"]), text(&meta["resourceVersion"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn paged_and_streamed_informers_follow_random_changes_through_cuts_and_compactions() {
    for queue in QUEUES {
        for (list, streams) in [(ListMode::Paged, true), (ListMode::Stream, true), (ListMode::Stream, false)]
        {
            let env = Env::simulated(7);
            let server = ApiServer::builder(&env).streaming_lists(streams).build();
            let clients = Clients::from_client(server.client(), &env);
            let (config_maps, stop) = (clients.requests().of::<ConfigMap>(), CancellationToken::new());
            let factory = SharedInformerFactory::builder(&clients).queue(queue).list_mode(list).build();
            let informer = factory.informer::<ConfigMap>();
            factory.start(&stop);
            factory.wait_for_sync(&stop).await.unwrap();
            for _ in 0..400 {
                let key = key(env.generator.below(30));
                match env.generator.below(12) {
                    0..4 => drop(config_maps.create(&config_map(key.name())).await),
                    4..8 => {
                        let patch =
                            Patch::Merge(json!({"data": {"k": env.generator.next_u64().to_string()}}));
                        drop(config_maps.patch(&key, &patch).await);
                    }
                    8..10 => drop(config_maps.delete(&key).await),
                    10 => server.end_watches(),
                    _ => {
                        server.compact_now();
                        server.end_watches();
                    }
                }
            }
            let last =
                config_maps.create(&config_map("last")).await.unwrap().metadata.resource_version.unwrap();
            informer.indexer().wait_until_fresh(&last.as_str().into()).await;
            let snapshot = informer.indexer().snapshot();
            let cached: BTreeMap<_, _> = snapshot
                .iter()
                .map(|object| (object.name().to_owned(), object.version().to_string()))
                .collect();
            assert_eq!(cached, listed(&clients).await, "{queue:?} {list:?} {streams}");
            stop.cancel();
            factory.shut_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_metadata_alone_sees_no_bodies() {
    let env = Env::simulated(1);
    let server = ApiServer::new(&env);
    let clients = Clients::from_client(server.client(), &env);
    let config_maps = clients.requests().of::<ConfigMap>();
    config_maps.create(&config_map("o1")).await.unwrap();
    let (factory, stop) = (SharedInformerFactory::builder(&clients).build(), CancellationToken::new());
    let informer = factory.informer::<PartialObjectMeta<ConfigMap>>();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    let version = config_maps.create(&config_map("o2")).await.unwrap().metadata.resource_version.unwrap();
    informer.indexer().wait_until_fresh(&version.as_str().into()).await;
    for number in [1, 2] {
        let object = informer.lister().object(&key(number)).unwrap();
        let body: Value = serde_json::from_slice(object.json()).unwrap();
        assert_eq!((&body["kind"], &body["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
        assert_eq!(object.get().unwrap().metadata.name, Some(format!("o{number}")));
    }
    stop.cancel();
    factory.shut_down().await;
}
