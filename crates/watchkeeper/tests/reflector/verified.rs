//! Caches are compared with the server, and mended where it has lost events. On both queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::on_change;
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::{ListReason, VerifyError};
use watchkeeper::source::{ByteStream, ListOptions, ListerWatcher, Reply, VersionMatch, WatchOptions};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Env, SharedInformer};

use crate::common::{Log, QUEUES, ScriptedInformer, cached, event, list, settle};
use crate::error;

const PERIOD: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);

/// The changes of a short life: a name, its uid, and whether it exists afterwards. The first has version 11.
const CHANGES: [(&str, &str, bool); 8] = [
    ("a", "1", true),
    ("b", "2", true),
    ("a", "1", true),
    ("b", "2", false),
    ("b", "3", true),
    ("c", "4", true),
    ("a", "1", false),
    ("c", "4", true),
];
const FIRST: u64 = 11;

/// A server that does not send one of its events.
#[derive(Clone)]
struct Lossy(Arc<Shared>);

struct Shared {
    env: Env,
    /// The number of changes that have happened.
    happened: watch::Sender<usize>,
    lost: Option<usize>,
    has_bookmarks: bool,
    /// Whether states other than the newest are gone.
    is_compacted: bool,
    asked: Mutex<Vec<ListOptions>>,
}

impl Lossy {
    fn new(env: &Env, lost: Option<usize>, has_bookmarks: bool, is_compacted: bool) -> Self {
        let (happened, asked) = (watch::Sender::new(0), Mutex::default());
        let env = env.clone();
        Self(Arc::new(Shared { env, happened, lost, has_bookmarks, is_compacted, asked }))
    }

    fn version(&self) -> u64 {
        FIRST - 1 + *self.0.happened.borrow() as u64
    }

    fn state(&self, version: u64) -> BTreeMap<&'static str, Value> {
        let mut objects = BTreeMap::new();
        for (at, (name, uid, exists)) in (FIRST..=version).zip(CHANGES) {
            objects.remove(name);
            if exists {
                objects.insert(name, object(name, uid, at));
            }
        }
        objects
    }

    fn shown(&self) -> Vec<String> {
        let show = |object: &Value| {
            let of = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
            format!("{}@{}", of("name"), of("resourceVersion"))
        };
        self.state(self.version()).values().map(show).collect()
    }

    fn next(&self) {
        self.0.happened.send_modify(|happened| *happened += 1);
    }
}

