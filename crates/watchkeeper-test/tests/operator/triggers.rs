//! Triggers: what led to a run, as its context, its record and the figures of its queue have it.

use std::sync::Arc;
use std::time::Duration;

use crate::website::{Outside, Website, manifest, register};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use watchkeeper::controller::{Action, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::workqueue::{Cause, TriggerRecord};
use watchkeeper::{Env, ObjectName};
use watchkeeper_test::TestCluster;

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn texts(triggers: &[TriggerRecord]) -> Vec<String> {
    triggers.iter().map(ToString::to_string).collect()
}

/// The last triggers of a key.
fn known(cluster: &TestCluster, controller: &str, name: &str) -> Vec<String> {
    texts(&cluster.operator().explain(controller, &key(name)).unwrap().triggers)
}

fn count(cluster: &TestCluster, controller: &str, cause: Cause) -> u64 {
    let metrics = cluster.operator().queue(controller).unwrap().metrics().upgrade().unwrap();
    metrics.figures().triggers[cause as usize]
}

async fn pass(cluster: &TestCluster, time: Duration) {
    cluster.client().env().clock.sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_child_is_named_as_what_led_to_the_run() {
    let (env, outside) = (Env::simulated(1), Arc::new(Outside::default()));
    let cluster = TestCluster::builder().env(&env).start(|manager| register(manager, &outside)).await;
    cluster.apply(&manifest("site", 3)).await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    pass(&cluster, Duration::from_secs(60)).await;
    let children = count(&cluster, "website", Cause::Owner);
    outside.triggers.lock().clear();
    let edit = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let edited = cluster.client().api::<Deployment>().patch(&key("site"), &edit).await.unwrap();
    cluster
        .eventually::<Deployment>("default/site", |it| it.spec.as_ref().unwrap().replicas == Some(3))
        .await;
    let version = edited.metadata.resource_version.unwrap();
    let expected = format!("Deployment default/site changed (version {version})");
    assert_eq!(outside.triggers.lock()[0], [expected.as_str()]);
    assert!(known(&cluster, "website", "site").contains(&expected));
    assert!(count(&cluster, "website", Cause::Owner) > children);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_start_the_initial_list_led_to_the_runs() {
    let (env, outside) = (Env::simulated(1), Arc::new(Outside::default()));
    let mut cluster = TestCluster::builder().env(&env).start(|manager| register(manager, &outside)).await;
    cluster.apply(&manifest("site", 1)).await;
    cluster.eventually::<Website>("default/site", Website::is_ready).await;
    pass(&cluster, Duration::from_secs(60)).await;
    cluster.stop_operator().await;
    outside.triggers.lock().clear();
    cluster.start_operator(|manager| register(manager, &outside)).await;
    pass(&cluster, Duration::from_secs(60)).await;
    let site = cluster.get::<Website>("default/site").await.unwrap();
    let version = site.metadata.resource_version.unwrap();
    let run = outside.triggers.lock()[0].clone();
    assert!(run.contains(&format!("the object was in the initial list (version {version})")), "{run:?}");
    assert!(
        run.iter().any(|it| it.starts_with("Deployment default/site was in the initial list")),
        "{run:?}"
    );
    assert_eq!(count(&cluster, "website", Cause::Owner), 0);
    assert!(count(&cluster, "website", Cause::InitialList) >= 2);
    cluster.stop().await;
}

/// What led to each run.
type Runs = Arc<Mutex<Vec<Vec<String>>>>;

/// A controller whose first runs end in different ways.
fn moody(manager: &mut Manager, runs: &Runs, keys: mpsc::Receiver<ObjectName>) -> Result<(), SetupError> {
    let runs = runs.clone();
    Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).events(keys).reconcile(
        move |map, cx| {
            let run = {
                let mut runs = runs.lock();
                runs.push(texts(cx.triggers()));
                runs.len()
            };
            async move {
                match run {
                    1 => Err(Error::message("no luck")),
                    2 => Ok(Action::requeue_after(Duration::from_secs(1))),
                    3 => {
                        let mut secret = Secret::default();
                        secret.metadata.name = map.metadata.name.clone();
                        cx.apply(&secret).await?;
                        Ok(Action::requeue_after(Duration::ZERO))
                    }
                    _ => Ok(Action::done()),
                }
            }
        },
    )
}

#[tokio::test(start_paused = true)]
async fn retries_requeues_own_writes_and_channels_say_so() {
    let (env, runs) = (Env::simulated(1), Runs::default());
    let (sender, keys) = mpsc::channel(1);
    let cluster = TestCluster::builder().env(&env).start(|manager| moody(manager, &runs, keys)).await;
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}").await;
    pass(&cluster, Duration::from_secs(60)).await;
    let before = runs.lock().len();
    sender.send(key("web")).await.unwrap();
    pass(&cluster, Duration::from_secs(1)).await;
    let runs = runs.lock().clone();
    assert!(runs[0][0].starts_with("the object changed (version "), "{runs:?}");
    assert_eq!(runs[1], ["a retry was due"]);
    assert_eq!(runs[2], ["a delayed add was due"]);
    assert!(runs[3][0].starts_with("Secret default/web changed (version "), "{runs:?}");
    assert_eq!(runs[3][1..], ["it waited for its own writes", "a delayed add was due"]);
    assert_eq!(runs[before..], [["it was added from outside"]]);
    assert_eq!(known(&cluster, "configmap", "web")[0], "it was added from outside");
    cluster.stop().await;
}
