//! The toolkit's event sinks against the server, for both event APIs.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::Server;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::record::{ApiSink, EventApi, EventBroadcaster, EventType};
use watchkeeper::{Client, ObjectName};

async fn events(clients: &Client, namespace: &str, fields: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector={fields}");
    let list: Value =
        clients.kube().request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    list["items"].as_array().unwrap().clone()
}

async fn repeated_and_expired(api: EventApi, writes: u64) -> Vec<Value> {
    let server = Server::start().await;
    let (env, clients, namespace) = (server.env.clone(), server.clients(), server.ours());
    let broadcaster = EventBroadcaster::new(&env);
    let recorder = broadcaster.recorder("me").host("here");
    let object =
        json!({"metadata": {"name": "a", "namespace": namespace, "uid": "u", "resourceVersion": "1"}});
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    let sink = ApiSink::new(clients.requests(), &env).api(api);
    let say = || recorder.about(&object).action("Do").send(EventType::Warning, "Why", "because");
    let story = async {
        (0..3).for_each(|_| say());
        server.until("counted", async || (broadcaster.counts().written == writes).then_some(())).await;
        // After an hour the server has dropped the Event, but the sink still knows it.
        let fields = "involvedObject.kind=ConfigMap,involvedObject.name=a,involvedObject.uid=u,involvedObject.apiVersion=v1";
        for event in events(&clients, namespace, fields).await {
            let name = event["metadata"]["name"].as_str().unwrap();
            clients.api::<Event>().delete(&ObjectName::namespaced(namespace, name)).await.unwrap();
        }
        assert_eq!(events(&clients, namespace, "").await, [json!(null); 0]);
        say();
        broadcaster.shut_down();
    };
    tokio::join!(story, sink.run(broadcaster.subscribe(), CancellationToken::new()));
    let counts = broadcaster.counts();
    assert_eq!((counts.failed, counts.dropped, env.reporter.errors()), (0, 0, 0));
    events(&clients, namespace, "").await
}

#[tokio::test(start_paused = true)]
async fn events_of_core_v1_are_created_counted_and_created_again() {
    let events = repeated_and_expired(EventApi::CoreV1, 3).await;
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["count"], &events[0]["type"]), (&json!(4), &json!("Warning")));
    assert_eq!(events[0]["involvedObject"]["kind"], "ConfigMap");
}

#[tokio::test(start_paused = true)]
async fn events_of_the_new_api_are_created_become_series_and_are_created_again() {
    // The core API shows events written through `events.k8s.io`.
    let events = repeated_and_expired(EventApi::EventsV1, 2).await;
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["series"]["count"], &events[0]["message"]), (&json!(4), &json!("because")));
    assert_eq!((&events[0]["action"], &events[0]["reportingInstance"]), (&json!("Do"), &json!("me-here")));
}
