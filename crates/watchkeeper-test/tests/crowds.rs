//! A thousand workloads at once, with a restart of all controllers in between: nothing is forgotten, and nothing made twice.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Client, Env, Kind};
use watchkeeper_controllers::cluster::{self, Options};
use watchkeeper_test::TestCluster;

const CROWD: usize = 1000;

async fn list<K: Kind<DynamicType: Default>>(client: &Client) -> Vec<K> {
    let scope = Scope::Namespace("default".to_owned());
    client.api::<K>().list(&scope, &Selection::default()).await.unwrap().complete().unwrap()
}

/// Waits until so many objects are done.
async fn until<K: Kind<DynamicType: Default>>(client: &Client, count: usize, is_done: impl Fn(&K) -> bool) {
    for _ in 0..600 {
        let done = list::<K>(client).await.iter().filter(|object| is_done(object)).count();
        if done >= count {
            return;
        }
        client.env().clock.sleep(Duration::from_secs(1)).await;
    }
    panic!("{} of {CROWD} are not done", K::kind(&Default::default()));
}

/// Starts the controllers.
fn start(client: &Client) -> (CancellationToken, JoinHandle<()>) {
    let (client, stop) = (client.clone(), CancellationToken::new());
    let token = stop.clone();
    let run = tokio::spawn(async move { cluster::run(&client, &Options::default(), token).await });
    (stop, run)
}

/// Creates the crowd, restarts the controllers when a tenth of it is done, and returns how many Pods there are in the end.
async fn crowd<K>(spec: impl Fn(&str) -> Value, is_done: impl Fn(&K) -> bool) -> usize
where
    K: Kind<DynamicType: Default> + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let plane = TestCluster::builder().env(&Env::simulated(1)).without_operator().await;
    let client = plane.client();
    let start = || start(client);
    let (stop, run) = start();
    for number in 0..CROWD {
        let name = format!("a{number}");
        let object = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec(&name)});
        client.api::<K>().create(&serde_json::from_value(object).unwrap()).await.unwrap();
    }
    until::<K>(client, CROWD / 10, &is_done).await;
    stop.cancel();
    run.await.unwrap();
    let (_stop, _run) = start();
    until::<K>(client, CROWD, &is_done).await;
    list::<Pod>(client).await.len()
}

fn server(name: &str) -> Value {
    json!({"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "a"}]}}})
}

#[tokio::test(start_paused = true)]
async fn a_thousand_deployments_become_available() {
    let is_done =
        |it: &Deployment| it.status.as_ref().is_some_and(|status| status.available_replicas == Some(1));
    assert_eq!(crowd::<Deployment>(server, is_done).await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_stateful_sets_become_ready() {
    let spec = |name: &str| {
        let mut spec = server(name);
        spec["serviceName"] = name.into();
        spec
    };
    let is_done =
        |it: &StatefulSet| it.status.as_ref().is_some_and(|status| status.ready_replicas == Some(1));
    assert_eq!(crowd::<StatefulSet>(spec, is_done).await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_daemon_sets_become_ready() {
    let is_done =
        |it: &DaemonSet| it.status.as_ref().is_some_and(|status| status.number_available == Some(1));
    assert_eq!(crowd::<DaemonSet>(server, is_done).await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_jobs_complete() {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]});
    let is_done = |it: &Job| it.status.as_ref().is_some_and(|status| status.completion_time.is_some());
    assert_eq!(crowd::<Job>(|_| json!({"template": {"spec": pod}}), is_done).await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_replication_controllers_become_ready() {
    let spec = |name: &str| {
        let mut spec = server(name);
        spec.as_object_mut().unwrap().remove("selector");
        spec
    };
    let is_done = |it: &ReplicationController| {
        it.status.as_ref().is_some_and(|status| status.ready_replicas == Some(1))
    };
    assert_eq!(crowd::<ReplicationController>(spec, is_done).await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_cron_jobs_start_one_job_each_at_their_time() {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]});
    // The clock starts at midnight: this is once within the time of the test.
    let spec = json!({"schedule": "5 0 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
    let is_done =
        |it: &CronJob| it.status.as_ref().is_some_and(|status| status.last_successful_time.is_some());
    assert_eq!(crowd::<CronJob>(|_| spec.clone(), is_done).await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_claims_are_protected() {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let is_done =
        |it: &PersistentVolumeClaim| it.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
    assert_eq!(crowd::<PersistentVolumeClaim>(|_| spec.clone(), is_done).await, 0);
}

/// Creates a crowd that follows one Deployment of three Pods, restarts the controllers when a tenth of it is done, and returns it.
async fn followers<K, S>(spec: &Value, is_done: impl Fn(&S) -> bool) -> Vec<S>
where
    K: Kind<DynamicType: Default> + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
    S: Kind<DynamicType: Default>,
{
    let plane = TestCluster::builder().env(&Env::simulated(1)).without_operator().await;
    let client = plane.client();
    let mut web = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": server("web")});
    web["spec"]["replicas"] = json!(3);
    client.api::<Deployment>().create(&serde_json::from_value(web).unwrap()).await.unwrap();
    let (stop, run) = start(client);
    for number in 0..CROWD {
        let metadata = json!({"name": format!("a{number}"), "namespace": "default"});
        let object = json!({ "metadata": metadata, "spec": spec });
        client.api::<K>().create(&serde_json::from_value(object).unwrap()).await.unwrap();
    }
    until::<S>(client, CROWD / 10, |_| true).await;
    stop.cancel();
    run.await.unwrap();
    let (_stop, _run) = start(client);
    until::<S>(client, CROWD, is_done).await;
    list::<S>(client).await
}

#[tokio::test(start_paused = true)]
async fn a_thousand_services_get_their_endpoints() {
    let has_all = |slice: &EndpointSlice| {
        let conditions = slice.endpoints.iter().flatten().filter_map(|endpoint| endpoint.conditions.as_ref());
        conditions.filter(|conditions| conditions.ready == Some(true)).count() == 3
    };
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    assert_eq!(followers::<Service, EndpointSlice>(&spec, has_all).await.len(), CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_budgets_count_their_pods() {
    let is_done = |it: &PodDisruptionBudget| {
        it.status
            .as_ref()
            .is_some_and(|status| (status.current_healthy, status.disruptions_allowed) == (Some(3), Some(1)))
    };
    let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}});
    followers::<PodDisruptionBudget, PodDisruptionBudget>(&spec, is_done).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_quotas_count_what_is_used() {
    let is_done = |it: &ResourceQuota| {
        let used = it.status.as_ref().and_then(|status| status.used.as_ref());
        used.and_then(|used| used.get("pods")).is_some_and(|pods| pods.0 == "3")
    };
    followers::<ResourceQuota, ResourceQuota>(&json!({"hard": {"pods": "9"}}), is_done).await;
}
