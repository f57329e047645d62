//! Watches: every change is delivered once, in order, and streams end properly.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

fn labelled(name: &str, label: &str) -> Value {
    let mut object = config_map(name, &json!({}));
    object["metadata"]["labels"] = json!({"sel": label});
    object
}

#[tokio::test(start_paused = true)]
async fn a_watch_delivers_the_changes_after_its_version() {
    let server = Server::start().await;
    let start = revision(&server).await;
    let created = version(&post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await);
    let (_, changed) = patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"data": {"k": "v"}})).await;
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    assert_eq!(watch.event().await, ("ADDED".into(), "a".into(), created));
    assert_eq!(watch.event().await, ("MODIFIED".into(), "a".into(), version(&changed)));
    assert!(watch.next().now_or_never().is_none());
    call(&server, "DELETE", &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["data"]["k"], "v", "the last content");
    assert_newest(&server, version(&event["object"]), version(&changed) + 1).await;
    assert_eq!(
        (&event["object"]["kind"], &event["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_version_the_present_comes_first() {
    let server = Server::start().await;
    for name in ["b", "a"] {
        post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
    }
    let before = revision(&server).await;
    for query in ["watch=1", "watch=true&resourceVersion=0", "watch&allowWatchBookmarks=true"] {
        let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.event().await.1, "a");
        assert_eq!(watch.event().await.1, "b");
        if query.contains("Bookmarks") {
            let bookmark = watch.next().await.unwrap();
            assert_eq!(bookmark["type"], "BOOKMARK");
            assert_eq!(
                bookmark["object"]["metadata"]["annotations"],
                json!({"k8s.io/initial-events-end": "true"})
            );
            assert_newest(&server, version(&bookmark["object"]), before).await;
        }
        assert!(watch.next().now_or_never().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_stops_matching_is_delivered_as_deleted() {
    let server = Server::start().await;
    let start = revision(&server).await;
    let path = format!("{CONFIG_MAPS}/w");
    post(&server, CONFIG_MAPS, &labelled("w", "a")).await;
    let (_, other) = patch(&server, &path, MERGE, &json!({"metadata": {"labels": {"sel": "b"}}})).await;
    patch(&server, &path, MERGE, &json!({"metadata": {"labels": {"sel": "a"}}})).await;
    patch(&server, &path, MERGE, &json!({"data": {"x": "y"}})).await;
    call(&server, "DELETE", &path, &Value::Null).await;
    let mut watch =
        Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&labelSelector=sel%3Da&resourceVersion={start}"))
            .await;
    assert_eq!(watch.event().await.0, "ADDED");
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], version(&event["object"])), (&json!("DELETED"), version(&other)));
    assert_eq!(event["object"]["metadata"]["labels"]["sel"], "a", "the state that matched");
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(watch.event().await.0, kind);
    }
    assert!(watch.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_keeps_to_its_namespace_and_sees_all_without_one() {
    let server = Server::start().await;
    let start = revision(&server).await;
    let elsewhere = "/api/v1/namespaces/wktest-two/configmaps";
    post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "wktest-two"}})).await;
    let query = format!("watch=1&labelSelector=sel%3D{OURS}&resourceVersion={start}");
    let (mut one, mut all) = (
        Watch::open(&server, &format!("{CONFIG_MAPS}?{query}")).await,
        Watch::open(&server, &format!("/api/v1/configmaps?{query}")).await,
    );
    post(&server, elsewhere, &labelled("x", OURS)).await;
    post(&server, CONFIG_MAPS, &labelled("y", OURS)).await;
    assert_eq!(one.event().await.1, "y");
    assert_eq!((all.event().await.1, all.event().await.1), ("x".into(), "y".into()));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_a_bookmark_where_it_is_allowed() {
    let server = Server::start().await;
    let path = format!(
        "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = Watch::open(&server, &path).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true",
        "also for no objects"
    );
}

