//! Patches that count an Event up: the server edits its text, and must come to the same as if it had decoded it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::*;

const EVENTS: &str = "/api/v1/namespaces/wktest/events";

fn event(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "wktest"}, "reason": "Tried", "type": "Normal",
        "message": "one", "count": 1, "source": {"component": "controller"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "wktest"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"})
}

/// An object without what differs between two of the same content.
fn content(mut object: Value) -> Value {
    for field in ["name", "uid", "resourceVersion"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// Sends the patches, each with its manager, to an Event; empty metadata in a patch makes the server decode the object.
/// Returns the Event after each, as it was answered and as it is read.
async fn patched(server: &Server, name: &str, patches: &[(&str, Value)], is_decoded: bool) -> Vec<Value> {
    post(server, &format!("{EVENTS}?fieldManager=controller"), &event(name)).await;
    let mut states = Vec::new();
    for (manager, change) in patches {
        tokio::time::advance(Duration::from_secs(30)).await;
        let mut change = change.clone();
        if is_decoded {
            change["metadata"] = json!({});
        }
        let path = format!("{EVENTS}/{name}?fieldManager={manager}");
        for form in [STRATEGIC, MERGE] {
            let (code, object) = patch(server, &path, form, &change).await;
            assert_eq!(code, 200, "{object}");
            assert_eq!(get(server, &format!("{EVENTS}/{name}")).await, (200, object.clone()));
            states.push(content(object));
        }
    }
    states
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_counted_up_is_that_of_any_other_patch() {
    let again = |count: u32, message: &str| json!({"count": count, "message": message, "lastTimestamp": "2026-01-01T00:01:00Z"});
    let patches = [
        ("controller", again(2, "one")),
        ("controller", again(3, "\"two\" \\ \n…")),
        ("controller", again(3, "\"two\" \\ \n…")),
        ("controller", json!({"count": 1_000_000})),
        ("controller", json!({"lastTimestamp": "2026-01-01T00:02:00.75+01:00"})),
        ("other", json!({"message": "from another writer"})),
        ("controller", again(4, "the writer before owns this")),
        ("controller", again(5, "now alone")),
        ("other", json!({"action": "Try"})),
        ("controller", again(6, "of two writers")),
        ("controller", json!({"message": "", "count": 0})),
        ("controller", again(7, "there again")),
        ("controller", again(8, "and once more")),
    ];
    // Both need the same times.
    let server = Server::embedded(|settings| settings).await;
    let edited = patched(&server, "edited", &patches, false).await;
    let server = Server::embedded(|settings| settings).await;
    let decoded = patched(&server, "decoded", &patches, true).await;
    for ((edited, decoded), patch) in edited.iter().zip(&decoded).zip(patches.iter().flat_map(|it| [it, it]))
    {
        assert_eq!(edited, decoded, "{patch:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_counted_up_has_a_new_version_and_is_still_found() {
    let server = Server::start().await;
    let created = post(&server, EVENTS, &event("e")).await;
    let old = created["metadata"]["resourceVersion"].clone();
    let (_, counted) = patch(&server, &format!("{EVENTS}/e"), STRATEGIC, &json!({"count": 2})).await;
    assert_ne!(counted["metadata"]["resourceVersion"], old);
    let (_, list) = get(&server, &format!("{EVENTS}?fieldSelector=reason%3DTried")).await;
    let version = &counted["metadata"]["resourceVersion"];
    assert_eq!(
        (&list["items"][0]["count"], &list["items"][0]["metadata"]["resourceVersion"]),
        (&json!(2), version)
    );
}
