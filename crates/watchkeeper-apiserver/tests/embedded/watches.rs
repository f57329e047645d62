//! Watches and the bounds of the history; bookmarks and timeouts.

use std::time::Duration;

use crate::common::*;
use futures::FutureExt as _;
use serde_json::json;
use watchkeeper_apiserver::ApiServerBuilder;

const PLAIN: fn(ApiServerBuilder) -> ApiServerBuilder = |settings| settings;

#[tokio::test(start_paused = true)]
async fn a_version_older_than_the_history_is_gone() {
    let server = Server::embedded(|settings| settings.history(3)).await;
    let start = inside(&server).revision();
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
    assert_eq!(watch.event().await.1, "c2", "the history reaches exactly that far");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_falls_out_of_the_history_and_gets_an_error() {
    let server = Server::embedded(|settings| settings.history(3)).await;
    let mut watch = Watch::open(
        &server,
        &format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", inside(&server).revision()),
    )
    .await;
    assert!(watch.next().now_or_never().is_none());
    for number in 0..5 {
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number}"), &json!({}))).await;
    }
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn compaction_ends_what_is_old_and_spares_what_is_current() {
    let server = Server::embedded(PLAIN).await;
    let start = inside(&server).revision();
    let mut current = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    assert_eq!(current.event().await.1, "a");
    inside(&server).compact_now();
    let mut old = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    assert_eq!(old.next().await.unwrap()["object"]["code"], 410);
    post(&server, CONFIG_MAPS, &config_map("b", &json!({}))).await;
    assert_eq!(current.event().await.1, "b");
    let (code, status) =
        get(&server, &format!("{CONFIG_MAPS}?resourceVersion={start}&resourceVersionMatch=Exact")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_kind_is_not_forgotten_because_another_is_busy() {
    let server = Server::embedded(|settings| settings.history(3)).await;
    let secrets = "/api/v1/namespaces/wktest/secrets";
    let start = inside(&server).revision();
    for number in 0..10 {
        post(&server, CONFIG_MAPS, &config_map(&format!("c{number}"), &json!({}))).await;
    }
    post(&server, secrets, &json!({"metadata": {"name": "s"}})).await;
    let mut watch = Watch::open(&server, &format!("{secrets}?watch=1&resourceVersion={start}")).await;
    assert_eq!(watch.event().await.1, "s");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_cleanly_after_its_time() {
    let server = Server::embedded(PLAIN).await;
    let before = server.env.clock.now();
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=7")).await;
    assert_eq!(watch.next().await, None);
    assert_eq!(server.env.clock.now() - before, Duration::from_secs(7));
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(watch.next().await, None);
    let took = server.env.clock.now() - before;
    assert!(took > Duration::from_secs(1800) && took < Duration::from_secs(3700), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks() {
    let server = Server::embedded(PLAIN).await;
    let before = server.env.clock.now();
    let path = format!(
        "{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion={}",
        inside(&server).revision()
    );
    let mut watch = Watch::open(&server, &path).await;
    post(&server, "/api/v1/namespaces/wktest/secrets", &json!({"metadata": {"name": "s"}})).await;
    for seconds in [60, 120, 148] {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(
            event["object"],
            json!({"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"resourceVersion": inside(&server).revision().to_string()}}),
            "it moves on with the whole server"
        );
        assert_eq!((server.env.clock.now() - before).as_secs(), seconds);
    }
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_period_of_bookmarks_can_be_set_and_they_are_only_sent_when_allowed() {
    let server = Server::embedded(|settings| settings.bookmark_period(Duration::from_secs(5))).await;
    let path =
        format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=12&resourceVersion={}", inside(&server).revision());
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
    let server = Server::embedded(PLAIN).await;
    let before = server.env.clock.now();
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1")).await;
    assert!(watch.next().now_or_never().is_none());
    inside(&server).end_watches();
    assert_eq!(watch.next().await, None);
    assert_eq!(server.env.clock.now(), before);
    let mut again = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1")).await;
    assert!(again.next().now_or_never().is_none(), "a new one is not affected");
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_future_is_silent_until_it_has_passed() {
    let server = Server::embedded(PLAIN).await;
    let future = inside(&server).revision() + 2;
    let mut watch = Watch::open(&server, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={future}")).await;
    for name in ["a", "b", "c"] {
        post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
    }
    assert_eq!(watch.event().await.1, "c");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_refused_where_it_is_not_allowed() {
    let server = Server::embedded(|settings| settings.streaming_lists(false)).await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true");
    let (code, status) = get(&server, &path).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(
        status["message"],
        "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
    );
}
