//! Does a reflector do what the tests of client-go's reflector ask for, and where it differs, what `docs/upstream-tests.md` says? On both
//! queues, in process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Instant;
use watchkeeper::informer::{InformerBuilder, QueueKind};
use watchkeeper::object::Transform;
use watchkeeper::reflector::{Backoff, ListMode, ListReason, Phase};
use watchkeeper::source::{Asked, Feed, ListOptions, Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Env, SharedInformer};

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

/// `name@version` as JSON.
fn parse(item: &str) -> Value {
    let (name, version) = item.split_once('@').unwrap();
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn page(version: u64, token: &str, items: &[&str]) -> Reply {
    let items: Vec<_> = items.iter().map(|item| parse(item)).collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
    Reply::body(json!({"metadata": metadata, "items": items}).to_string())
}

fn list(version: u64, items: &[&str]) -> Reply {
    page(version, "", items)
}

fn raw(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn event(kind: &str, item: &str) -> String {
    raw(kind, &parse(item))
}

fn bookmark(version: u64, ends_list: bool) -> String {
    let annotations = if ends_list { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    raw(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}),
    )
}

fn status(code: u16, reason: &str) -> String {
    raw("ERROR", &json!({"kind": "Status", "code": code, "reason": reason, "message": "scripted"}))
}

fn error(class: Class) -> ApiError {
    ApiError::new(class, "scripted")
}

/// A watch that stays open and says nothing.
fn silence() -> Reply {
    Reply::body("").then_hang()
}

struct World {
    env: Env,
    source: ScriptedSource,
    informer: SharedInformer<ConfigMap>,
    reports: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    began: Instant,
}

impl World {
    fn new(
        queue: QueueKind,
        source: ScriptedSource,
        build: impl FnOnce(InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap>,
    ) -> Self {
        let (env, reports) = (Env::simulated(1), Arc::new(Mutex::new(Vec::new())));
        let log = reports.clone();
        env.reporter.add_hook(move |report| log.lock().push(report.what.to_string()));
        let informer = build(SharedInformer::builder(&env).queue(queue)).build(source.clone());
        let began = env.clock.now();
        Self { env, source, informer, reports, stop: CancellationToken::new(), began }
    }

    fn start(&self) -> JoinHandle<()> {
        let (running, token) = (self.informer.clone(), self.stop.clone());
        tokio::spawn(async move { running.run(token).await })
    }

    fn started(queue: QueueKind, source: ScriptedSource) -> Self {
        let world = Self::new(queue, source, |builder| builder);
        world.start();
        world
    }

    /// A running informer that has listed `items` at version 10, and whose watch is fed.
    async fn watching(queue: QueueKind, items: &[&str]) -> (Self, Feed) {
        let (source, (reply, feed)) = (ScriptedSource::new(), Reply::live());
        source.on_list(list(10, items)).on_watch(reply);
        let world = Self::started(queue, source);
        world.informer.wait_until_synced().await;
        world.settle().await;
        (world, feed)
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

    /// Seconds of virtual time since the start.
    fn elapsed(&self) -> f64 {
        (self.env.clock.now() - self.began).as_secs_f64()
    }

    /// What was asked: `list limit`, `page limit token`, `watch version`, `stream`.
    fn asked(&self) -> Vec<String> {
        let line = |asked: &Asked| match asked {
            Asked::List(options) => {
                assert!(options.version.is_unset(), "every list is a consistent read");
                let token = &options.continue_token;
                if token.is_empty() {
                    format!("list {}", options.limit)
                } else {
                    format!("page {} {token}", options.limit)
                }
            }
            Asked::Watch(options) if options.initial_events => format!("stream{}", options.version),
            Asked::Watch(options) => format!("watch {}", options.version),
        };
        self.source.asked().iter().map(line).collect()
    }

    fn reasons(&self) -> Vec<(ListReason, u64)> {
        self.informer.health().lists_by_reason.into_iter().collect()
    }
}

// client-go: TestReflectorWatchStoppedBefore, TestReflectorHandleWatchStoppedBefore, TestReflectorStopWatch
#[tokio::test(start_paused = true)]
async fn after_a_stop_nothing_is_asked_at_all() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"])).on_watch(silence());
        let world = World::new(queue, source, |builder| builder);
        world.stop.cancel();
        world.start().await.unwrap();
        assert!(world.asked().is_empty());
        assert_eq!(world.informer.health().phase, Phase::Stopped);
    }
}

// client-go: TestRunUntil, TestReflectorWatchStoppedAfter, TestReflectorHandleWatchStoppedAfter
#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_one_watch_and_lets_go_of_its_stream() {
    for queue in QUEUES {
        let (source, (reply, feed)) = (ScriptedSource::new(), Reply::live());
        source.on_list(list(10, &["a@1"])).on_watch(reply).on_watch(silence());
        let world = World::new(queue, source, |builder| builder);
        let task = world.start();
        world.informer.wait_until_synced().await;
        world.settle().await;
        assert!(feed.send(event("MODIFIED", "a@11")));
        world.settle().await;
        world.stop.cancel();
        task.await.unwrap();
        assert!(!feed.send(event("MODIFIED", "a@12")), "nobody reads any more");
        assert_eq!(
            (world.asked(), world.cached()),
            (vec!["list 500".into(), "watch 10".into()], vec!["a@11".into()])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_heard_at_once_whatever_is_waited_for() {
    let refused = || {
        let source = ScriptedSource::new();
        (0..20).for_each(|_| drop(source.on_list(Reply::refuse(error(Class::Forbidden))).clone()));
        source
    };
    let unanswered = ScriptedSource::new;
    let stalled = || {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]).stall_at(30));
        source
    };
    let not_opened = || {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]));
        source
    };
    let cases: [(&dyn Fn() -> ScriptedSource, u64, Phase); 4] = [
        (&refused, 100, Phase::Waiting),
        (&unanswered, 30, Phase::Listing),
        (&stalled, 30, Phase::Listing),
        (&not_opened, 30, Phase::Watching),
    ];
    for queue in QUEUES {
        for (source, seconds, phase) in cases {
            let world = World::new(queue, source(), |builder| builder);
            let task = world.start();
            world.env.clock.sleep(Duration::from_secs(seconds)).await;
            assert_eq!(world.informer.health().phase, phase);
            let (asked, now) = (world.asked().len(), world.env.clock.now());
            world.stop.cancel();
            task.await.unwrap();
            assert_eq!((world.asked().len(), world.env.clock.now() - now), (asked, Duration::ZERO));
        }
    }
}

