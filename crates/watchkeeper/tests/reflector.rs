//! Does a reflector follow its rules, through the public API of an informer? In process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::SharedInformerBuilder;
use watchkeeper::reflector::{ListMode, ListReason};
use watchkeeper::source::{
    Asked, ByteStream, ListOptions, ListerWatcher, Reply, ScriptedSource, WatchOptions,
};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Env, ObjectName, SharedInformer};

fn object(name: &str, version: u64) -> Value {
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: u64, annotation: Option<&str>) -> String {
    let mut object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}});
    if let Some(value) = annotation {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": value});
    }
    event("BOOKMARK", &object)
}

fn list(version: u64, names: &[&str]) -> Reply {
    let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
    Reply::body(json!({"items": items, "metadata": {"resourceVersion": version.to_string()}}).to_string())
}

fn error(class: Class) -> ApiError {
    ApiError::new(class, "scripted")
}

/// The request for the first page of a list.
fn first_page(limit: u32) -> Asked {
    let mut options = ListOptions::default();
    options.limit = limit;
    Asked::List(options)
}

/// An informer whose source plays a script; tests look at what its reflector asks and brings.
/// An informer whose source plays a script; tests look at what its reflector asks and brings.
struct ScriptedReflector {
    env: Env,
    source: ScriptedSource,
    informer: SharedInformer<ConfigMap>,
    stop: CancellationToken,
}

impl ScriptedReflector {
    fn start(
        source: ScriptedSource,
        build: impl FnOnce(SharedInformerBuilder<ConfigMap>) -> SharedInformerBuilder<ConfigMap>,
    ) -> Self {
        let env = Env::simulated(1);
        let informer = build(SharedInformer::builder(source.clone(), &env)).build();
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        Self { env, source, informer, stop }
    }

    fn cached(&self) -> Vec<String> {
        let snapshot = self.informer.indexer().snapshot();
        let mut all: Vec<_> = snapshot.iter().map(|o| format!("{}@{}", o.name(), o.version())).collect();
        all.sort();
        all
    }

    async fn settle(&self) {
        self.env.clock.sleep(Duration::from_millis(1)).await;
    }

    /// Waits for an hour at most: on the paused clock, until nothing else can happen.
    async fn soon(&self, future: impl Future<Output = ()>) {
        self.env.clock.timeout(Duration::from_secs(3600), future).await.expect("waited for an hour");
    }

    async fn until_synced(&self) {
        self.soon(self.informer.wait_until_synced()).await;
    }

    /// Waits until `count` requests have come.
    async fn until_asked(&self, count: usize) {
        self.soon(self.source.until_asked(count)).await;
    }

