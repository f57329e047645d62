//! Kinds whose definition goes and comes, and kinds that may not be watched, on the embedded server.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::client::Body;
use kube_core::CustomResourceExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, SharedInformer, SharedInformerFactory, on_change};
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::{ListReason, Phase};
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_test::TestCluster;

use crate::refusing::refusing;
use crate::website::{Website, manifest};

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

/// Longer than the longest delay between two questions whether a kind is served.
const RESUMED: Duration = Duration::from_secs(25);

/// What a handler has seen.
type Seen = Arc<Mutex<Vec<String>>>;

/// Starts informers of Websites, each with the names that it was notified of.
fn informers(factory: &SharedInformerFactory) -> Vec<(SharedInformer<Website>, Seen)> {
    let all = [factory.clone(), factory.in_namespace("default"), factory.clone().metadata_only()];
    let observed = all.into_iter().map(|factory| {
        let (informer, log) = (factory.informer::<Website>(), Arc::<Mutex<Vec<String>>>::default());
        let lines = log.clone();
        let handler = on_change(move |change: Change<'_, Website>| {
            lines.lock().push(match change {
                Change::Added { object, .. } => format!("+ {}", object.name()),
                Change::Updated { new, .. } => format!("= {}", new.name()),
                Change::Deleted(deleted) => format!("- {}", deleted.key().name()),
            });
        });
        informer.add_handler(handler).unwrap();
        (informer, log)
    });
    observed.collect()
}

/// The definition with a field that the first one does not have.
fn changed_definition() -> CustomResourceDefinition {
    let mut definition = serde_json::to_value(Website::crd()).unwrap();
    let properties = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["spec"]["properties"]["motto"] = json!({"type": "string"});
    serde_json::from_value(definition).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_deleted_and_made_again_otherwise_is_followed_by_all_informers() {
    for queue in QUEUES {
        let env = Env::simulated(1);
        let cluster = TestCluster::builder().env(&env).without_operator().await;
        let definitions = cluster.client().api::<CustomResourceDefinition>();
        definitions.create(&Website::crd()).await.unwrap();
        cluster.apply(&manifest("a", 1)).await;
        cluster.apply(&manifest("b", 1)).await;
        let factory = SharedInformerFactory::builder(cluster.client()).queue(queue).build();
        let (observed, stop) = (informers(&factory), CancellationToken::new());
        factory.start(&stop);
        factory.wait_for_sync(&stop).await.unwrap();

        cluster.delete::<CustomResourceDefinition>("websites.example.dev").await;
        env.clock.sleep(RESUMED).await;
        for (informer, log) in &observed {
            let (health, mut heard) = (informer.health(), std::mem::take(&mut *log.lock()));
            assert_eq!((health.phase, informer.indexer().snapshot().len()), (Phase::Parked, 0));
            heard.sort();
            heard.dedup();
            assert_eq!(heard.iter().filter(|line| line.starts_with('-')).count(), 2, "{heard:?}");
        }

        env.clock.sleep(Duration::from_secs(3600)).await;
        definitions.create(&changed_definition()).await.unwrap();
        cluster.apply(&manifest("c", 1)).await;
        env.clock.sleep(RESUMED).await;
        for (informer, log) in &observed {
            let health = informer.health();
            assert_eq!((health.phase, health.degraded), (Phase::Watching, None));
            assert_eq!(health.lists_by_reason.get(&ListReason::ServedAgain), Some(&1));
            assert_eq!(*log.lock(), ["+ c"]);
        }
        // And watched.
        cluster.apply(&manifest("d", 1)).await;
        env.clock.sleep(Duration::from_secs(1)).await;
        assert!(observed.iter().all(|(informer, _)| informer.indexer().snapshot().len() == 2));
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_of_an_optional_kind_catches_up_with_the_kind_and_with_its_absence() {
    for queue in QUEUES {
        let env = Env::simulated(1);
        let cluster = TestCluster::builder().env(&env).without_operator().await;
        let factory = SharedInformerFactory::builder(cluster.client()).queue(queue).build();
        let websites = factory.informer_with::<Website>((), |builder| builder.optional().build());
        let cached = || websites.indexer().snapshot().len();
        let stop = CancellationToken::new();
        factory.start(&stop);
        factory.wait_for_sync(&stop).await.unwrap();
        factory.catch_up(Duration::from_secs(1)).await.unwrap();

        env.clock.sleep(Duration::from_secs(3600)).await;
        cluster.client().api::<CustomResourceDefinition>().create(&Website::crd()).await.unwrap();
        cluster.apply(&manifest("a", 1)).await;
        assert_eq!((websites.health().phase, cached()), (Phase::Parked, 0));
        factory.catch_up(RESUMED).await.unwrap();
        assert_eq!(cached(), 1);

        cluster.delete::<CustomResourceDefinition>("websites.example.dev").await;
        factory.catch_up(RESUMED).await.unwrap();
        assert_eq!((websites.health().phase, cached()), (Phase::Parked, 0));
        stop.cancel();
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_listed_and_not_watched_is_polled() {
    for queue in QUEUES {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let (client, is_forbidden) = refusing(&server, &env, is_watch);
        is_forbidden.store(true, SeqCst);
        let user = Client::from_kube(server.client(), &env);
        let factory = SharedInformerFactory::builder(&client).queue(queue).build();
        let (maps, stop) = (factory.informer::<ConfigMap>(), CancellationToken::new());
        factory.start(&stop);
        factory.wait_for_sync(&stop).await.unwrap();
        let create = async |name: &str| {
            let map = json!({"metadata": {"name": name, "namespace": "default"}});
            user.api::<ConfigMap>().create(&serde_json::from_value(map).unwrap()).await.unwrap();
        };
        create("a").await;
        env.clock.sleep(Duration::from_secs(61)).await;
        let before = maps.indexer().snapshot().len();
        create("b").await;
        env.clock.sleep(Duration::from_secs(61)).await;
        assert_eq!(maps.indexer().snapshot().len(), before + 1);
        let (_, why) = maps.health().degraded.unwrap();
        assert!(why.starts_with("polled, no permission to watch configmaps: it is forbidden"), "{why}");
        is_forbidden.store(false, SeqCst);
        env.clock.sleep(Duration::from_secs(61)).await;
        assert_eq!((maps.health().phase, maps.health().degraded), (Phase::Watching, None));
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_verified_against_the_embedded_server_at_its_own_version() {
    for queue in QUEUES {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let client = Client::from_kube(server.client(), &env);
        let factory = SharedInformerFactory::builder(&client)
            .queue(queue)
            .verify_every(Duration::from_secs(600))
            .build();
        let (maps, stop) = (factory.informer::<ConfigMap>(), CancellationToken::new());
        factory.start(&stop);
        factory.wait_for_sync(&stop).await.unwrap();
        for name in 0..600 {
            let map = json!({"metadata": {"name": format!("map-{name}"), "namespace": "default"}});
            client.api::<ConfigMap>().create(&serde_json::from_value(map).unwrap()).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(1200)).await;
        let health = maps.health();
        assert!(health.verified.is_some_and(|at| env.clock.now() - at <= Duration::from_secs(600)));
        assert_eq!((health.differences, health.lists, env.reporter.errors()), (0, 1, 0));
        assert_eq!(maps.verify().await.unwrap().differences, 0);
        stop.cancel();
    }
}