// client-go: TestCloseWatchChannelOnError
#[tokio::test(start_paused = true)]
async fn an_error_event_that_tells_no_status_ends_the_watch() {
    for queue in QUEUES {
        let (world, feed) = World::watching(queue, &["a@1"]).await;
        world.source.on_watch(silence());
        feed.send(raw("ERROR", &json!({"kind": "ConfigMap", "metadata": {"name": "no-status"}})));
        world.settle().await;
        assert!(!feed.send(event("MODIFIED", "a@11")), "the stream was let go");
        world.source.until_asked(3).await;
        assert_eq!(world.asked(), ["list 500", "watch 10", "watch 10"]);
        assert!((0.8..1.7).contains(&world.elapsed()));
        assert_eq!((world.cached(), world.reports.lock().len()), (vec!["a@1".to_owned()], 1));
    }
}

// client-go: TestReflectorHandleWatchResultChanClosedBefore, TestReflectorHandleWatchResultChanClosedAfter
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_with_nothing_are_spaced_out_and_lead_to_a_list_in_the_end() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"])).on_watch(Reply::body("")).on_watch(Reply::body(""));
        let (reply, feed) = Reply::live();
        source.on_watch(reply);
        let world = World::started(queue, source);
        world.source.until_asked(4).await;
        assert_eq!(world.asked(), ["list 500", "watch 10", "watch 10", "watch 10"]);
        assert!((2.4..4.8).contains(&world.elapsed()), "0.8 and 1.6, with jitter: {}", world.elapsed());
        world.source.on_list(list(20, &["a@1", "b@15"])).on_watch(silence());
        world.env.clock.sleep(Duration::from_millis(10)).await;
        drop(feed);
        world.source.until_asked(6).await;
        assert_eq!(world.asked()[4..], ["list 500", "watch 20"]);
        assert_eq!(world.reasons(), [(ListReason::First, 1), (ListReason::KeptFailing, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_watch_that_brought_something_is_resumed_at_once() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]));
        (11..31)
            .for_each(|n| drop(source.on_watch(Reply::body(event("MODIFIED", &format!("a@{n}")))).clone()));
        source.on_watch(silence());
        let world = World::started(queue, source);
        world.source.until_asked(22).await;
        assert_eq!((world.asked().pop().unwrap(), world.elapsed()), ("watch 30".to_owned(), 0.0));
        assert_eq!(world.reasons(), [(ListReason::First, 1)]);
    }
}