    fn watched_from(&self, request: usize) -> (String, bool) {
        match &self.source.asked()[request] {
            Asked::Watch(options) => (options.version.to_string(), options.initial_events),
            other => panic!("{other:?}"),
        }
    }
}

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
    // A bookmark with another value is none, and changes during the stream count.
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
    // What is there comes slowly, and for longer than any one piece may take.
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
async fn a_watch_that_opens_and_fails_each_time_is_degraded_since_its_first_failure() {
    for brings_something in [false, true] {
        let source = ScriptedSource::new();
        let broken = || Reply::body("").then_fail(error(Class::ConnectionLost));
        for round in 0..3 {
            source.on_list(list(10 + round, &["a"]));
            source.on_watch(broken()).on_watch(Reply::body("")).on_watch(broken());
        }
        source.on_list(list(20, &["a"]));
        let scripted = ScriptedReflector::start(source, |builder| builder);
        let degraded_since = || scripted.informer.health().degraded.map(|(since, _)| since);
        scripted.until_asked(2).await;
        scripted.settle().await;
        let began = degraded_since();
        assert!(began.is_some());
        // A list in between does not help what fails: the watch.
        scripted.until_asked(14).await;
        scripted.settle().await;
        assert_eq!((scripted.informer.health().lists, degraded_since()), (4, began));
        let (watch, feed) = Reply::live();
        scripted.source.on_watch(watch);
        scripted.env.clock.sleep(Duration::from_millis(900)).await;
        assert_eq!((scripted.informer.health().watches, degraded_since()), (10, began));
        if brings_something {
            feed.send(bookmark(21, None));
            scripted.settle().await;
        } else {
            scripted.env.clock.sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(degraded_since(), None);
        // The next trouble has a beginning of its own.
        let end = scripted.env.clock.now();
        scripted.source.on_watch(Reply::refuse(error(Class::ConnectionRefused)));
        feed.fail(error(Class::ConnectionLost));
        scripted.settle().await;
        assert!(degraded_since().unwrap() >= end);
    }
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

// An etcd that was restored: the version to watch from is of a future that will not come, and the server waits for it.
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
    // Not three bookmarks, and the first step of the backoff.
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
    // Again after an answer that told nothing, and then no more.
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
    // A watch that lasts says no more than those before it.
    scripted.env.clock.sleep(Duration::from_secs(10)).await;
    assert_eq!(degraded().unwrap().0, began);
    assert_eq!((scripted.informer.health().watches, scripted.env.reporter.errors()), (5, 3));
    feed.send(bookmark(1002, None));
    scripted.settle().await;
    assert_eq!(degraded(), None);
}

#[tokio::test(start_paused = true)]
async fn the_bookmark_at_the_end_of_a_streamed_list_promises_no_others() {
    let source = ScriptedSource::new().streaming();
    source.on_watch(Reply::body(bookmark(8, Some("true"))).then_hang());
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let began = scripted.env.clock.now();
    scripted.until_asked(2).await;
    assert!((scripted.env.clock.now() - began).as_secs() >= 300);
    assert_eq!(scripted.watched_from(1), ("8".into(), false));
}

// client-go: TestSharedInformerErrorHandling
#[tokio::test(start_paused = true)]
async fn the_error_hook_hears_of_every_error_and_may_panic() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let source = ScriptedSource::new();
    source.on_list(Reply::refuse(error(Class::Forbidden))).on_list(list(5, &["a"]));
    source.on_watch(Reply::refuse(error(Class::TooManyRequests)));
    source.on_watch(Reply::body(event("MODIFIED", &object("a", 6))).then_fail(error(Class::ConnectionLost)));
    source
        .on_watch(Reply::body(event("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired"}))));
    source.on_list(list(9, &["a"])).on_watch(Reply::body("").then_hang());
    let log = heard.clone();
    let scripted = ScriptedReflector::start(source, |builder| {
        builder.on_watch_error(move |error| {
            log.lock().push(error.class());
            assert!(error.class() != Class::TooManyRequests, "a bad hook");
        })
    });
    scripted.until_asked(7).await;
    let expected = [Class::Forbidden, Class::TooManyRequests, Class::ConnectionLost, Class::Expired];
    assert_eq!(heard.lock()[..], expected);
    assert_eq!(scripted.env.reporter.panics(), 1);
    let health = scripted.informer.health();
    assert_eq!(
        health.lists_by_reason.into_iter().collect::<Vec<_>>(),
        [(ListReason::First, 1), (ListReason::Expired, 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn poison_among_good_objects_is_reported_by_place_and_name_and_nothing_loops() {
    let big = format!(
        r#"{{"metadata":{{"name":"big","namespace":"ns"}},"data":{{"k":"{}"}}}}"#,
        "x".repeat(17 << 20)
    );
    let mut body = br#"{"metadata":{"resourceVersion":"5"},"items":["#.to_vec();
    let items: [&[u8]; 6] = [
        br#"{"metadata":{"name":"good-1","namespace":"ns"}}"#,
        br#"{"metadata":{"labels":{}}}"#,
        b"{\"metadata\":{\"name\":\"bad\xff\",\"namespace\":\"ns\"}}",
        big.as_bytes(),
        br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"other","namespace":"ns"}}"#,
        br#"{"metadata":{"name":"good-2","namespace":"ns"},"data":7}"#,
    ];
    body.extend(items.join(&b","[..]));
    body.extend(b"]}");
    let source = ScriptedSource::new();
    let watch = format!(
        "{}{}",
        event("ADDED", &object("good-3", 6)),
        r#"{"type":"MODIFIED","object":{"metadata":{}}}"#
    );
    let huge = format!(r#"{{"type":"ADDED","object":{big}}}"#);
    let last = event("ADDED", &object("good-4", 7));
    source
        .on_list(Reply::body(body).in_pieces(100_000))
        .on_watch(Reply::body(watch + &huge + &last).then_hang());
    let env_reports = Arc::new(Mutex::new(Vec::new()));
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let log = env_reports.clone();
    scripted
        .env
        .reporter
        .add_hook(move |report| log.lock().push(format!("{} {}", report.subject, report.incident)));
    scripted.until_synced().await;
    scripted.settle().await;
    assert_eq!(scripted.cached(), ["good-1@", "good-2@", "good-3@6", "good-4@7"]);
    let reports = env_reports.lock().join("\n");
    for said in [
        "configmaps skipped item 1: object has no metadata.name",
        "configmaps skipped item 2: malformed JSON: a string that is not UTF-8",
        "configmaps skipped item 3, ns/big: 17825",
        "configmaps skipped item 4, ns/other: expected kind v1 ConfigMap, found v1 Secret",
        "configmaps skipped a Modified event: object has no metadata.name",
        "configmaps skipped an event, ns/big: 17825",
    ] {
        assert!(reports.contains(said), "{said:?} is not in\n{reports}");
    }
    assert_eq!((env_reports.lock().len(), scripted.source.asked().len()), (6, 2));
    let undecodable = scripted.informer.lister().get(&ObjectName::namespaced("ns", "good-2")).unwrap_err();
    assert!(undecodable.to_string().contains("ns/good-2"), "{undecodable}");
    scripted.stop.cancel();
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

/// An object over the cap, or one with half a character in its uid.
fn unreadable(name: &str, large: bool) -> String {
    let (uid, size) = if large { ("u", 17 << 20) } else { (r"\ud800", 1) };
    let data = "x".repeat(size);
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}"}},"data":"{data}"}}"#)
}

#[tokio::test(start_paused = true)]
async fn what_is_there_but_cannot_be_taken_in_keeps_its_old_state_over_a_list() {
    for streams in [false, true] {
        let source = ScriptedSource::new();
        let source = if streams { source.streaming() } else { source };
        let gone = event("ERROR", &json!({"kind": "Status", "code": 410}));
        let items = ["large", "broken", "gone"];
        let bad = [unreadable("large", true), unreadable("never-seen", true), unreadable("broken", false)];
        if streams {
            let added = |object: &String| format!(r#"{{"type":"ADDED","object":{object}}}"#);
            let first: String = items.iter().map(|name| event("ADDED", &object(name, 1))).collect();
            source.on_watch(Reply::body(first + &bookmark(5, Some("true")) + &gone));
            let second: String = bad.iter().map(added).collect();
            source.on_watch(Reply::body(second + &bookmark(9, Some("true"))).then_hang());
        } else {
            source.on_list(list(5, &items)).on_watch(Reply::body(gone));
            let second = bad.join(",");
            source.on_list(Reply::body(format!(
                r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{second}]}}"#
            )));
        }
        let scripted = ScriptedReflector::start(source, |builder| builder);
        scripted.until_asked(if streams { 2 } else { 4 }).await;
        scripted.settle().await;
        assert_eq!(scripted.informer.health().lists, 2);
        assert_eq!(
            (scripted.cached(), scripted.env.reporter.errors()),
            (vec!["broken@1".into(), "large@1".into()], 3)
        );
        scripted.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_object_that_is_taken_in_can_be_set() {
    let sized = |name: &str, size: usize| {
        let mut object = object(name, 3);
        object["data"] = json!({"k": "x".repeat(size)});
        object
    };
    for (cap, expected) in [
        (None, vec!["listed@3", "small@3", "watched@3"]),
        (Some(100 << 10), vec!["small@3"]),
        // Smaller than any cap that makes sense: 64 KiB it is.
        (Some(0), vec!["small@3"]),
    ] {
        let source = ScriptedSource::new();
        let items = [sized("listed", 200 << 10), sized("small", 60 << 10)];
        source
            .on_list(Reply::body(json!({"items": items, "metadata": {"resourceVersion": "5"}}).to_string()));
        source.on_watch(Reply::body(event("ADDED", &sized("watched", 200 << 10))).then_hang());
        let scripted = ScriptedReflector::start(source, |builder| match cap {
            Some(cap) => builder.max_object_size(cap),
            None => builder,
        });
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), expected);
        assert_eq!(scripted.env.reporter.errors(), 3 - expected.len() as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_gone_though_its_last_state_cannot_be_taken_in() {
    let source = ScriptedSource::new();
    let deleted = |object: &str| format!(r#"{{"type":"DELETED","object":{object}}}"#);
    let mut other = object("stays", 9);
    other["kind"] = "Secret".into();
    let events = deleted(&unreadable("large", true)) + &deleted(&unreadable("broken", false));
    source.on_list(list(5, &["large", "broken", "stays"]));
    source.on_watch(Reply::body(events + &event("DELETED", &other)).then_hang());
    let told = Arc::new(Mutex::new(Vec::new()));
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let log = told.clone();
    let handler =
        watchkeeper::informer::on_change(move |change: watchkeeper::informer::Change<'_, ConfigMap>| {
            if let watchkeeper::informer::Change::Deleted(deleted) = change {
                log.lock().push((deleted.key().name().to_owned(), deleted.is_tombstone()));
            }
        });
    scripted.informer.add_handler(handler).unwrap();
    scripted.until_asked(2).await;
    scripted.settle().await;
    // One of another kind tells nothing about ours.
    assert_eq!((scripted.cached(), scripted.env.reporter.errors()), (vec!["stays@1".to_owned()], 3));
    assert_eq!(told.lock()[..], [("large".to_owned(), true), ("broken".to_owned(), true)]);
}

/// A server of one object, down until told otherwise.
#[derive(Clone)]
struct Flaky(Arc<Connects>);

#[derive(Default)]
struct Connects {
    up: std::sync::atomic::AtomicBool,
    lists: AtomicU64,
    /// Tries in each second of virtual time.
    tries: Mutex<std::collections::BTreeMap<u64, u64>>,
}

impl Flaky {
    fn connect(&self, env: &Env, began: watchkeeper::clock::Instant) -> Result<(), ApiError> {
        *self.0.tries.lock().entry((env.clock.now() - began).as_secs()).or_default() += 1;
        if self.0.up.load(Ordering::Relaxed) { Ok(()) } else { Err(error(Class::ConnectionRefused)) }
    }
}

struct FlakySource(Flaky, Env, watchkeeper::clock::Instant);

impl ListerWatcher for FlakySource {
    async fn list(&self, _options: &ListOptions) -> Result<ByteStream, ApiError> {
        self.0.connect(&self.1, self.2)?;
        self.0.0.lists.fetch_add(1, Ordering::Relaxed);
        let body = json!({"items": [object("a", 1)], "metadata": {"resourceVersion": "5"}}).to_string();
        Ok(Box::pin(futures::stream::iter([Ok(Bytes::from(body))])))
    }

    async fn watch(&self, _options: &WatchOptions) -> Result<ByteStream, ApiError> {
        self.0.connect(&self.1, self.2)?;
        Ok(Box::pin(futures::stream::pending()))
    }

    fn streams_lists(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_informers_do_not_storm_a_server_that_was_down_for_ten_minutes() {
    let (env, flaky) = (Env::simulated(3), Flaky(Arc::default()));
    let (began, stop) = (env.clock.now(), CancellationToken::new());
    let mut informers = Vec::new();
    for _ in 0..200 {
        let source = FlakySource(flaky.clone(), env.clone(), began);
        let informer = SharedInformer::<ConfigMap>::builder(source, &env).build();
        let (running, token) = (informer.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        informers.push(informer);
    }
    env.clock.sleep(Duration::from_secs(600)).await;
    flaky.0.up.store(true, Ordering::Relaxed);
    for informer in &informers {
        env.clock
            .timeout(Duration::from_secs(3600), informer.wait_until_synced())
            .await
            .expect("waited for an hour");
    }
    let tries = flaky.0.tries.lock().clone();
    // All start at once; after that jitter spreads them, and after a few minutes each tries every 30 to 60 seconds.
    let later: Vec<_> = tries.range(180..600).map(|(_, count)| *count).collect();
    assert!(later.iter().all(|count| *count <= 20), "{later:?}");
    assert!(later.iter().sum::<u64>() <= 200 * 420 / 30, "{later:?}");
    assert_eq!(flaky.0.lists.load(Ordering::Relaxed), 200, "one list each");
    stop.cancel();
}

fn stream_of(versions: std::ops::Range<u64>) -> String {
    versions
        .map(|version| {
            let mut object = object(&format!("o{}", version % 3), version);
            object["data"] = json!({"text": "a \"quoted\" \\ and é"});
            event(if version % 7 == 0 { "DELETED" } else { "MODIFIED" }, &object)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_cut_of_a_stream_gives_a_prefix_and_a_resume_and_the_same_store(
        // The third watch in a row that brings nothing from one version is a reason to list: with two cuts it cannot come to that.
        cuts in prop::collection::vec(0..2000_usize, 0..3), pieces in 1..200_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let source = ScriptedSource::new();
            source.on_list(list(10, &["o0"]));
            let scripted = ScriptedReflector::start(source, |builder| builder);
            scripted.until_asked(2).await;
            let mut from = 11;
            for cut in cuts {
                let reply = Reply::body(stream_of(from..31)).in_pieces(pieces);
                let asked = scripted.source.asked().len();
                scripted.source.on_watch(reply.cut_at(cut, error(Class::ConnectionLost)));
                scripted.until_asked(asked + 1).await;
                let Asked::Watch(options) = scripted.source.asked().pop().unwrap() else { panic!("a cut is no reason to list") };
                from = options.version.as_number().unwrap() + 1;
            }
            scripted.source.on_watch(Reply::body(stream_of(from..31)).then_hang());
            scripted.env.clock.sleep(Duration::from_secs(300)).await;
            let mut expected: std::collections::BTreeMap<String, u64> = [("o0".to_owned(), 1)].into();
            for version in 11..31_u64 {
                let name = format!("o{}", version % 3);
                if version % 7 == 0 { expected.remove(&name); } else { expected.insert(name, version); }
            }
            let expected: Vec<_> = expected.iter().map(|(name, version)| format!("{name}@{version}")).collect();
            assert_eq!(scripted.cached(), expected);
            scripted.stop.cancel();
        });
    }
}