fn object(name: &str, uid: &str, version: u64) -> Value {
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn line(kind: &str, object: &Value) -> Result<Bytes, ApiError> {
    Ok(format!("{}\n", json!({"type": kind, "object": object})).into())
}

impl ListerWatcher for Lossy {
    async fn list(&self, options: &ListOptions) -> Result<ByteStream, ApiError> {
        self.0.asked.lock().push(options.clone());
        let version = options.version.as_number();
        if version.is_some() && self.0.is_compacted {
            return Err(error(Class::Expired));
        }
        let version = version.unwrap_or_else(|| self.version());
        let items: Vec<_> = self.state(version).into_values().collect();
        let body = json!({"items": items, "metadata": {"resourceVersion": version.to_string()}}).to_string();
        Ok(Box::pin(futures::stream::iter([Ok(body.into())])))
    }

    async fn watch(&self, options: &WatchOptions) -> Result<ByteStream, ApiError> {
        let (server, happened) = (self.clone(), self.0.happened.subscribe());
        let sent = options.version.as_number().unwrap() + 1 - FIRST;
        let events = futures::stream::unfold(
            (server, happened, sent as usize),
            |(server, mut happened, sent)| async move {
                let clock = server.0.env.clock.clone();
                loop {
                    if *happened.borrow_and_update() > sent {
                        let ((name, uid, exists), version) = (CHANGES[sent], FIRST + sent as u64);
                        let kind = if exists { "MODIFIED" } else { "DELETED" };
                        let event =
                            (server.0.lost != Some(sent)).then(|| line(kind, &object(name, uid, version)));
                        return Some((event, (server, happened, sent + 1)));
                    }
                    if clock.timeout(MINUTE, happened.changed()).await.is_err() {
                        let version = server.version().to_string();
                        let bookmark = json!({"metadata": {"resourceVersion": version}});
                        let bookmark = server.0.has_bookmarks.then(|| line("BOOKMARK", &bookmark));
                        return Some((bookmark, (server, happened, sent)));
                    }
                }
            },
        );
        Ok(Box::pin(events.filter_map(std::future::ready)))
    }

    fn streams_lists(&self) -> bool {
        false
    }
}

struct Run {
    env: Env,
    server: Lossy,
    informer: SharedInformer<k8s_openapi::api::core::v1::ConfigMap>,
    log: Log,
    stop: CancellationToken,
}

impl Run {
    /// Starts an informer on an empty server.
    async fn start(queue: QueueKind, period: Duration, server: impl FnOnce(&Env) -> Lossy) -> Self {
        let (env, log, stop) = (Env::simulated(1), Log::default(), CancellationToken::new());
        let server = server(&env);
        let informer =
            SharedInformer::builder(server.clone(), &env).queue(queue).verify_every(period).build();
        informer.add_handler(on_change(log.handler())).unwrap();
        let (running, token) = (informer.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        informer.wait_until_synced().await;
        Self { env, server, informer, log, stop }
    }

    /// Lets all changes happen.
    async fn live(&self) {
        for _ in CHANGES {
            self.server.next();
            self.env.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    fn cached(&self) -> Vec<String> {
        cached(self.informer.indexer())
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_event_is_lost_the_cache_is_right_again_within_a_period() {
    let mut mended = 0;
    for queue in QUEUES {
        for (has_bookmarks, is_compacted) in [(true, false), (true, true), (false, false)] {
            for lost in 0..CHANGES.len() {
                let server = |env: &Env| Lossy::new(env, Some(lost), has_bookmarks, is_compacted);
                let run = Run::start(queue, PERIOD, server).await;
                run.live().await;
                let was_wrong = run.cached() != run.server.shown();
                run.env.clock.sleep(PERIOD + 2 * MINUTE).await;
                assert_eq!(run.cached(), run.server.shown(), "event {lost}");
                let health = run.informer.health();
                let relists = health.lists_by_reason.get(&ListReason::Differs).copied().unwrap_or_default();
                assert_eq!(
                    (relists, health.differences),
                    (u64::from(was_wrong), u64::from(was_wrong)),
                    "event {lost}"
                );
                assert_eq!(run.env.reporter.errors(), u64::from(was_wrong));
                mended += usize::from(was_wrong);
                // What a handler heard leads to the same state.
                let mut known = BTreeMap::new();
                for heard in run.log.take() {
                    let (name, is_deleted) = match heard.strip_prefix("- ") {
                        Some(deleted) => (deleted.split('@').next().unwrap().to_owned(), true),
                        None => {
                            let added = heard.trim_start_matches("+ ").trim_start_matches("= ");
                            (added.split(['@', ' ']).next().unwrap().to_owned(), false)
                        }
                    };
                    known.insert(name, is_deleted);
                }
                known.retain(|_, is_deleted| !*is_deleted);
                let names: Vec<_> = run.server.state(run.server.version()).into_keys().collect();
                assert!(known.keys().eq(names.iter()), "event {lost}: {known:?}");
                run.stop.cancel();
            }
        }
    }
    assert!(mended >= 2 * 3 * 3, "{mended}");
}

#[tokio::test(start_paused = true)]
async fn a_right_cache_is_compared_at_its_own_version_and_not_listed_again() {
    for queue in QUEUES {
        let run = Run::start(queue, PERIOD, |env| Lossy::new(env, None, true, false)).await;
        run.live().await;
        run.env.clock.sleep(10 * PERIOD).await;
        let mut asked = run.server.0.asked.lock().clone();
        asked.retain(|options| options.metadata_only);
        assert!((10..=12).contains(&asked.len()), "{asked:?}");
        for options in asked {
            assert_eq!(options.version_match, VersionMatch::Exact);
            assert_eq!(options.version.as_number(), Some(run.server.version()));
        }
        let health = run.informer.health();
        assert_eq!((health.lists, health.differences, run.env.reporter.errors()), (1, 0, 0));
        assert!(run.env.clock.now() - health.verified.unwrap() <= PERIOD);
        run.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_nothing_is_compared_until_it_is_asked_for() {
    for queue in QUEUES {
        let last = CHANGES.len() - 1;
        let run = Run::start(queue, Duration::ZERO, |env| Lossy::new(env, Some(last), false, false)).await;
        run.live().await;
        run.env.clock.sleep(10 * PERIOD).await;
        assert!(run.server.0.asked.lock().iter().all(|options| !options.metadata_only));
        assert_ne!(run.cached(), run.server.shown());
        let verified = run.informer.verify().await.unwrap();
        assert_eq!((verified.differences, verified.version), (1, run.server.version().into()));
        assert_eq!(run.cached(), run.server.shown(), "mended when it returns");
        let before = run.env.clock.now();
        assert_eq!(run.informer.verify().await.unwrap().differences, 0);
        assert_eq!(run.env.clock.now(), before, "what is equal is fresh");
        run.stop.cancel();
        settle(&run.env).await;
        assert_eq!(run.informer.verify().await, Err(VerifyError::Stopped("configmaps".to_owned())));
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_merely_late_is_waited_for() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        scripted.source.on_list(list(13, &["a@11", "c@13"]));
        let (informer, clock) = (scripted.informer.clone(), scripted.env.clock.clone());
        let verify = tokio::spawn(async move { informer.verify().await });
        clock.sleep(Duration::from_secs(5)).await;
        for late in [("MODIFIED", "a@11"), ("DELETED", "b@12"), ("ADDED", "c@13")] {
            feed.send(event(late.0, late.1));
        }
        let verified = verify.await.unwrap().unwrap();
        assert_eq!(
            (verified.differences, scripted.cached()),
            (0, vec!["a@11".to_owned(), "c@13".to_owned()])
        );
        assert_eq!((scripted.informer.health().lists, scripted.env.reporter.errors()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_list_does_not_mend_is_reported_once() {
    for queue in QUEUES {
        let (scripted, _feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        // An item without its kind's name is skipped by lists, and listed by the server.
        let odd =
            r#"{"kind":"Odd","apiVersion":"v1","metadata":{"name":"odd","uid":"o","resourceVersion":"9"}}"#;
        let body = format!(r#"{{"items":[{odd}],"metadata":{{"resourceVersion":"10"}}}}"#);
        scripted.source.on_list(Reply::body(body.clone())).on_list(Reply::body(body.clone()));
        scripted.source.on_watch(crate::common::silence());
        assert_eq!(scripted.informer.verify().await.unwrap().differences, 2, "a does not exist, odd does");
        let (lists, reports) = (scripted.informer.health().lists, scripted.env.reporter.errors());
        for _ in 0..3 {
            scripted.source.on_list(Reply::body(body.clone()));
            assert_eq!(scripted.informer.verify().await.unwrap().differences, 1);
        }
        assert_eq!((scripted.informer.health().lists, scripted.env.reporter.errors()), (lists, reports));
        assert_eq!(scripted.informer.health().differences, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_the_answer_to_the_request_and_the_watch_goes_on() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        scripted.source.on_list(Reply::refuse(error(Class::Forbidden)));
        let failed = scripted.informer.verify().await.unwrap_err();
        assert_eq!(failed.to_string(), "cannot verify configmaps: scripted");
        feed.send(event("ADDED", "b@11"));
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["a@1", "b@11"]);
    }
}
