//! Outcomes of reconciles: retries, requeues, deadlines and panics, and how they are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::controller::{Action, Controller, Error, Manager, Watch};
use watchkeeper::workqueue::Priority;
use watchkeeper::{Env, ObjectName};
use watchkeeper_sim::Scenario;
use watchkeeper_test::TestCluster;

use crate::website::{Outside, Website, manifest, register};

/// Starts a controller of ConfigMaps whose run number `n` does what `work(n)` says, and creates one ConfigMap.
async fn runs(
    timeout: Option<Duration>,
    work: impl Fn(usize) -> Result<Action, Error> + Send + Sync + 'static,
) -> (TestCluster, Arc<AtomicUsize>) {
    let (env, count) = (Env::simulated(1), Arc::new(AtomicUsize::new(0)));
    let counter = count.clone();
    let cluster = TestCluster::builder()
        .env(&env)
        .start(|manager| {
            let controller = Controller::<ConfigMap>::new(manager).only(Watch::new().labels("run=yes"));
            let controller = match timeout {
                Some(timeout) => controller.timeout(timeout),
                None => controller,
            };
            let work = Arc::new(work);
            controller.reconcile(move |_, cx| {
                let (number, work) = (counter.fetch_add(1, SeqCst), work.clone());
                async move {
                    let outcome = work(number);
                    if number == 0 && timeout.is_some() {
                        cx.env().clock.sleep(Duration::from_secs(3600)).await;
                    }
                    outcome
                }
            })
        })
        .await;
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {run: 'yes'}}}").await;
    (cluster, count)
}

fn figures(cluster: &TestCluster) -> [u64; 7] {
    let figures = &cluster.operator().figures()[0];
    let [(_, success), (_, requeue), (_, error)] = figures.reconciles;
    [success, requeue, error, figures.terminal, figures.panics, figures.timeouts, figures.active as u64]
}

