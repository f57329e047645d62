//! Streamed lists, and the choice of the way to list.

use std::time::Duration;

use watchkeeper::reflector::ListMode;
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::{ScriptedReflector, bookmark, error, event, first_page, list, object};

// client-go: TestWatchList, TestReflectorListAndWatch
#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_handed_over_whole_and_its_stream_goes_on_as_the_watch() {
    let source = ScriptedSource::new().streaming();
    let (reply, feed) = Reply::live();
    source.on_watch(reply);
    let scripted = ScriptedReflector::start(source, |builder| builder);
    feed.send(
        event("ADDED", &object("a", 1)) + &event("ADDED", &object("b", 2)) + &event("ADDED", &object("c", 3)),
    );
    // A bookmark with another value does not end the list, and changes during the stream count.
    feed.send(
        bookmark(5, Some("yes")) + &event("MODIFIED", &object("a", 6)) + &event("DELETED", &object("b", 7)),
    );
    scripted.settle().await;
    assert!(!scripted.informer.has_synced() && scripted.cached().is_empty());
    feed.send(bookmark(8, Some("true")));
    scripted.until_synced().await;
    assert_eq!(scripted.cached(), ["a@6", "c@3"]);
    assert_eq!(scripted.informer.indexer().version(), 8.into());
    feed.send(event("MODIFIED", &object("c", 9)));
    scripted.settle().await;
    assert_eq!(scripted.cached(), ["a@6", "c@9"]);
    drop(feed);
    scripted.until_asked(2).await;
    assert_eq!(
        (scripted.watched_from(0), scripted.watched_from(1)),
        ((String::new(), true), ("9".into(), false))
    );
    assert_eq!(scripted.informer.health().lists, 1);
}

// client-go: TestWatchList "can fall back"
#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_listed_at_once() {
    let source = ScriptedSource::new().streaming();
    source
        .on_watch(Reply::refuse(error(Class::Invalid)))
        .on_list(list(5, &["a"]))
        .on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_synced().await;
    assert_eq!(
        (scripted.cached(), scripted.env.clock.now() - began),
        (vec!["a@1".to_owned()], Duration::ZERO)
    );
    assert_eq!(scripted.env.reporter.errors(), 0, "that is no error");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_tells_its_end_is_given_up_for_a_list() {
    let source = ScriptedSource::new().streaming();
    source.on_watch(Reply::body(event("ADDED", &object("a", 1))).then_hang());
    source.on_list(list(5, &["a", "b"])).on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_synced().await;
    assert_eq!(scripted.cached().len(), 2);
    assert_eq!((scripted.env.clock.now() - began).as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_changes_that_never_tells_the_end_of_its_list_is_given_up_for_a_list() {
    let source = ScriptedSource::new().streaming();
    let (reply, feed) = Reply::live();
    source.on_watch(reply).on_list(list(5, &["a", "b"])).on_watch(Reply::body("").then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    let (informer, clock) = (scripted.informer.clone(), scripted.env.clock.clone());
    let synced = tokio::spawn(async move {
        informer.wait_until_synced().await;
        clock.now()
    });
    // The list arrives slowly, and takes longer than any one chunk may take.
    for version in 1..9 {
        scripted.env.clock.sleep(Duration::from_secs(10)).await;
        assert!(feed.send(event("ADDED", &object(&format!("o{version}"), version))));
    }
    let mut version = 9;
    while feed.send(event("MODIFIED", &object("a", version))) {
        scripted.env.clock.sleep(Duration::from_secs(10)).await;
        version += 1;
    }
    let synced =
        scripted.env.clock.timeout(Duration::from_secs(3600), synced).await.expect("waited for an hour");
    assert_eq!((synced.unwrap() - began).as_secs(), 80 + 30);
    assert_eq!(scripted.cached(), ["a@1", "b@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_is_closed_before_its_end_is_reported() {
    let source = ScriptedSource::new().streaming();
    source.on_watch(Reply::body(event("ADDED", &object("a", 1))));
    source.on_watch(Reply::body(bookmark(8, Some("true"))).then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    scripted.settle().await;
    let (_, why) = scripted.informer.health().degraded.unwrap();
    assert_eq!(why, "the watch failed configmaps: the list was closed before its end");
    assert_eq!(scripted.env.reporter.errors(), 1);
    scripted.until_synced().await;
    assert!(scripted.informer.health().degraded.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_way_to_list_can_be_chosen() {
    let source = ScriptedSource::new().streaming();
    source.on_list(list(5, &["a"])).on_watch(Reply::body("").then_hang());
    let scripted =
        ScriptedReflector::start(source, |builder| builder.list_mode(ListMode::Paged).page_size(3));
    scripted.until_synced().await;
    assert_eq!(scripted.source.asked()[0], first_page(3));
}

#[tokio::test(start_paused = true)]
async fn the_bookmark_at_the_end_of_a_streamed_list_promises_no_others() {
    let source = ScriptedSource::new().streaming();
    source.on_watch(Reply::body(bookmark(8, Some("true"))).then_hang()).on_list(list(8, &[]));
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_asked(3).await;
    assert!((scripted.env.clock.now() - began).as_secs() >= 300);
    assert_eq!(
        (scripted.source.asked()[1].clone(), scripted.watched_from(2)),
        (first_page(1), ("8".into(), false))
    );
}