// client-go: TestReflectorWatchHandler, TestGetExpectedGVKFromObject, TestIsUnsupportedTableObject
#[tokio::test(start_paused = true)]
async fn events_of_other_kinds_and_types_are_skipped_and_the_last_version_counts_even_if_it_is_lower() {
    for queue in QUEUES {
        let (world, feed) = World::watching(queue, &["foo@1", "bar@2"]).await;
        let mut other = parse("rejected@99");
        other["kind"] = "Service".into();
        let mut group = parse("rejected@99");
        group["apiVersion"] = "example.com/v1".into();
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "99"}, "rows": []});
        feed.send(raw("ADDED", &other) + &raw("MODIFIED", &group) + &raw("ADDED", &table));
        feed.send(event("DANCED", "rejected@99"));
        world.settle().await;
        assert_eq!((world.reports.lock().len(), world.informer.last_sync_version()), (4, 10.into()));
        feed.send(event("DELETED", "foo@11") + &event("MODIFIED", "bar@55"));
        feed.send(event("ADDED", "baz@32"));
        world.settle().await;
        assert_eq!(world.cached(), ["bar@55", "baz@32"]);
        assert_eq!(world.informer.last_sync_version(), 32.into());
        assert_eq!(world.informer.indexer().version(), 32.into());
        drop(feed);
        world.source.until_asked(3).await;
        assert_eq!(world.asked()[2], "watch 32");
        assert_eq!(world.reports.lock().len(), 4, "one report for each");
    }
}

// client-go: TestIsUnsupportedTableObject
#[tokio::test(start_paused = true)]
async fn a_table_is_no_list() {
    for queue in QUEUES {
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"}, "rows": []});
        let source = ScriptedSource::new();
        source.on_list(Reply::body(table.to_string())).on_list(list(10, &["a@1"])).on_watch(silence());
        let world = World::started(queue, source);
        world.informer.wait_until_synced().await;
        assert_eq!((world.cached(), world.reports.lock().len()), (vec!["a@1".to_owned()], 1));
        assert!(world.elapsed() >= 0.8);
    }
}

// client-go: TestReflectorListAndWatchWithErrors
#[tokio::test(start_paused = true)]
async fn what_is_cached_stays_while_lists_and_watches_fail() {
    for queue in QUEUES {
        let (world, feed) = World::watching(queue, &["foo@1", "bar@2"]).await;
        feed.send(event("ADDED", "baz@12"));
        world.settle().await;
        world.source.on_watch(Reply::refuse(error(Class::Expired)));
        world
            .source
            .on_list(Reply::refuse(error(Class::Other)))
            .on_list(Reply::refuse(error(Class::Timeout)));
        drop(feed);
        world.source.until_asked(5).await;
        world.settle().await;
        assert_eq!(world.cached(), ["bar@2", "baz@12", "foo@1"]);
        let (since, why) = world.informer.health().degraded.unwrap();
        assert!(why.starts_with("cannot list configmaps: scripted") && since > world.began, "{why}");
        world.source.on_list(list(20, &["foo@1"])).on_watch(silence());
        world.source.until_asked(7).await;
        world.settle().await;
        assert_eq!(world.cached(), ["foo@1"]);
        assert!(world.informer.health().degraded.is_none());
        assert_eq!(world.asked()[2..], ["watch 12", "list 500", "list 500", "list 500", "watch 20"]);
    }
}

