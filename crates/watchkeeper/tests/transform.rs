//! Every object is transformed exactly once on its way into a cache, and none is lost on failure. On both queues, on
//! the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::object::Transform;
use watchkeeper::queue::QueueKind;
use watchkeeper::source::{Feed, Reply, ScriptedSource};
use watchkeeper::{Client, Env, ObjectName, SharedInformer, SharedInformerFactory};

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

/// `name@version`.
fn config_map(item: &str) -> Value {
    let (name, version) = item.split_once('@').unwrap();
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version}, "data": {"big": "x", "small": "y"}})
}

fn list(version: u64, items: &[&str]) -> Reply {
    let items: Vec<_> = items.iter().map(|item| config_map(item)).collect();
    Reply::body(json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}).to_string())
}

fn event(kind: &str, item: &str) -> String {
    format!("{}\n", json!({"type": kind, "object": config_map(item)}))
}

fn gone() -> String {
    let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

type Lines = Arc<Mutex<Vec<String>>>;

struct TransformingInformer {
    env: Env,
    source: ScriptedSource,
    informer: SharedInformer<ConfigMap>,
    told: Lines,
    reports: Lines,
}

impl TransformingInformer {
    /// A running informer that has listed `items` at version 10 and watches.
    async fn watching(queue: QueueKind, resync: u64, transform: &Transform, items: &[&str]) -> (Self, Feed) {
        let (env, source) = (Env::simulated(1), ScriptedSource::new());
        let (told, reports) = (Lines::default(), Lines::default());
        let into = reports.clone();
        env.reporter
            .add_hook(move |report| into.lock().push(format!("{} {}", report.subject, report.incident)));
        let informer = SharedInformer::builder(source.clone(), &env)
            .queue(queue)
            .resync(Duration::from_secs(resync))
            .transform(transform.clone())
            .build();
        let into = told.clone();
        informer.add_handler(on_change(move |change| into.lock().push(line(&change)))).unwrap();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, items)).on_watch(reply);
        let running = informer.clone();
        tokio::spawn(async move { running.run(CancellationToken::new()).await });
        let transforming = Self { env, source, informer, told, reports };
        let (hour, synced) = (Duration::from_secs(3600), transforming.informer.wait_until_synced());
        transforming.env.clock.timeout(hour, synced).await.expect("waited for an hour");
        transforming.settle().await;
        (transforming, feed)
    }

    /// Waits until `count` requests have come, for an hour at most: on the paused clock, until nothing else can happen.
    async fn until_asked(&self, count: usize) {
        let hour = Duration::from_secs(3600);
        self.env.clock.timeout(hour, self.source.until_asked(count)).await.expect("waited for an hour");
    }

    /// Lets everything that is ready happen.
    async fn settle(&self) {
        self.env.clock.sleep(Duration::from_millis(1)).await;
    }

    fn told(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.told.lock());
        told.sort();
        told
    }

    fn cached(&self) -> Vec<String> {
        let snapshot = self.informer.indexer().snapshot();
        let mut all: Vec<_> = snapshot.iter().map(|o| format!("{}@{}", o.name(), o.version())).collect();
        all.sort();
        all
    }

    fn data(&self, name: &str) -> BTreeMap<String, String> {
        let object = self.informer.lister().get(&ObjectName::namespaced("ns", name)).unwrap();
        object.data.clone().unwrap_or_default()
    }
}

/// A change, with how often its objects carry the mark of the transform.
fn line(change: &Change<'_, ConfigMap>) -> String {
    let marked = |object: &watchkeeper::Object<ConfigMap>| {
        let marks = object.get().unwrap().data.as_ref().and_then(|data| data.get("marks").cloned());
        format!("{}@{}{}", object.name(), object.version(), marks.unwrap_or_default())
    };
    match change {
        Change::Added { object, .. } => format!("+ {}", marked(object)),
        Change::Updated { old, new } => format!("{} -> {}", marked(old), marked(new)),
        Change::Deleted(deleted) => {
            let tombstone = if deleted.is_tombstone() { " tombstone" } else { "" };
            format!("- {}{tombstone}", marked(deleted.last_known().unwrap()))
        }
    }
}

