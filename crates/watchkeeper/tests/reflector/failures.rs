//! Failing lists and watches: health, the error hook, and the load on a server that is down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::reflector::ListReason;
use watchkeeper::source::{ByteStream, ListOptions, ListerWatcher, Reply, ScriptedSource, WatchOptions};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Env, SharedInformer};

use crate::{ScriptedReflector, bookmark, error, event, list, object};

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
        // A list in between does not repair the watch.
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
        // The next problem has its own beginning.
        let end = scripted.env.clock.now();
        scripted.source.on_watch(Reply::refuse(error(Class::ConnectionRefused)));
        feed.fail(error(Class::ConnectionLost));
        scripted.settle().await;
        assert!(degraded_since().unwrap() >= end);
    }
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

/// A server of one object, which is down at first.
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
    // All start at once; then jitter spreads them, and after a few minutes each retries every 30 to 60 seconds.
    let later: Vec<_> = tries.range(180..600).map(|(_, count)| *count).collect();
    assert!(later.iter().all(|count| *count <= 20), "{later:?}");
    assert!(later.iter().sum::<u64>() <= 200 * 420 / 30, "{later:?}");
    assert_eq!(flaky.0.lists.load(Ordering::Relaxed), 200, "one list each");
    stop.cancel();
}