// client-go: TestBackoffOnTooManyRequests, TestNoRelistOnTooManyRequests, TestReflectorListAndWatchInitConnBackoff
#[tokio::test(start_paused = true)]
async fn a_busy_server_is_left_alone_longer_each_time_and_never_listed_again() {
    for queue in QUEUES {
        for class in [Class::TooManyRequests, Class::ConnectionRefused] {
            let source = ScriptedSource::new();
            source.on_list(list(10, &["a@1"]));
            for _ in 0..3 {
                source
                    .on_watch(Reply::refuse(error(class)))
                    .on_watch(Reply::body(status(429, "TooManyRequests")));
            }
            source.on_watch(Reply::body(event("MODIFIED", "a@11")).then_hang());
            let world = World::started(queue, source);
            let mut last = 0.0;
            for (asked, base) in (3..).zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6]) {
                world.source.until_asked(asked).await;
                let waited = world.elapsed() - last;
                assert!((base..2.0 * base + 0.01).contains(&waited), "{waited} for {base}");
                last = world.elapsed();
            }
            world.settle().await;
            assert_eq!(world.cached(), ["a@11"]);
            assert!(world.asked()[1..].iter().all(|asked| asked == "watch 10"));
            assert_eq!((world.asked().len(), world.reasons()), (8, vec![(ListReason::First, 1)]));
        }
    }
}

// client-go: TestRetryInternalError (without a time to retry, which is upstream's default too), TestReflectorReplacesStoreOnUnsafeDelete
#[tokio::test(start_paused = true)]
async fn an_error_of_the_servers_own_leads_to_a_list_that_drops_what_vanished() {
    for queue in QUEUES {
        for reason in ["InternalError", "StoreReadError"] {
            let (world, feed) = World::watching(queue, &["foo@1", "corrupt@2"]).await;
            feed.send(event("MODIFIED", "foo@11") + &status(500, reason));
            world.source.on_list(list(20, &["foo@11"])).on_watch(silence());
            world.source.until_asked(4).await;
            world.settle().await;
            assert_eq!(world.cached(), ["foo@11"]);
            assert_eq!(world.asked()[2..], ["list 500", "watch 20"]);
            assert_eq!(world.reasons(), [(ListReason::First, 1), (ListReason::ServerError, 1)]);
        }
    }
}

// client-go: TestNewReflectorWithCustomBackoff
#[tokio::test(start_paused = true)]
async fn the_waits_between_tries_can_be_set() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        for _ in 0..5 {
            source.on_list(Reply::refuse(ApiError::new(Class::Other, "down")));
        }
        source.on_list(list(10, &["a@1"])).on_watch(silence());
        let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
        let world = World::new(queue, source, |builder| builder.backoff(backoff));
        world.start();
        world.source.until_asked(6).await;
        // 10 + 20 + 40 + 80 + 100 ms, and up to as much again by jitter.
        let waited = world.elapsed();
        assert!((0.25..0.51).contains(&waited), "{waited}");
    }
}

// client-go: TestReflectorWatchListPageSize, TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled,
// TestReflectorNotPaginatingNotConsistentReads, TestReflectorResyncWithResourceVersion
#[tokio::test(start_paused = true)]
async fn all_pages_of_all_lists_have_the_size_that_was_set() {
    for queue in QUEUES {
        for size in [4, 500, 0] {
            let source = ScriptedSource::new();
            source
                .on_list(page(10, "t1", &["a@1"]))
                .on_list(page(10, "t2", &["b@2"]))
                .on_list(list(10, &["c@3"]));
            source.on_watch(Reply::body(status(410, "Expired")));
            source.on_list(page(20, "t3", &["a@1"])).on_list(list(20, &["d@4"])).on_watch(silence());
            let world = World::new(queue, source, |builder| builder.page_size(size));
            world.start();
            world.source.until_asked(7).await;
            world.settle().await;
            let expected =
                ["list N", "page N t1", "page N t2", "watch 10", "list N", "page N t3", "watch 20"];
            assert_eq!(world.asked(), expected.map(|line| line.replace('N', &size.to_string())));
            assert_eq!(world.cached(), ["a@1", "d@4"]);
        }
    }
}

