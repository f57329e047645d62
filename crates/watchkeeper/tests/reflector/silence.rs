//! Watches that are silent, and bookmarks.

use std::time::Duration;

use serde_json::json;
use watchkeeper::reflector::ListReason;
use watchkeeper::source::{Asked, Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::{ScriptedReflector, bookmark, error, event, first_page, list, object};

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
        .on_list(list(5, &["a"]))
        .on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_asked(3).await;
    assert_eq!((probes(&scripted), (scripted.env.clock.now() - began).as_secs()), (1, 150));
    scripted.until_asked(4).await;
    let Asked::Watch(options) = &scripted.source.asked()[1] else { panic!() };
    assert_eq!((scripted.env.clock.now() - began).as_secs(), options.timeout.as_secs() + 15);
}

// A restored etcd: the version to watch from is in a future that will not come, and the server waits for it.
#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_nothing_from_a_server_that_was_set_back_leads_to_a_list() {
    let lost = || Reply::body(bookmark(1001, None)).then_fail(error(Class::ConnectionLost));
    // After a silence, or soon after a lost connection; and the first step of the backoff.
    for (before, from, seconds) in [(None, 1000, 150..152), (Some(lost()), 1001, 0..3)] {
        let source = ScriptedSource::new();
        source.on_list(list(1000, &["old"]));
        let watches = usize::from(before.is_some());
        before.into_iter().for_each(|before| drop(source.on_watch(before).clone()));
        source.on_watch(Reply::body("").then_hang()).on_list(list(500, &["new"]));
        source.on_list(list(500, &["new"])).on_watch(Reply::body("").then_hang());
        let scripted = ScriptedReflector::start(source, |builder| builder);
        let began = scripted.env.clock.now();
        scripted.until_asked(watches + 5).await;
        scripted.settle().await;
        let elapsed = scripted.env.clock.now() - began;
        assert!(seconds.contains(&elapsed.as_secs()), "{elapsed:?}");
        assert_eq!(scripted.watched_from(watches + 1).0, from.to_string());
        assert_eq!(scripted.source.asked()[watches + 2], first_page(1));
        assert_eq!(scripted.watched_from(watches + 4).0, "500");
        assert_eq!((scripted.cached(), scripted.env.reporter.errors()), (vec!["new@1".to_owned()], 1));
        let health = scripted.informer.health();
        assert_eq!((health.lists_by_reason[&ListReason::VersionTooLarge], health.rewritten), (1, 1));
        assert_eq!(health.version, 500.into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_sending_bookmarks_is_asked_how_far_it_is_and_not_listed() {
    let source = ScriptedSource::new();
    source.on_list(list(1000, &["a"])).on_watch(Reply::body(bookmark(1001, None)));
    source.on_list(Reply::refuse(error(Class::TooManyRequests)));
    for _ in 0..100 {
        source.on_list(list(1001, &["a"])).on_watch(Reply::body("").then_hang());
    }
    let scripted = ScriptedReflector::start(source, |builder| builder);
    scripted.env.clock.sleep(Duration::from_secs(7200)).await;
    // Each watch lasts its whole time. It is checked when it follows one that was dead, and in its silence.
    let (asked, checks) = (scripted.source.asked().len() - 1, probes(&scripted));
    let watches = asked - checks;
    assert!((7200 / 615..=2 + 7200 / 315).contains(&watches), "{watches}");
    assert!((2 * watches - 4..=2 * watches).contains(&checks), "{checks} for {watches}");
    let health = scripted.informer.health();
    assert_eq!((health.lists, health.degraded, scripted.env.reporter.errors()), (1, None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_nothing_while_lists_fail_is_trouble_until_something_arrives() {
    let source = ScriptedSource::new();
    source.on_list(list(1000, &["a"])).on_watch(Reply::body(bookmark(1001, None)));
    for _ in 0..3 {
        source.on_watch(Reply::body("").then_hang());
        // Soon after the end of the last watch, and in the silence of this one.
        source.on_list(Reply::refuse(error(Class::Other))).on_list(Reply::refuse(error(Class::Other)));
    }
    let (watch, feed) = Reply::live();
    source.on_watch(watch);
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let degraded = || scripted.informer.health().degraded;
    scripted.until_asked(4).await;
    scripted.settle().await;
    assert_eq!(degraded(), None);
    scripted.until_asked(5).await;
    scripted.settle().await;
    let (began, why) = degraded().unwrap();
    assert_eq!(why, "the watch brings nothing; cannot list configmaps: scripted");
    scripted.until_asked(12).await;
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

/// The requests for one object after the initial list, which ask for the server's version.
fn probes(scripted: &ScriptedReflector) -> usize {
    scripted.source.asked().iter().filter(|asked| **asked == first_page(1)).count()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lost_its_connections_is_asked_once_how_far_it_is_while_the_watch_goes_on() {
    let source = ScriptedSource::new();
    let (watch, feed) = Reply::live();
    source.on_list(list(5, &["a"])).on_watch(watch);
    let scripted = ScriptedReflector::start(source, |builder| builder);
    scripted.until_asked(2).await;
    scripted.env.clock.sleep(Duration::from_secs(60)).await;
    feed.fail(error(Class::ConnectionLost));
    for _ in 0..3 {
        scripted.source.on_watch(Reply::refuse(error(Class::ConnectionRefused)));
    }
    let (watch, feed) = Reply::live();
    scripted.source.on_watch(watch);
    scripted.until_asked(6).await;
    assert_eq!(probes(&scripted), 0, "not while the server is away");
    scripted.until_asked(7).await;
    // The watch delivers while the answer is awaited.
    feed.send(event("ADDED", &object("b", 9)));
    scripted.settle().await;
    assert_eq!(scripted.cached(), ["a@1", "b@9"]);
    scripted.source.on_list(list(9, &["a"]));
    for version in 10..100 {
        scripted.env.clock.sleep(Duration::from_secs(60)).await;
        if !feed.send(bookmark(version, None)) {
            break;
        }
    }
    assert_eq!((probes(&scripted), scripted.informer.health().lists), (1, 1));
    assert_eq!(scripted.informer.health().degraded, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_its_time_is_followed_by_no_question() {
    let source = ScriptedSource::new();
    source.on_list(list(5, &["a"]));
    let scripted = ScriptedReflector::start(source, |builder| builder);
    for watch in 0..5 {
        let (reply, feed) = Reply::live();
        scripted.source.on_watch(reply);
        scripted.until_asked(watch + 2).await;
        let Asked::Watch(options) = &scripted.source.asked()[watch + 1] else { panic!() };
        for minute in 0..options.timeout.as_secs() / 60 {
            feed.send(bookmark(10 + 10 * watch as u64 + minute, None));
            scripted.env.clock.sleep(Duration::from_secs(60)).await;
        }
        scripted.env.clock.sleep(Duration::from_secs(options.timeout.as_secs() % 60)).await;
        drop(feed);
    }
    scripted.until_asked(7).await;
    scripted.env.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!((probes(&scripted), scripted.source.asked().len()), (0, 7));
}

#[tokio::test(start_paused = true)]
async fn a_version_below_the_last_one_in_an_event_a_bookmark_or_a_list_is_reported_and_counted_once() {
    let expired = || event("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired"}));
    for (went_back, reason) in [
        (event("MODIFIED", &object("old", 400)), ListReason::VersionTooLarge),
        (bookmark(400, None), ListReason::VersionTooLarge),
        (expired(), ListReason::Expired),
    ] {
        let source = ScriptedSource::new();
        source.on_list(list(1000, &["old"])).on_watch(Reply::body(bookmark(1001, None) + &went_back));
        source.on_list(list(500, &["new"])).on_watch(Reply::body(bookmark(501, None)).then_hang());
        let scripted = ScriptedReflector::start(source, |builder| builder);
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!((scripted.watched_from(3).0, scripted.cached()), ("500".into(), vec!["new@1".to_owned()]));
        let health = scripted.informer.health();
        assert_eq!((health.rewritten, health.lists_by_reason[&reason], health.version), (1, 1, 501.into()));
        assert_eq!(scripted.env.reporter.errors(), 1, "{went_back}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_silence_can_be_set() {
    let source = ScriptedSource::new();
    source.on_list(list(5, &["a"])).on_watch(Reply::body("").then_hang());
    let scripted =
        ScriptedReflector::start(source, |builder| builder.max_watch_silence(Duration::from_secs(20)));
    let began = scripted.env.clock.now();
    scripted.until_asked(3).await;
    assert_eq!(((scripted.env.clock.now() - began).as_secs(), probes(&scripted)), (20, 1));
}
