//! The informer factory: one informer of each kind, with its settings, started and stopped together.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube_client::client::Body;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{
    HandlerOptions, InformerId, InformerMetrics, InformerPanicked, MetricsProvider,
    SharedInformerFactoryBuilder, on_apply,
};
#[cfg(feature = "admin")]
use watchkeeper::process::Checks;
use watchkeeper::reflector::{Cause, ListReason};
use watchkeeper::source::{Reply, ScriptedSource, Selection};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Client, Env, ObjectName, SharedInformerFactory};

type Seen = Arc<Mutex<Vec<String>>>;

/// Returns settings on a client whose server answers lists by `answer` and stays silent on watches, and a record of the
/// lists.
fn factory_on(answer: fn(&str) -> String) -> (Env, SharedInformerFactoryBuilder, Seen) {
    let (env, seen) = (Env::simulated(1), Seen::default());
    let asked = seen.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (is_watch, asked) = (query.contains("watch=true"), asked.clone());
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            asked.lock().push(format!("{path}?{query}"));
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer(&path).into_bytes())))
        }
    });
    let client = Client::from_kube(kube_client::Client::new(service, "default"), &env);
    (env, SharedInformerFactory::builder(&client).list_mode(watchkeeper::reflector::ListMode::Paged), seen)
}

fn empty_list(_path: &str) -> String {
    r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#.to_owned()
}