// client-go: TestReflectorFullListIfExpired, TestReflectorExpiredExactResourceVersion, TestListPager_List
#[tokio::test(start_paused = true)]
async fn a_list_whose_next_page_has_expired_is_read_whole_at_once() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(page(10, "t1", &["a@1"])).on_list(Reply::refuse(error(Class::Expired)));
        source.on_list(list(12, &["a@11", "b@2"])).on_watch(silence());
        let world = World::started(queue, source);
        world.source.until_asked(4).await;
        world.settle().await;
        assert_eq!(world.asked(), ["list 500", "page 500 t1", "list 0", "watch 12"]);
        assert_eq!((world.cached(), world.elapsed() < 0.01), (vec!["a@11".into(), "b@2".into()], true));
        // Any other error of a later page: from the first one, after a while.
        let source = ScriptedSource::new();
        source.on_list(page(10, "t1", &["a@1"])).on_list(Reply::refuse(error(Class::Other)));
        source.on_list(page(11, "t2", &["c@1"])).on_list(list(11, &["d@2"])).on_watch(silence());
        let world = World::started(queue, source);
        world.informer.wait_until_synced().await;
        assert_eq!(world.asked()[..4], ["list 500", "page 500 t1", "list 500", "page 500 t2"]);
        assert_eq!((world.cached(), world.elapsed() >= 0.8), (vec!["c@1".into(), "d@2".into()], true));
    }
}

// client-go: TestReflectorFullListIfTooLarge
#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_does_not_know_yet_leads_to_a_list() {
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    for queue in QUEUES {
        for told in [
            json!({"kind": "Status", "code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 5"}),
            json!({"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": [cause]}}),
            json!({"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}),
        ] {
            let refusal =
                ApiError::from_response(http::StatusCode::GATEWAY_TIMEOUT, None, told.to_string().as_bytes());
            for reply in [Reply::refuse(refusal), Reply::body(raw("ERROR", &told))] {
                let source = ScriptedSource::new();
                source
                    .on_list(list(10, &["a@1"]))
                    .on_watch(reply)
                    .on_list(list(5, &["a@1"]))
                    .on_watch(silence());
                let world = World::started(queue, source);
                world.source.until_asked(4).await;
                assert_eq!(world.asked(), ["list 500", "watch 10", "list 500", "watch 5"]);
                assert_eq!(world.reasons(), [(ListReason::First, 1), (ListReason::VersionTooLarge, 1)]);
            }
        }
    }
}

// client-go: TestReflectorResourceVersionUpdate
#[tokio::test(start_paused = true)]
async fn the_version_moves_with_every_event_and_can_be_read() {
    for queue in QUEUES {
        let (world, feed) = World::watching(queue, &["a@1"]).await;
        assert_eq!(world.informer.last_sync_version(), 10.into());
        let events = [
            (event("ADDED", "b@11"), 11),
            (event("MODIFIED", "b@12"), 12),
            (bookmark(17, false), 17),
            (event("DELETED", "b@20"), 20),
        ];
        for (event, version) in events {
            feed.send(event);
            world.settle().await;
            let version = version.into();
            assert_eq!(world.informer.last_sync_version(), version);
            assert_eq!(
                (world.informer.health().version, world.informer.indexer().version()),
                (version.clone(), version)
            );
        }
    }
}

