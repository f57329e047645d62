//! Fan-out: a change is encoded once, however many watches deliver it. One test, as the counter is process-wide.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper_apiserver::ApiServer;

use common::{AnswerBody, CONFIG_MAPS, MERGE, Server, inside, patch, post, send};

const WATCHERS: usize = 100;
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

async fn watchers(server: &Server, path: &str, accept: &str) -> Vec<AnswerBody> {
    let mut watchers = Vec::new();
    let path = format!("{path}watch=1&resourceVersion={}", inside(server).revision());
    for _ in 0..WATCHERS {
        let response = send(server, "GET", &path, &[("accept", accept)], "").await;
        assert_eq!(response.status(), 200);
        watchers.push(response.into_body());
    }
    watchers
}

/// Reads the next event of every watch and asserts that all are equal.
async fn next_event(watchers: &mut [AnswerBody]) -> Value {
    let mut events = Vec::new();
    for watcher in watchers {
        let mut text = Vec::new();
        while text.last() != Some(&b'\n') {
            text.extend(watcher.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        events.push(text);
    }
    assert!(events.windows(2).all(|pair| pair[0] == pair[1]));
    serde_json::from_slice(&events[0]).unwrap()
}

/// Returns the number of encoded objects, from `/metrics`.
async fn encodings(server: &Server) -> u64 {
    let body = send(server, "GET", "/metrics", &[], "").await.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&body).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("watchkeeper_encoded_objects_total "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_change_is_encoded_once_for_each_view_and_not_for_each_watcher() {
    let env = Env::system();
    let server = Server::around(&env, ApiServer::new(&env)).await;
    let labelled = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v".repeat(10)}});
    post(&server, CONFIG_MAPS, &labelled).await;
    let events = "/api/v1/namespaces/default/events";
    let mut plain = watchers(&server, &format!("{CONFIG_MAPS}?"), "application/json").await;
    let mut metadata = watchers(&server, &format!("{CONFIG_MAPS}?"), METADATA).await;
    let mut leaving =
        watchers(&server, &format!("{CONFIG_MAPS}?labelSelector=x%3Dy&"), "application/json").await;
    let new_events = "/apis/events.k8s.io/v1/namespaces/default/events?";
    let mut converted = watchers(&server, new_events, "application/json").await;

    let before = encodings(&server).await;
    patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"metadata": {"labels": {"x": "z"}}})).await;
    assert_eq!(encodings(&server).await - before, 1, "when it is stored");
    assert_eq!(next_event(&mut plain).await["type"], "MODIFIED");
    assert_eq!(encodings(&server).await - before, 1, "and all others share the text");
    let event = next_event(&mut metadata).await;
    assert_eq!(
        (&event["type"], &event["object"]["kind"]),
        (&json!("MODIFIED"), &json!("PartialObjectMetadata"))
    );
    assert_eq!(event["object"]["metadata"]["labels"], json!({"x": "z"}));
    assert_eq!(encodings(&server).await - before, 2, "once more for all who want the metadata");
    let event = next_event(&mut leaving).await;
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["labels"]),
        (&json!("DELETED"), &json!({"x": "y"}))
    );
    assert_eq!(encodings(&server).await - before, 3, "once more for all who see it leave");

    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "message": "m"});
    post(&server, events, &event).await;
    let stored = encodings(&server).await;
    assert_eq!(next_event(&mut converted).await["object"]["note"], "m");
    assert_eq!(encodings(&server).await - stored, 1, "once for all who want another version");

    // A large text is not even copied.
    let large = json!({"metadata": {"name": "b"}, "data": {"k": "v".repeat(10_000)}});
    post(&server, CONFIG_MAPS, &large).await;
    let mut places = Vec::new();
    for watcher in &mut plain {
        let mut frames = Vec::new();
        while frames.len() < 2 {
            frames.push(watcher.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert!(frames[1].len() > 10_000);
        places.push(frames[1].as_ptr());
    }
    assert!(places.windows(2).all(|pair| pair[0] == pair[1]), "one text in memory");
}