fn one_object(_path: &str) -> String {
    let metadata = r#"{"name":"a","namespace":"ns","resourceVersion":"1"}"#;
    format!(r#"{{"items":[{{"metadata":{metadata}}}],"metadata":{{"resourceVersion":"1"}}}}"#)
}

/// Waits for an hour at most: on the paused clock, until nothing else can happen.
async fn soon<F: Future>(env: &Env, future: F) -> F::Output {
    env.clock.timeout(Duration::from_secs(3600), future).await.expect("waited for an hour")
}

/// Starts the factory, waits until it has synced, and stops it.
async fn run(factory: &SharedInformerFactory) {
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    stop.cancel();
    factory.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_factory_makes_one_informer_per_kind_and_starts_each_once() {
    let (env, builder, _) = factory_on(empty_list);
    let factory = builder.build();
    let (a, b) = (factory.informer::<ConfigMap>(), factory.informer::<ConfigMap>());
    let stop = CancellationToken::new();
    factory.start(&stop);
    let secrets = factory.informer::<Secret>();
    factory.start(&stop);
    soon(&env, factory.wait_for_sync(&stop)).await.unwrap();
    assert!(a.has_synced() && b.has_synced() && secrets.has_synced());
    assert_eq!(a.health().lists, 1);
    stop.cancel();
    soon(&env, factory.join()).await.unwrap();
    assert!(b.is_stopped() && secrets.is_stopped());
}

// client-go: TestSyncResult
#[tokio::test(start_paused = true)]
async fn informers_start_in_the_order_in_which_they_were_made() {
    let lists = async |make: &dyn Fn(&SharedInformerFactory)| {
        let (_env, builder, seen) = factory_on(empty_list);
        let factory = builder.build();
        make(&factory);
        run(&factory).await;
        let lists = seen.lock().clone();
        lists.iter().map(|list| list.split(['/', '?']).nth(3).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let down = lists(&|factory| {
        factory.lister::<Secret>();
        factory.lister::<Pod>();
        factory.lister::<Node>();
        factory.lister::<ConfigMap>();
    });
    assert_eq!(down.await, ["secrets", "pods", "nodes", "configmaps"]);
    let up = lists(&|factory| {
        factory.lister::<ConfigMap>();
        factory.lister::<Node>();
        factory.lister::<Pod>();
        factory.lister::<Secret>();
    });
    assert_eq!(up.await, ["configmaps", "nodes", "pods", "secrets"]);
}

#[tokio::test(start_paused = true)]
async fn a_factory_names_the_kinds_that_did_not_sync() {
    let (env, builder, _) =
        factory_on(|path| if path.contains("secrets") { "{".into() } else { empty_list(path) });
    let factory = builder.build();
    factory.informer::<ConfigMap>();
    factory.informer::<Secret>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    env.clock.sleep(Duration::from_secs(60)).await;
    // A wait that is given up stops nothing.
    assert!(env.clock.timeout(Duration::from_secs(1), factory.join()).await.is_err());
    assert!(!factory.informer::<ConfigMap>().is_stopped());
    stop.cancel();
    let error = soon(&env, factory.wait_for_sync(&stop)).await.unwrap_err();
    assert_eq!(error.synced, ["configmaps"]);
    let said = error.to_string();
    assert!(said.starts_with("failed to sync all caches: secrets ("), "{said}");
    let both = async { tokio::join!(factory.join(), factory.join()) };
    let (first, second) = soon(&env, both).await;
    first.and(second).unwrap();
    assert!(factory.informer::<ConfigMap>().is_stopped());
}

#[tokio::test(start_paused = true)]
async fn every_task_that_waits_for_the_shutdown_goes_on() {
    let (env, builder, _) = factory_on(empty_list);
    let factory = builder.build();
    factory.informer::<ConfigMap>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    let wait = || {
        let factory = factory.clone();
        tokio::spawn(async move { factory.join().await })
    };
    let (given_up, first, second) = (wait(), wait(), wait());
    env.clock.sleep(Duration::from_secs(1)).await;
    given_up.abort();
    assert!(!first.is_finished() && !second.is_finished());
    stop.cancel();
    let both = async { tokio::join!(first, second) };
    let (first, second) = env.clock.timeout(Duration::from_secs(60), both).await.unwrap();
    first.unwrap().and(second.unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_below_an_informer_is_reported_and_ends_the_wait() {
    let (env, builder, _) = factory_on(|_| panic!("below"));
    let factory = builder.build();
    factory.informer::<ConfigMap>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    let error = soon(&env, factory.wait_for_sync(&stop)).await.unwrap_err();
    assert_eq!((error.unsynced[0].name.as_str(), env.reporter.panics()), ("configmaps", 1));
}

#[tokio::test(start_paused = true)]
async fn informers_of_one_kind_differ_by_scope_and_selection() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.build();
    let web = Selection { labels: "app=web".into(), ..Selection::default() };
    factory.informer::<Pod>();
    factory.in_namespace("a").informer::<Pod>();
    factory.in_namespace("a").informer::<Pod>();
    factory.in_namespace("a").cluster_wide().selecting(web.clone()).informer::<Pod>();
    factory.in_namespace("b").selecting(web).informer::<Pod>();
    let names = "[\"pods\", \"pods in a\", \"pods with app=web\", \"pods in b with app=web\"]";
    assert_eq!(format!("{factory:?}"), format!("SharedInformerFactory {{ informers: {names} }}"));
    run(&factory).await;
    let mut seen = seen.lock().clone();
    seen.sort();
    assert_eq!(
        seen,
        [
            "/api/v1/namespaces/a/pods?limit=500",
            "/api/v1/namespaces/b/pods?labelSelector=app%3Dweb&limit=500",
            "/api/v1/pods?labelSelector=app%3Dweb&limit=500",
            "/api/v1/pods?limit=500",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_empty_namespace_is_the_whole_cluster() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.namespace("").build();
    factory.informer::<Pod>();
    factory.cluster_wide().informer::<Pod>();
    factory.in_namespace("a").in_namespace("").informer::<Pod>();
    assert_eq!(format!("{factory:?}"), r#"SharedInformerFactory { informers: ["pods"] }"#);
    run(&factory).await;
    assert_eq!(*seen.lock(), ["/api/v1/pods?limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_namespaces_has_one_informer_whatever_the_namespace() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.build();
    factory.informer::<Node>();
    factory.in_namespace("a").informer::<Node>();
    factory.in_namespace("b").informer::<Node>();
    assert_eq!(format!("{factory:?}"), r#"SharedInformerFactory { informers: ["nodes"] }"#);
    run(&factory).await;
    assert_eq!(*seen.lock(), ["/api/v1/nodes?limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn an_informer_can_be_asked_for_while_another_is_made() {
    let (_env, builder, _) = factory_on(empty_list);
    let factory = builder.build();
    let (finished, told) = std::sync::mpsc::channel();
    let asking = factory.clone();
    // On a thread of its own, which a failure leaves behind.
    std::thread::spawn(move || {
        asking.informer_with::<Pod>((), |builder| {
            asking.lister::<ConfigMap>();
            builder.build()
        });
        finished.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(120)).unwrap();
    // Of one kind, the first informer is kept.
    let outer = factory.informer_with::<Secret>((), |builder| {
        factory.informer::<Secret>();
        builder.build()
    });
    run(&factory).await;
    assert!(outer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn kinds_without_namespaces_are_looked_at_cluster_wide_in_any_factory() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.namespace("a").build();
    factory.informer::<Node>();
    factory.informer::<Pod>();
    run(&factory).await;
    let mut seen = seen.lock().clone();
    seen.sort();
    assert_eq!(seen, ["/api/v1/namespaces/a/pods?limit=500", "/api/v1/nodes?limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn kinds_known_only_at_run_time_have_an_informer_each() {
    let (_env, builder, seen) = factory_on(|path| {
        let name = if path.contains("foos") { "f" } else { "b" };
        format!(
            r#"{{"items":[{{"metadata":{{"name":"{name}","namespace":"ns"}}}}],"metadata":{{"resourceVersion":"1"}}}}"#
        )
    });
    let factory = builder.build();
    let kind = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
    let (foos, bars) = (
        factory.informer_of::<DynamicObject>(kind("Foo")).lister(),
        factory.informer_of::<DynamicObject>(kind("Bar")).lister(),
    );
    run(&factory).await;
    assert_eq!(seen.lock().len(), 2);
    assert!(
        foos.contains(&ObjectName::namespaced("ns", "f"))
            && bars.contains(&ObjectName::namespaced("ns", "b"))
    );
    let missing = foos.get(&ObjectName::namespaced("ns", "b")).unwrap_err();
    assert_eq!(missing.to_string(), "foos \"ns/b\" not found");
}

#[tokio::test(start_paused = true)]
async fn the_first_constructor_of_an_informer_is_the_one_that_counts() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.build();
    let first = factory.informer_with::<Pod>((), |builder| builder.page_size(7).build());
    let second = factory.informer_with::<Pod>((), |_| panic!("there is one already"));
    run(&factory).await;
    assert_eq!(*seen.lock(), ["/api/v1/pods?limit=7"]);
    assert!(first.has_synced() && second.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_hook_edits_the_options_of_all_informers() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.edit_options(|query| query.set("fieldSelector", "spec.nodeName=n")).build();
    factory.informer::<Pod>();
    run(&factory).await;
    assert_eq!(*seen.lock(), ["/api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_panics_ends_the_others_and_the_shutdown_names_it() {
    let (env, builder, _) = factory_on(|path| match path.ends_with("/pods") {
        true => panic!("below"),
        false => empty_list(path),
    });
    let factory = builder.build();
    let maps = factory.informer::<ConfigMap>();
    factory.in_namespace("ns").informer::<Pod>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    let error = factory.wait_for_sync(&stop).await.unwrap_err();
    assert!(error.to_string().ends_with("pods in ns (pods stopped by a panic)"), "{error}");
    let ended = env.clock.timeout(Duration::from_secs(3600), factory.join()).await.unwrap();
    let panicked = InformerPanicked { name: "pods in ns".to_owned(), message: "below".to_owned() };
    assert_eq!((ended, maps.is_stopped(), stop.is_cancelled()), (Err(panicked), true, true));
}

#[tokio::test(start_paused = true)]
async fn the_trouble_of_an_informer_that_panics_keeps_its_beginning() {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    let (env, builder, _) = factory_on(|_| match LISTS.fetch_add(1, Relaxed) {
        0 => "no list".to_owned(),
        _ => panic!("below"),
    });
    let factory = builder.build();
    let (pods, stop, began) = (factory.informer::<Pod>(), CancellationToken::new(), env.clock.now());
    factory.start(&stop);
    factory.join().await.unwrap_err();
    let (since, why) = pods.health().degraded.unwrap();
    assert_eq!((since, why.as_str()), (began, "pods stopped by a panic"));
    assert!(env.clock.now() > began);
}

#[cfg(feature = "admin")]
#[tokio::test(start_paused = true)]
async fn readiness_follows_the_caches_over_their_whole_life() {
    let (env, builder, _) = factory_on(empty_list);
    let (factory, source, ready) = (builder.build(), ScriptedSource::new(), Checks::default());
    let (watch, feed) = Reply::live();
    source.on_list(Reply::body(empty_list(""))).on_watch(watch);
    factory.informer_with::<Pod>((), |builder| builder.source(source.clone()).build());
    ready.caches(&factory);
    let caches = factory.caches();
    let troubles = || caches.troubles(Duration::from_secs(120));
    assert_eq!(
        (ready.failing(), troubles()),
        (vec!["caches".to_owned()], vec!["pods has not synced yet".to_owned()])
    );
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    assert!(ready.failing().is_empty());
    // A problem that passes soon does not affect readiness.
    let refuse = || Reply::refuse(ApiError::new(Class::ConnectionRefused, "refused"));
    for _ in 0..12 {
        source.on_watch(refuse());
    }
    drop(feed);
    env.clock.sleep(Duration::from_secs(110)).await;
    assert!(ready.failing().is_empty());
    env.clock.sleep(Duration::from_secs(20)).await;
    assert_eq!(ready.failing(), ["cache/pods"]);
    let degraded = caches.states().unwrap().remove(0).degraded.unwrap();
    assert_eq!((degraded.cause, degraded.lasts > Duration::from_secs(120)), (Cause::Unreachable, true));
    assert!(
        troubles()[0].starts_with("pods degraded for 1") && troubles()[0].contains("cannot watch pods: "),
        "{:?}",
        troubles()
    );
    let (watch, _feed) = Reply::live();
    source.on_watch(watch);
    source.until_asked(15).await;
    env.clock.sleep(Duration::from_secs(2)).await;
    assert!(ready.failing().is_empty());
    stop.cancel();
    factory.join().await.unwrap();
    assert_eq!(
        (ready.failing(), troubles()),
        (vec!["caches".to_owned()], vec!["pods has stopped".to_owned()])
    );
    drop(factory);
    assert_eq!(troubles(), ["the informers are gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_on_options_that_panics_costs_one_request() {
    let (env, builder, _) = factory_on(empty_list);
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let edit = move |_: &mut watchkeeper::source::Query| {
        let mut asked = count.lock();
        *asked += 1;
        assert!(*asked != 2, "the second request");
    };
    let factory = builder.edit_options(edit).build();
    let pods = factory.informer::<Pod>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await.unwrap();
    env.clock.sleep(Duration::from_millis(1)).await;
    let (_, why) = pods.health().degraded.unwrap();
    assert_eq!(why, "cannot watch pods: the hook on options panicked: the second request");
    env.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!((*asked.lock(), pods.is_stopped()), (3, false));
    stop.cancel();
    factory.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_can_have_a_resync_period_of_its_own() {
    let (env, builder, _) = factory_on(one_object);
    let ten = Duration::from_secs(10);
    let factory = builder.resync(5 * ten).resync_for::<ConfigMap>(ten).build();
    let told: Arc<Mutex<[usize; 2]>> = Arc::default();
    let count = |at: usize| {
        let told = told.clone();
        move || told.lock()[at] += 1
    };
    let (maps, secrets) = (count(0), count(1));
    factory.informer::<ConfigMap>().add_handler(on_apply(move |_| maps())).unwrap();
    factory.informer::<Secret>().add_handler(on_apply(move |_| secrets())).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    env.clock.sleep(5 * ten + Duration::from_secs(1)).await;
    assert_eq!(*told.lock(), [1 + 5, 1 + 1]);
    stop.cancel();
    factory.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_in_a_factory_that_was_shut_down() {
    let (_env, builder, seen) = factory_on(empty_list);
    let factory = builder.build();
    factory.join().await.unwrap();
    let pods = factory.informer::<Pod>();
    factory.start(&CancellationToken::new());
    tokio::task::yield_now().await;
    assert!(seen.lock().is_empty() && !pods.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_lister_is_empty_until_it_has_synced_and_says_so() {
    let (_env, builder, _) = factory_on(one_object);
    let factory = builder.build();
    let pods = factory.lister::<Pod>();
    assert!(!pods.has_synced() && pods.objects(&Selector::default()).is_empty());
    let stop = CancellationToken::new();
    factory.start(&stop);
    pods.wait_until_synced().await;
    assert_eq!(pods.list(&Selector::default()).complete().unwrap().len(), 1);
    stop.cancel();
    factory.join().await.unwrap();
}

/// Records the requests for metrics, and the lists.
#[derive(Default)]
struct Metrics(Seen);

struct OfInformer(InformerId, Seen);

impl MetricsProvider for Metrics {
    fn informer(&self, id: InformerId) -> Arc<dyn InformerMetrics> {
        Arc::new(OfInformer(id, self.0.clone()))
    }
}

impl InformerMetrics for OfInformer {
    fn listed(&self, reason: ListReason, items: usize) {
        let InformerId { name, group, version, resource, .. } = &self.0;
        self.1.lock().push(format!("{name} {group}/{version} {resource}: {} {items}", reason.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn every_informer_has_its_own_metrics() {
    let (_env, builder, _) = factory_on(empty_list);
    let metrics = Arc::new(Metrics::default());
    let factory = builder.name("mine").metrics(metrics.clone()).build();
    factory.informer::<Pod>();
    factory.informer::<k8s_openapi::api::apps::v1::Deployment>();
    run(&factory).await;
    let mut told = metrics.0.lock().clone();
    told.sort();
    assert_eq!(told, ["mine /v1 pods: first 0", "mine apps/v1 deployments: first 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_a_factory_without_resyncs_gets_none() {
    let (env, builder, _) = factory_on(one_object);
    let factory = builder.build();
    let told = Seen::default();
    let log = told.clone();
    let handler =
        on_apply(move |object: &watchkeeper::Object<Pod>| log.lock().push(object.name().to_owned()));
    let options = HandlerOptions::default().resync(Duration::from_secs(1));
    factory.informer::<Pod>().add_handler_with(handler, options).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    env.clock.sleep(Duration::from_secs(100)).await;
    assert_eq!(*told.lock(), ["a"], "once, when it was listed");
    stop.cancel();
    factory.join().await.unwrap();
}