// client-go: TestWatchTimeout
#[tokio::test(start_paused = true)]
async fn watches_last_for_the_time_that_was_set_but_not_less_than_five_minutes() {
    for (set, range) in [(0, 300..600), (10, 300..600), (300, 300..600), (3600, 3600..7200)] {
        let source = ScriptedSource::new();
        source.on_list(list(10, &[]));
        for version in 11..31 {
            source.on_watch(Reply::body(bookmark(version, false)));
        }
        let world = World::new(QueueKind::Ordered, source, |builder| {
            builder.min_watch_timeout(Duration::from_secs(set))
        });
        world.start();
        world.source.until_asked(22).await;
        let mut lengths: Vec<_> = world.source.asked()[1..]
            .iter()
            .map(|asked| match asked {
                Asked::Watch(options) => options.timeout.as_secs(),
                Asked::List(options) => panic!("{options:?}"),
            })
            .collect();
        assert!(lengths.iter().all(|length| range.contains(length)), "{lengths:?} for {set}");
        lengths.dedup();
        assert!(lengths.len() > 10, "not all at the same time");
    }
}

/// A transform that counts its calls by name and version.
fn counting() -> (Transform, Arc<Mutex<BTreeMap<String, u32>>>) {
    let calls = Arc::new(Mutex::new(BTreeMap::new()));
    let count = calls.clone();
    let transform = Transform::value(move |json| -> Result<Value, &str> {
        let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default().to_owned();
        *count.lock().entry(format!("{}@{}", text("name"), text("resourceVersion"))).or_default() += 1;
        Ok(json)
    });
    (transform, calls)
}

// client-go: TestReflectorRespectStoreTransformer
#[tokio::test(start_paused = true)]
async fn each_object_of_a_streamed_list_is_transformed_once() {
    for queue in QUEUES {
        let ((transform, calls), source) = (counting(), ScriptedSource::new().streaming());
        let (reply, feed) = Reply::live();
        source.on_watch(reply);
        let world = World::new(queue, source, |builder| builder.transform(transform));
        world.start();
        feed.send(
            event("ADDED", "a@1") + &event("ADDED", "b@2") + &bookmark(10, true) + &event("ADDED", "c@11"),
        );
        world.informer.wait_until_synced().await;
        world.settle().await;
        assert_eq!(world.cached(), ["a@1", "b@2", "c@11"]);
        let calls: Vec<_> = calls.lock().iter().map(|(item, count)| format!("{item} {count}")).collect();
        assert_eq!(calls, ["a@1 1", "b@2 1", "c@11 1"]);
    }
}