/// Puts one mark more on each object, and counts its calls by object and version.
fn marking() -> (Transform, Arc<Mutex<BTreeMap<String, u32>>>) {
    let calls = Arc::new(Mutex::new(BTreeMap::new()));
    let count = calls.clone();
    let transform = Transform::value(move |mut json| -> Result<Value, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &json["metadata"];
        let item = format!("{}@{}", text(&metadata["name"]), text(&metadata["resourceVersion"]));
        *count.lock().entry(item).or_default() += 1;
        json["data"]["marks"] = (text(&json["data"]["marks"]) + "!").into();
        Ok(json)
    });
    (transform, calls)
}

// client-go: TestTransformingInformer, TestRealFIFO_transformer, TestDeltaFIFO_transformer
#[tokio::test(start_paused = true)]
async fn each_state_from_the_server_is_transformed_once_and_nothing_from_the_cache_again() {
    for queue in QUEUES {
        let (transform, calls) = marking();
        let (transforming, feed) =
            TransformingInformer::watching(queue, 10, &transform, &["a@1", "b@2", "c@3"]).await;
        assert_eq!(transforming.told(), ["+ a@1!", "+ b@2!", "+ c@3!"]);
        feed.send(event("ADDED", "d@11") + &event("MODIFIED", "a@12") + &event("DELETED", "b@13"));
        transforming.settle().await;
        assert_eq!(transforming.told(), ["+ d@11!", "- b@13!", "a@1! -> a@12!"]);
        transforming.env.clock.sleep(Duration::from_secs(25)).await;
        let resynced = ["a@12! -> a@12!", "c@3! -> c@3!", "d@11! -> d@11!"];
        assert_eq!(transforming.told(), resynced.map(|line| [line; 2]).as_flattened());
        // A relist: `a` comes again as it was, `c` anew, `d` is gone.
        transforming.source.on_list(list(20, &["a@12", "c@15"])).on_watch(Reply::body("").then_hang());
        feed.send(gone());
        transforming.until_asked(4).await;
        transforming.settle().await;
        assert_eq!(transforming.told(), ["- d@11! tombstone", "a@12! -> a@12!", "c@3! -> c@15!"]);
        let calls: Vec<_> = calls.lock().iter().map(|(item, count)| format!("{item} {count}")).collect();
        assert_eq!(calls, ["a@1 1", "a@12 2", "b@13 1", "b@2 1", "c@15 1", "c@3 1", "d@11 1"]);
        assert_eq!((transforming.env.reporter.errors(), transform.failures()), (0, 0));
    }
}

// client-go: TestTransformingInformerRace
#[tokio::test(start_paused = true)]
async fn resyncs_amid_updates_never_transform_what_is_cached() {
    for queue in QUEUES {
        let (transform, _calls) = marking();
        let (transforming, feed) =
            TransformingInformer::watching(queue, 1, &transform, &["a@1", "b@2"]).await;
        for version in 11..60 {
            feed.send(event("MODIFIED", &format!("a@{version}")));
            // Now and then the event is read at the moment of a resync, before or after it.
            transforming.env.clock.sleep(Duration::from_millis([1, 250, 499, 250][version % 4])).await;
        }
        let told = transforming.told();
        assert!(told.iter().any(|line| line == "b@2! -> b@2!") && told.len() > 60, "{told:?}");
        assert!(told.iter().all(|line| !line.contains("!!")), "{told:?}");
        assert_eq!(told.iter().filter(|line| line.contains("-> a@59!")).count(), 1);
    }
}

