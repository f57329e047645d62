//! Watches that are silent, and bookmarks.

use std::time::Duration;

use serde_json::json;
use watchkeeper::reflector::ListReason;
use watchkeeper::source::{Asked, Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::{ScriptedReflector, bookmark, error, event, first_page, list};

#[tokio::test(start_paused = true)]
async fn a_silent_watch_of_a_server_with_bookmarks_is_made_anew() {
    let source = ScriptedSource::new();
    source.on_list(list(5, &["a"])).on_watch(Reply::body(bookmark(6, None)).then_hang());
    source.on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_asked(3).await;
    assert_eq!((scripted.env.clock.now() - began).as_secs(), 150);
    assert_eq!(scripted.watched_from(2), ("6".into(), false));
    assert_eq!(scripted.informer.health().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_without_bookmarks_ends_soon_after_its_own_time() {
    let source = ScriptedSource::new();
    source
        .on_list(list(5, &["a"]))
        .on_watch(Reply::body("").then_hang())
        .on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_asked(3).await;
    let Asked::Watch(options) = &scripted.source.asked()[1] else { panic!() };
    assert_eq!((scripted.env.clock.now() - began).as_secs(), options.timeout.as_secs() + 15);
}

// A restored etcd: the version to watch from is in a future that will not come, and the server waits for it.
#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_nothing_from_a_server_that_was_set_back_leads_to_a_list() {
    let source = ScriptedSource::new();
    source.on_list(list(1000, &["old"])).on_watch(Reply::body(bookmark(1001, None)));
    source.on_watch(Reply::body("").then_hang());
    source.on_list(list(500, &["new"])).on_list(list(500, &["new"])).on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_asked(6).await;
    scripted.settle().await;
    // Two and a half missed bookmarks, and the first step of the backoff.
    let elapsed = scripted.env.clock.now() - began;
    assert!((150..152).contains(&elapsed.as_secs()), "{elapsed:?}");
    assert_eq!((scripted.watched_from(2).0, scripted.watched_from(5).0), ("1001".into(), "500".into()));
    assert_eq!(scripted.source.asked()[3], first_page(1));
    assert_eq!((scripted.cached(), scripted.env.reporter.errors()), (vec!["new@1".to_owned()], 1));
    let health = scripted.informer.health();
    assert_eq!((health.lists_by_reason[&ListReason::VersionTooLarge], health.version), (1, 500.into()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_sending_bookmarks_is_asked_once_how_far_it_is_and_not_listed() {
    let source = ScriptedSource::new();
    source.on_list(list(1000, &["a"])).on_watch(Reply::body(bookmark(1001, None)));
    source.on_list(Reply::refuse(error(Class::TooManyRequests))).on_list(list(1001, &["a"]));
    for _ in 0..100 {
        source.on_watch(Reply::body("").then_hang());
    }
    let scripted = ScriptedReflector::start(source, |builder| builder);
    scripted.env.clock.sleep(Duration::from_secs(7200)).await;
    let asked = scripted.source.asked();
    let lists = |asked: &[Asked]| asked.iter().filter(|asked| matches!(asked, Asked::List(_))).count();
    // It is asked again after an inconclusive answer, and then no more.
    assert_eq!((lists(&asked[..7]), lists(&asked)), (3, 3));
    assert_eq!((scripted.watched_from(4).0, scripted.watched_from(6).0), ("1001".into(), "1001".into()));
    assert!(asked.len() <= 7 + 7200 / 315, "each lasts its whole time: {}", asked.len());
    let health = scripted.informer.health();
    assert_eq!((health.lists, health.degraded, scripted.env.reporter.errors()), (1, None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_nothing_while_lists_fail_is_trouble_until_something_arrives() {
    let source = ScriptedSource::new();
    source.on_list(list(1000, &["a"])).on_watch(Reply::body(bookmark(1001, None)));
    for _ in 0..3 {
        source.on_watch(Reply::body("").then_hang()).on_list(Reply::refuse(error(Class::Other)));
    }
    let (watch, feed) = Reply::live();
    source.on_watch(watch);
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let degraded = || scripted.informer.health().degraded;
    scripted.until_asked(5).await;
    scripted.settle().await;
    let (began, why) = degraded().unwrap();
    assert_eq!(why, "the watch brings nothing; cannot list configmaps: scripted");
    scripted.until_asked(9).await;
    // A watch that lasts proves no more than those before it.
    scripted.env.clock.sleep(Duration::from_secs(10)).await;
    assert_eq!(degraded().unwrap().0, began);
    assert_eq!((scripted.informer.health().watches, scripted.env.reporter.errors()), (5, 3));
    feed.send(bookmark(1002, None));
    scripted.settle().await;
    assert_eq!(degraded(), None);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_may_have_null_for_its_annotations() {
    let source = ScriptedSource::new();
    let bookmark = json!({"metadata": {"resourceVersion": "9", "annotations": null}});
    source.on_list(list(5, &[])).on_watch(Reply::body(event("BOOKMARK", &bookmark)).then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    scripted.until_asked(2).await;
    scripted.settle().await;
    assert_eq!((scripted.informer.indexer().version(), scripted.env.reporter.errors()), (9.into(), 0));
}