// client-go: TestStoreResourceVersionWithNonMetaTransform
#[tokio::test(start_paused = true)]
async fn a_transform_cannot_take_the_version_away_and_the_store_follows_every_event() {
    for queue in QUEUES {
        let transform = Transform::value(|mut json| -> Result<Value, &str> {
            json["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            Ok(json)
        });
        let (source, (reply, feed)) = (ScriptedSource::new(), Reply::live());
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let world = World::new(queue, source, |builder| builder.transform(transform));
        world.start();
        world.informer.wait_until_synced().await;
        world.settle().await;
        assert_eq!(world.informer.indexer().version(), 10.into());
        feed.send(event("ADDED", "b@11") + &event("MODIFIED", "a@12"));
        world.settle().await;
        assert_eq!(
            (world.cached(), world.informer.indexer().version()),
            (vec!["a@12".into(), "b@11".into()], 12.into())
        );
        feed.send(bookmark(15, false));
        world.settle().await;
        assert_eq!(world.informer.indexer().version(), 15.into());
    }
}

// client-go: TestWatchListResourceVersion, TestWatchList, no bookmark
#[tokio::test(start_paused = true)]
async fn a_streamed_list_has_no_version_before_its_end() {
    for queue in QUEUES {
        let (source, (reply, feed)) = (ScriptedSource::new().streaming(), Reply::live());
        source.on_watch(reply);
        let world = World::started(queue, source);
        for chunk in
            [event("ADDED", "a@1"), event("ADDED", "b@7"), bookmark(8, false), event("MODIFIED", "a@9")]
        {
            feed.send(chunk);
            world.settle().await;
            assert!(!world.informer.has_synced() && world.informer.last_sync_version().is_unset());
        }
        feed.send(bookmark(10, true));
        world.settle().await;
        assert_eq!((world.informer.has_synced(), world.informer.last_sync_version()), (true, 10.into()));
        assert_eq!(world.asked(), ["stream"]);
    }
}

// client-go: TestWatchList, 429 and connection refused; a watcher that stops before it has synced
#[tokio::test(start_paused = true)]
async fn a_streamed_list_begins_anew_with_nothing_of_its_broken_forerunner() {
    for queue in QUEUES {
        let source = ScriptedSource::new().streaming();
        source.on_watch(Reply::refuse(error(Class::TooManyRequests)));
        source.on_watch(Reply::body(event("ADDED", "old@1") + &status(429, "TooManyRequests")));
        source.on_watch(Reply::body(event("ADDED", "old@1") + &bookmark(5, false)));
        source.on_watch(Reply::body(event("ADDED", "new@2") + &bookmark(10, true)).then_hang());
        let world = World::started(queue, source);
        world.informer.wait_until_synced().await;
        world.settle().await;
        assert_eq!((world.asked(), world.cached()), (vec!["stream".to_owned(); 4], vec!["new@2".to_owned()]));
        assert!(world.elapsed() >= 0.8 + 1.6 + 3.2);
        assert_eq!(world.reasons(), [(ListReason::First, 1)]);
    }
}

// client-go: TestWatchList, an established watcher that expires
#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_after_a_streamed_list_is_followed_by_another_streamed_list() {
    for queue in QUEUES {
        let source = ScriptedSource::new().streaming();
        let list =
            event("ADDED", "a@1") + &event("ADDED", "b@2") + &bookmark(10, true) + &event("MODIFIED", "a@11");
        source.on_watch(Reply::body(list)).on_watch(Reply::refuse(error(Class::Expired)));
        source.on_watch(Reply::body(event("ADDED", "a@11") + &bookmark(20, true)).then_hang());
        let world = World::started(queue, source);
        world.source.until_asked(3).await;
        assert_eq!(world.asked(), ["stream", "watch 11", "stream"]);
        world.settle().await;
        assert_eq!(world.cached(), ["a@11"]);
        assert_eq!(world.reasons(), [(ListReason::First, 1), (ListReason::Expired, 1)]);
    }
}

// client-go: TestNewReflectorWithDisablementWatchList, TestToListWatcherWithWatchListSemantics
#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_only_where_both_the_source_and_the_user_want_it() {
    for queue in QUEUES {
        for (source, mode, first) in [
            (ScriptedSource::new().streaming(), ListMode::Stream, "stream"),
            (ScriptedSource::new().streaming(), ListMode::Paged, "list 500"),
            (ScriptedSource::new(), ListMode::Stream, "list 500"),
            (ScriptedSource::new(), ListMode::Paged, "list 500"),
        ] {
            let world = World::new(queue, source, |builder| builder.list_mode(mode));
            world.start();
            world.source.until_asked(1).await;
            assert_eq!(world.asked(), [first]);
        }
    }
}

// client-go: TestReflectorListAndWatch
#[tokio::test(start_paused = true)]
async fn lists_and_watches_ask_for_this_and_nothing_else() {
    let source = ScriptedSource::new();
    source.on_list(list(10, &["a@1"])).on_watch(Reply::body(event("ADDED", "b@11")).then_hang());
    let world = World::started(QueueKind::Ordered, source);
    world.source.until_asked(2).await;
    world.settle().await;
    assert_eq!(world.source.asked()[0], Asked::List(ListOptions { limit: 500, ..ListOptions::default() }));
    let Asked::Watch(options) = &world.source.asked()[1] else { panic!() };
    assert_eq!((&options.version, options.bookmarks, options.initial_events), (&10.into(), true, false));
    assert_eq!(world.cached(), ["a@1", "b@11"]);
}