#[tokio::test(start_paused = true)]
async fn the_old_watch_path_and_metadata_only_watches_work() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    post(&server, CONFIG_MAPS, &config_map("b", &json!({"k": "v"}))).await;
    let mut watch =
        Watch::open(&server, "/api/v1/watch/namespaces/wktest/configmaps/b?timeoutSeconds=5").await;
    assert_eq!(watch.event().await.1, "b");
    assert_eq!(watch.next().await, None);
    let accept = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let (_, one) = raw(&server, "GET", &format!("{CONFIG_MAPS}/b"), &accept, "").await;
    assert_eq!((&one["kind"], one.get("data")), (&json!("PartialObjectMetadata"), None));
}

#[tokio::test(start_paused = true)]
async fn many_large_objects_arrive_whole_and_in_order() {
    let server = Server::start().await;
    let start = revision(&server).await;
    for number in 0..60 {
        let filler = "x".repeat(if number % 2 == 0 { 100 } else { 9000 });
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number:02}"), &json!({"f": filler}))).await;
    }
    let mut changes = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    let mut present = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1")).await;
    for number in 0..60 {
        assert_eq!(changes.event().await.1, format!("c{number:02}"));
        assert_eq!(present.event().await.1, format!("c{number:02}"));
    }
    let (_, list) = get(&server, CONFIG_MAPS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 60);
}

/// What client-go's metadata informers ask for.
#[tokio::test(start_paused = true)]
async fn metadata_is_listed_and_watched_in_protobuf() {
    let server = filled(Server::start().await, &["a"]).await;
    let form = "application/vnd.kubernetes.protobuf";
    let accept =
        |of: &str| format!("{form};as={of};v=v1;g=meta.k8s.io,application/json;as={of};v=v1;g=meta.k8s.io");
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let (list, one) = (accept("PartialObjectMetadataList"), accept("PartialObjectMetadata"));
    for (path, accept, kind) in [
        (CONFIG_MAPS.to_owned(), &list, "PartialObjectMetadataList"),
        (format!("{CONFIG_MAPS}/a"), &one, "PartialObjectMetadata"),
    ] {
        let answer = send(&server, "GET", &path, &[("accept", accept.as_str())], "").await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap()),
            (200, form)
        );
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..4], b"k8s\0");
        assert!(has(&body, kind) && has(&body, "\x0a\x01a"), "the name is the first field of the metadata");
    }
    let path = format!(
        "{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let answer = send(&server, "GET", &path, &[("accept", one.as_str())], "").await;
    let media = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!((answer.status().as_u16(), media), (200, format!("{form};stream=watch")));
    let mut events = Frames { body: answer.into_body(), buffer: Vec::new() };
    let added = events.next().await;
    assert!(
        added.starts_with(b"\x0a\x05ADDED\x12") && has(&added, "k8s\0") && has(&added, "\x0a\x01a"),
        "{added:?}"
    );
    // On a real server there may be others.
    let mut bookmark = events.next().await;
    while !bookmark.starts_with(b"\x0a\x08BOOKMARK") {
        bookmark = events.next().await;
    }
    assert!(has(&bookmark, "k8s.io/initial-events-end"), "{bookmark:?}");
    let (code, _) = call(&server, "DELETE", &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!(code, 200);
    let deleted = events.next().await;
    assert!(deleted.starts_with(b"\x0a\x07DELETED\x12"), "{deleted:?}");
    // What is too old to be watched is an event as well.
    let answer = send(
        &server,
        "GET",
        &format!("{CONFIG_MAPS}?watch=1&resourceVersion=1"),
        &[("accept", one.as_str())],
        "",
    )
    .await;
    let error = Frames { body: answer.into_body(), buffer: Vec::new() }.next().await;
    assert!(error.starts_with(b"\x0a\x05ERROR") && has(&error, "Expired"), "{error:?}");
}

/// A stream of events, each with its length in front.
struct Frames {
    body: AnswerBody,
    buffer: Vec<u8>,
}

impl Frames {
    async fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk() {
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
                if rest.len() >= length {
                    let event = rest[..length].to_vec();
                    self.buffer.drain(..4 + length);
                    return event;
                }
            }
            let frame = self.body.frame().await.expect("the watch ended").unwrap();
            self.buffer.extend_from_slice(frame.data_ref().unwrap());
        }
    }
}
