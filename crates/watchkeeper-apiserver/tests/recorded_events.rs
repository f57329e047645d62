//! Do the toolkit's event sinks and the embedded server understand each other? In process, on the paused clock, for both APIs of events.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::record::{ApiSink, EventApi, EventBroadcaster, EventType};
use watchkeeper::{Clients, Env, ObjectName};
use watchkeeper_apiserver::ApiServer;

async fn events(clients: &Clients, fields: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector={fields}");
    let list: Value =
        clients.watch().request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    list["items"].as_array().unwrap().clone()
}

async fn repeated_and_expired(api: EventApi) -> Vec<Value> {
    let env = Env::simulated(1);
    let server = ApiServer::new(&env);
    let clients = Clients::from_client(server.client(), &env);
    let broadcaster = EventBroadcaster::new(&env);
    let recorder = broadcaster.recorder("me").host("here");
    let object =
        json!({"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}});
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    let sink = ApiSink::new(clients.requests(), &env).api(api);
    let say = || recorder.about(&object).action("Do").send(EventType::Warning, "Why", "because");
    let story = async {
        (0..3).for_each(|_| say());
        env.clock.sleep(std::time::Duration::from_secs(1)).await;
        // An hour later the server has forgotten the Event, and the sink has not.
        let fields = "involvedObject.kind=ConfigMap,involvedObject.name=a,involvedObject.uid=u,involvedObject.apiVersion=v1";
        for event in events(&clients, fields).await {
            let name = event["metadata"]["name"].as_str().unwrap();
            clients.requests().of::<Event>().delete(&ObjectName::namespaced("default", name)).await.unwrap();
        }
        assert_eq!(events(&clients, "").await, [json!(null); 0]);
        say();
        broadcaster.shut_down();
    };
    tokio::join!(story, sink.run(broadcaster.subscribe(), CancellationToken::new()));
    let counts = broadcaster.counts();
    assert_eq!((counts.failed, counts.dropped, env.reporter.errors()), (0, 0, 0));
    events(&clients, "").await
}

#[tokio::test(start_paused = true)]
async fn events_of_core_v1_are_created_counted_and_created_again() {
    let events = repeated_and_expired(EventApi::CoreV1).await;
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["count"], &events[0]["type"]), (&json!(4), &json!("Warning")));
    assert_eq!(events[0]["involvedObject"]["kind"], "ConfigMap");
}

#[tokio::test(start_paused = true)]
async fn events_of_the_new_api_are_created_become_series_and_are_created_again() {
    // The old API shows what was written through the new one.
    let events = repeated_and_expired(EventApi::EventsV1).await;
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["series"]["count"], &events[0]["message"]), (&json!(4), &json!("because")));
    assert_eq!((&events[0]["action"], &events[0]["reportingInstance"]), (&json!("Do"), &json!("me-here")));
}