// client-go: TestSharedInformerTransformer
#[tokio::test(start_paused = true)]
async fn a_function_may_change_the_name_and_with_it_the_key() {
    for queue in QUEUES {
        let transform = Transform::value(|mut json| -> Result<Value, &str> {
            let name = json["metadata"]["name"].as_str().ok_or("no name")?;
            json["metadata"]["name"] = format!("was-{name}").into();
            Ok(json)
        });
        let (transforming, feed) =
            TransformingInformer::watching(queue, 0, &transform, &["a@1", "b@2"]).await;
        assert_eq!(transforming.told(), ["+ was-a@1", "+ was-b@2"]);
        assert_eq!(transforming.cached(), ["was-a@1", "was-b@2"]);
        assert!(transforming.informer.lister().get(&ObjectName::namespaced("ns", "was-a")).is_ok());
        feed.send(event("DELETED", "b@11"));
        transforming.settle().await;
        assert_eq!(
            (transforming.told(), transforming.cached()),
            (vec!["- was-b@11".to_owned()], vec!["was-a@1".to_owned()])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn paths_thin_objects_out_and_leave_them_decodable() {
    for queue in QUEUES {
        let transform = Transform::drop_paths(["data.big"]).unwrap();
        let (transforming, feed) = TransformingInformer::watching(queue, 0, &transform, &["a@1"]).await;
        feed.send(event("ADDED", "b@11"));
        transforming.settle().await;
        for name in ["a", "b"] {
            assert_eq!(transforming.data(name).into_keys().collect::<Vec<_>>(), ["small"]);
        }
        assert_eq!(transforming.informer.indexer().version(), 11.into());
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_transformed_is_named_and_heals_with_its_next_event() {
    for queue in QUEUES {
        for panics in [false, true] {
            let broken = Arc::new(AtomicBool::new(true));
            let is_broken = broken.clone();
            let transform = Transform::value(move |json| {
                if json["metadata"]["name"] != "b" || !is_broken.load(Ordering::Relaxed) {
                    return Ok(json);
                }
                assert!(!panics, "no b please");
                Err("no b please")
            });
            let (transforming, feed) =
                TransformingInformer::watching(queue, 0, &transform, &["a@1", "b@2", "c@3"]).await;
            assert_eq!(transforming.cached(), ["a@1", "c@3"]);
            let why = if panics { "the function panicked: no b please" } else { "no b please" };
            let report = |place: &str| format!("configmaps skipped {place}: cannot transform ns/b: {why}");
            assert_eq!(*transforming.reports.lock(), [report("item 1")]);
            // Still broken: reported each time, and the others arrive.
            feed.send(event("MODIFIED", "b@11") + &event("MODIFIED", "a@12"));
            transforming.settle().await;
            assert_eq!(transforming.cached(), ["a@12", "c@3"]);
            assert_eq!(*transforming.reports.lock(), [report("item 1"), report("a Modified event")]);
            // The next event brings it in, although nobody has seen it be added.
            broken.store(false, Ordering::Relaxed);
            transforming.told();
            feed.send(event("MODIFIED", "b@13"));
            transforming.settle().await;
            assert_eq!((transforming.told(), transforming.cached().len()), (vec!["+ b@13".to_owned()], 3));
            // What is cached stays as it is while its newer states fail.
            broken.store(true, Ordering::Relaxed);
            feed.send(event("MODIFIED", "b@14"));
            transforming.settle().await;
            assert_eq!(transforming.cached(), ["a@12", "b@13", "c@3"]);
            broken.store(false, Ordering::Relaxed);
            feed.send(event("MODIFIED", "b@15"));
            transforming.settle().await;
            assert_eq!(transforming.told(), ["b@13 -> b@15"]);
            assert_eq!((transforming.env.reporter.errors(), transform.failures()), (3, 3));
            assert_eq!(transforming.env.reporter.panics(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_factory_transforms_all_kinds_or_a_kind_in_its_own_way() {
    let env = Env::simulated(1);
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            std::future::pending::<()>().await;
        }
        let item = json!({"metadata": {"name": "a", "namespace": "ns", "annotations": {"n": "v"}}, "data": {"k": "dg=="}});
        let body = json!({"items": [item], "metadata": {"resourceVersion": "1"}}).to_string();
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(body.into_bytes())))
    });
    let factory = SharedInformerFactory::builder(&Client::from_kube(
        kube_client::Client::new(service, "default"),
        &env,
    ))
    .transform(Transform::drop_paths(["metadata.annotations"]).unwrap())
    .transform_for::<Secret>(Transform::keep_paths(["metadata.annotations"]).unwrap())
    .build();
    let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.informer::<Secret>());
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    let key = ObjectName::namespaced("ns", "a");
    let map = maps.lister().get(&key).unwrap();
    assert!(map.data.is_some() && map.metadata.annotations.is_none());
    let secret = secrets.lister().get(&key).unwrap();
    assert!(secret.data.is_none() && secret.metadata.annotations.is_some());
    stop.cancel();
    factory.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_transform_fails_keeps_its_old_state_through_a_relist_and_goes_when_it_is_deleted() {
    for queue in QUEUES {
        let transform =
            Transform::value(|value: Value| match value["metadata"]["resourceVersion"].as_str() {
                Some("15" | "21") => Err("not this state"),
                _ => Ok(value),
            });
        let (transforming, feed) =
            TransformingInformer::watching(queue, 0, &transform, &["a@1", "b@2"]).await;
        transforming.told();
        transforming.source.on_list(list(20, &["a@15", "b@2"]));
        let (reply, next) = Reply::live();
        transforming.source.on_watch(reply);
        feed.send(gone());
        transforming.until_asked(4).await;
        transforming.settle().await;
        assert_eq!(transforming.cached(), ["a@1", "b@2"]);
        assert!(transforming.told().iter().all(|line| !line.starts_with('-')), "nobody is gone");
        next.send(event("DELETED", "a@21"));
        transforming.settle().await;
        assert_eq!(transforming.cached(), ["b@2"]);
        assert_eq!((transforming.told().len(), transform.failures()), (1, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_treats_failing_transforms_as_a_paged_one_does() {
    for queue in QUEUES {
        let transform =
            Transform::value(|value: Value| match value["metadata"]["resourceVersion"].as_str() {
                Some("15" | "16") => Err("not this state"),
                _ => Ok(value),
            });
        let (env, source) = (Env::simulated(1), ScriptedSource::new().streaming());
        let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env)
            .queue(queue)
            .transform(transform)
            .build();
        let running = informer.clone();
        tokio::spawn(async move { running.run(CancellationToken::new()).await });
        let end = |version: u64| {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
            json!({"type": "BOOKMARK", "object": {"metadata": metadata}}).to_string()
        };
        let (reply, feed) = Reply::live();
        source.on_watch(reply);
        feed.send(event("ADDED", "a@1") + &event("ADDED", "b@2") + &event("ADDED", "c@3"));
        // A delete in a form that cannot be kept is a delete, and not yet a state.
        feed.send(event("DELETED", "c@15"));
        env.clock.sleep(Duration::from_millis(1)).await;
        assert!(!informer.has_synced());
        feed.send(end(20));
        let hour = Duration::from_secs(3600);
        env.clock.timeout(hour, informer.wait_until_synced()).await.expect("waited for an hour");
        let cached = || {
            let snapshot = informer.indexer().snapshot();
            let mut all: Vec<_> = snapshot.iter().map(|o| format!("{}@{}", o.name(), o.version())).collect();
            all.sort();
            all
        };
        assert_eq!(cached(), ["a@1", "b@2"]);
        let (reply, next) = Reply::live();
        source.on_watch(reply);
        feed.send(gone());
        next.send(event("ADDED", "a@16") + &event("ADDED", "b@2") + &end(30));
        env.clock.timeout(hour, source.until_asked(2)).await.expect("waited for an hour");
        env.clock.sleep(Duration::from_millis(1)).await;
        assert_eq!(
            (cached(), informer.indexer().version()),
            (vec!["a@1".to_owned(), "b@2".to_owned()], 30.into())
        );
    }
}