async fn pass(cluster: &TestCluster, seconds: u64) {
    cluster.client().env().clock.sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_and_a_requeue_comes_when_it_was_asked_for() {
    let (cluster, count) = runs(None, |number| match number {
        0 | 1 => Err(Error::message("not yet")),
        2 => Err(Error::requeue_after(Duration::from_secs(7), std::io::Error::other("later"))),
        3 => Ok(Action::requeue_after(Duration::from_secs(60))),
        _ => Ok(Action::done()),
    })
    .await;
    pass(&cluster, 1).await;
    assert_eq!(count.load(SeqCst), 3);
    pass(&cluster, 10).await;
    assert_eq!(count.load(SeqCst), 4);
    pass(&cluster, 50).await;
    assert_eq!(count.load(SeqCst), 4);
    pass(&cluster, 10).await;
    assert_eq!(count.load(SeqCst), 5);
    assert_eq!(figures(&cluster), [1, 1, 3, 0, 0, 0, 0]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_requeue_has_the_priority_that_was_asked_for() {
    let (cluster, _) = runs(None, |number| {
        let action = Action::requeue_after(Duration::from_secs(60));
        Ok(if number == 0 { action } else { action.priority(Priority::High) })
    })
    .await;
    for (seconds, expected) in [(1, Priority::Normal), (60, Priority::High)] {
        pass(&cluster, seconds).await;
        let key = ObjectName::namespaced("default", "a");
        assert_eq!(cluster.operator().explain("configmap", &key).unwrap().priority, expected);
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_reported_counted_and_retried_and_harms_no_other_key() {
    let (cluster, count) = runs(None, |number| {
        assert!(number > 0, "boom");
        Ok(Action::done())
    })
    .await;
    pass(&cluster, 5).await;
    assert_eq!((count.load(SeqCst), figures(&cluster)), (2, [1, 0, 1, 0, 1, 0, 0]));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_beyond_its_deadline_is_dropped_and_retried() {
    let (cluster, count) = runs(Some(Duration::from_secs(5)), |_| Ok(Action::done())).await;
    pass(&cluster, 4).await;
    assert_eq!((count.load(SeqCst), figures(&cluster)[6]), (1, 1));
    pass(&cluster, 4).await;
    assert_eq!((count.load(SeqCst), figures(&cluster)), (2, [1, 0, 1, 0, 0, 1, 0]));
    let record = cluster.operator().explain("configmap", &ObjectName::namespaced("default", "a")).unwrap();
    assert!(record.last_error.unwrap().message.contains("did not end within 5s"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_managers_that_fight_over_a_field_are_slowed_and_named() {
    let (env, outside) = (Env::simulated(1), Arc::<Outside>::default());
    // The backoff may have grown to minutes when the fight ends.
    let cluster = TestCluster::builder().env(&env).patience(Duration::from_secs(1_000));
    let cluster = cluster.start(|manager| register(manager, &outside)).await;
    cluster.apply(&manifest("site", 3)).await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    let key = ObjectName::namespaced("default", "site");
    let other = cluster.client().requests().clone().manager("autoscaler");
    let mut changes = 0;
    // The other one changes the field back as soon as it is restored, for ten minutes.
    let end = env.clock.now() + Duration::from_secs(600);
    while env.clock.now() < end {
        let deployment = cluster.get::<Deployment>("default/site").await.unwrap();
        if deployment.spec.unwrap().replicas == Some(3) {
            let patch = Patch::Merge(json!({"spec": {"replicas": 9}}));
            other.api::<Deployment>().patch(&key, &patch).await.unwrap();
            changes += 1;
        }
        env.clock.sleep(Duration::from_millis(50)).await;
    }
    assert!((4..=40).contains(&changes), "at most some 3 a minute: {changes}");
    let record = cluster.operator().explain("website", &key).unwrap();
    let message = record.last_error.unwrap().message;
    assert!(message.contains("Deployment default/site was applied 3 times within a minute"), "{message}");
    assert!(message.contains("autoscaler"), "{message}");
    cluster
        .eventually::<Deployment>("default/site", |it| it.spec.as_ref().unwrap().replicas == Some(3))
        .await;
    cluster.stop().await;
}

/// How long 990 ConfigMaps take to be reconciled after a touch, beside `behind` others whose own writes no cache shows.
fn time_beside(behind: usize) -> Duration {
    let took = Arc::new(Mutex::new(Duration::ZERO));
    let runs = Arc::new(AtomicUsize::new(0));
    Scenario::new(1).run(
        async |client, stop| {
            let mut manager = Manager::builder("tester", &client).build();
            let runs = runs.clone();
            let controller =
                Controller::<ConfigMap>::new(&mut manager).owns(Watch::<Service>::new()).workers(2);
            let registered = controller.reconcile(move |map, cx| {
                let runs = runs.clone();
                async move {
                    cx.env().clock.sleep(Duration::from_millis(10)).await;
                    if cx.key().name().starts_with("behind") {
                        let annotation = map.metadata.resource_version.clone().unwrap_or_default();
                        let service = json!({
                            "metadata": {"name": cx.key().name(), "annotations": {"v": annotation}},
                            "spec": {"ports": [{"port": 80}]},
                        });
                        cx.apply(&serde_json::from_value::<Service>(service)?).await?;
                    } else {
                        runs.fetch_add(1, SeqCst);
                    }
                    Ok(Action::done())
                }
            });
            registered.unwrap();
            manager.run(stop).await.unwrap();
        },
        async |cluster| {
            let maps = cluster.user.api::<ConfigMap>();
            let names = (0..behind).map(|number| format!("behind-{number}"));
            let names: Vec<_> = names.chain((0..990).map(|number| format!("free-{number}"))).collect();
            for name in &names {
                let map = json!({"metadata": {"name": name, "namespace": "default"}});
                maps.create(&serde_json::from_value(map).unwrap()).await.unwrap();
            }
            while runs.load(SeqCst) < 990 {
                cluster.env.clock.sleep(Duration::from_millis(100)).await;
            }
            cluster.env.clock.sleep(Duration::from_secs(60)).await;
            cluster.net.hold("services");
            let touch = |round: u32| Patch::Merge(json!({"data": {"round": round.to_string()}}));
            // The first touch makes those behind write; the second finds their caches behind.
            for name in names.iter().filter(|name| name.starts_with("behind")) {
                maps.patch(&ObjectName::namespaced("default", name), &touch(1)).await.unwrap();
            }
            cluster.env.clock.sleep(Duration::from_secs(1)).await;
            let (before, start) = (runs.load(SeqCst), cluster.env.clock.now());
            for name in &names {
                maps.patch(&ObjectName::namespaced("default", name), &touch(2)).await.unwrap();
            }
            while runs.load(SeqCst) < before + 990 {
                cluster.env.clock.sleep(Duration::from_millis(1)).await;
            }
            *took.lock() = cluster.env.clock.now() - start;
            cluster.net.release();
        },
    );
    Arc::into_inner(took).unwrap().into_inner()
}

#[test]
fn a_key_whose_cache_is_behind_costs_no_worker() {
    let (alone, beside) = (time_beside(0), time_beside(10));
    let more = beside.saturating_sub(alone);
    assert!(more <= Duration::from_millis(100), "alone {alone:?}, beside ten that are behind {beside:?}");
}
