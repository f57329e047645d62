//! Do watches tell every change once, in order, and end as they should?
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::time::Duration;

use common::*;
use futures::FutureExt as _;
use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper_apiserver::ApiServer;

fn server() -> (ApiServer, Env) {
    let env = Env::simulated(1);
    (ApiServer::new(&env), env)
}

fn labelled(name: &str, label: &str) -> Value {
    let mut object = config_map(name, &json!({}));
    object["metadata"]["labels"] = json!({"sel": label});
    object
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happened_after_its_version() {
    let (server, _) = server();
    let start = server.revision();
    let created = version(&post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await);
    let (_, changed) = patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"data": {"k": "v"}})).await;
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    assert_eq!(watch.told().await, ("ADDED".into(), "a".into(), created));
    assert_eq!(watch.told().await, ("MODIFIED".into(), "a".into(), version(&changed)));
    assert!(watch.next().now_or_never().is_none());
    call(&server, "DELETE", &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["data"]["k"], "v", "the last content");
    assert_eq!(version(&event["object"]), server.revision(), "with the version of the removal");
    assert_eq!(
        (&event["object"]["kind"], &event["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_version_the_present_comes_first() {
    let (server, _) = server();
    for name in ["b", "a"] {
        post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
    }
    for query in ["watch=1", "watch=true&resourceVersion=0", "watch&allowWatchBookmarks=true"] {
        let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.told().await.1, "a");
        assert_eq!(watch.told().await.1, "b");
        if query.contains("Bookmarks") {
            let bookmark = watch.next().await.unwrap();
            assert_eq!(bookmark["type"], "BOOKMARK");
            assert_eq!(
                bookmark["object"]["metadata"]["annotations"],
                json!({"k8s.io/initial-events-end": "true"})
            );
            assert_eq!(version(&bookmark["object"]), server.revision());
        }
        assert!(watch.next().now_or_never().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_stops_to_match_is_told_as_deleted() {
    let (server, _) = server();
    let start = server.revision();
    let path = format!("{CONFIG_MAPS}/w");
    post(&server, CONFIG_MAPS, &labelled("w", "a")).await;
    let (_, other) = patch(&server, &path, MERGE, &json!({"metadata": {"labels": {"sel": "b"}}})).await;
    patch(&server, &path, MERGE, &json!({"metadata": {"labels": {"sel": "a"}}})).await;
    patch(&server, &path, MERGE, &json!({"data": {"x": "y"}})).await;
    call(&server, "DELETE", &path, &Value::Null).await;
    let mut watch =
        Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&labelSelector=sel%3Da&resourceVersion={start}"))
            .await;
    assert_eq!(watch.told().await.0, "ADDED");
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], version(&event["object"])), (&json!("DELETED"), version(&other)));
    assert_eq!(event["object"]["metadata"]["labels"]["sel"], "a", "the state that matched");
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(watch.told().await.0, kind);
    }
    assert!(watch.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_keeps_to_its_namespace_and_sees_all_without_one() {
    let (server, _) = server();
    let start = server.revision();
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    let one = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}");
    let (mut one, mut all) = (
        Watch::open(&server, &one).await,
        Watch::open(&server, &format!("/api/v1/configmaps?watch=1&resourceVersion={start}")).await,
    );
    post(&server, elsewhere, &config_map("x", &json!({}))).await;
    post(&server, CONFIG_MAPS, &config_map("y", &json!({}))).await;
    assert_eq!(one.told().await.1, "y");
    assert_eq!((all.told().await.1, all.told().await.1), ("x".into(), "y".into()));
}

#[tokio::test(start_paused = true)]
async fn a_version_older_than_the_history_is_gone() {
    let env = Env::simulated(1);
    let server = ApiServer::builder(&env).history(3).build();
    let start = server.revision();
    for number in 0..5 {
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number}"), &json!({}))).await;
    }
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert!(
        event["object"]["message"]
            .as_str()
            .unwrap()
            .starts_with(&format!("too old resource version: {start} ("))
    );
    assert_eq!(watch.next().await, None);
    let resumed = start + 2;
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={resumed}")).await;
    assert_eq!(watch.told().await.1, "c2", "the history reaches exactly that far");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_falls_out_of_the_history_and_is_told() {
    let env = Env::simulated(1);
    let server = ApiServer::builder(&env).history(3).build();
    let mut watch =
        Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", server.revision())).await;
    assert!(watch.next().now_or_never().is_none());
    for number in 0..5 {
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number}"), &json!({}))).await;
    }
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn compaction_ends_what_is_old_and_spares_what_is_current() {
    let (server, _) = server();
    let start = server.revision();
    let mut current = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    assert_eq!(current.told().await.1, "a");
    server.compact_now();
    let mut old = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    assert_eq!(old.next().await.unwrap()["object"]["code"], 410);
    post(&server, CONFIG_MAPS, &config_map("b", &json!({}))).await;
    assert_eq!(current.told().await.1, "b");
    let (code, status) =
        get(&server, &format!("{CONFIG_MAPS}?resourceVersion={start}&resourceVersionMatch=Exact")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_kind_is_not_forgotten_because_another_is_busy() {
    let env = Env::simulated(1);
    let server = ApiServer::builder(&env).history(3).build();
    let secrets = "/api/v1/namespaces/default/secrets";
    let start = server.revision();
    for number in 0..10 {
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number}"), &json!({}))).await;
    }
    post(&server, secrets, &json!({"metadata": {"name": "s"}})).await;
    let mut watch = Watch::open(&server, &format!("{secrets}?watch=1&resourceVersion={start}")).await;
    assert_eq!(watch.told().await.1, "s");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_cleanly_after_its_time() {
    let (server, env) = server();
    let before = env.clock.now();
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=7")).await;
    assert_eq!(watch.next().await, None);
    assert_eq!(env.clock.now() - before, Duration::from_secs(7));
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(watch.next().await, None);
    let took = env.clock.now() - before;
    assert!(took > Duration::from_secs(1800) && took < Duration::from_secs(3700), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks() {
    let (server, env) = server();
    let before = env.clock.now();
    let path = format!(
        "{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion={}",
        server.revision()
    );
    let mut watch = Watch::open(&server, &path).await;
    post(&server, "/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await;
    for seconds in [60, 120, 148] {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(
            event["object"],
            json!({"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"resourceVersion": server.revision().to_string()}}),
            "it moves on with the whole server"
        );
        assert_eq!((env.clock.now() - before).as_secs(), seconds);
    }
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_period_of_bookmarks_can_be_set_and_they_are_only_sent_when_allowed() {
    let env = Env::simulated(1);
    let server = ApiServer::builder(&env).bookmark_period(Duration::from_secs(5)).build();
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=12&resourceVersion={}", server.revision());
    let mut silent = Watch::open(&server, &path).await;
    assert_eq!(silent.next().await, None);
    let mut watch = Watch::open(&server, &format!("{path}&allowWatchBookmarks=true")).await;
    for _ in 0..2 {
        assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    }
    assert_eq!(watch.next().await, None, "the third would fall together with the last two seconds");
}

#[tokio::test(start_paused = true)]
async fn watches_can_be_ended_from_outside() {
    let (server, env) = server();
    let before = env.clock.now();
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1")).await;
    assert!(watch.next().now_or_never().is_none());
    server.end_watches();
    assert_eq!(watch.next().await, None);
    assert_eq!(env.clock.now(), before);
    let mut again = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1")).await;
    assert!(again.next().now_or_never().is_none(), "a new one is not affected");
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_future_is_silent_until_it_has_passed() {
    let (server, _) = server();
    let future = server.revision() + 2;
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={future}")).await;
    for name in ["a", "b", "c"] {
        post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
    }
    assert_eq!(watch.told().await.1, "c");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_a_bookmark_where_it_is_allowed() {
    let env = Env::simulated(1);
    let server = ApiServer::builder(&env).streaming_lists(true).build();
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
    let (server, _) = server();
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    post(&server, CONFIG_MAPS, &config_map("b", &json!({"k": "v"}))).await;
    let mut watch =
        Watch::open(&server, "/api/v1/watch/namespaces/default/configmaps/b?timeoutSeconds=1").await;
    assert_eq!(watch.told().await.1, "b");
    assert_eq!(watch.next().await, None);
    let accept = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let (_, one) = raw(&server, "GET", &format!("{CONFIG_MAPS}/b"), &accept, "").await;
    assert_eq!((&one["kind"], one.get("data")), (&json!("PartialObjectMetadata"), None));
}

#[tokio::test(start_paused = true)]
async fn many_large_objects_arrive_whole_and_in_order() {
    let (server, _) = server();
    let start = server.revision();
    for number in 0..60 {
        let filler = "x".repeat(if number % 2 == 0 { 100 } else { 9000 });
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number:02}"), &json!({"f": filler}))).await;
    }
    let mut changes = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    let mut present = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1")).await;
    for number in 0..60 {
        assert_eq!(changes.told().await.1, format!("c{number:02}"));
        assert_eq!(present.told().await.1, format!("c{number:02}"));
    }
    let (_, list) = get(&server, CONFIG_MAPS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 60);
}
