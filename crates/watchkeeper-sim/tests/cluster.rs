//! The controllers of workloads through every fault: here they are what is checked, and the user plays the nodes.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use watchkeeper::controller::Manager;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Kind, ObjectName};
use watchkeeper_controllers::{
    cron_job, daemon_set, deployment, disruption, job, replica_set, replication_controller, stateful_set,
};
use watchkeeper_sim::{Check, Difference, FaultKind, Objects, User};

/// The fault of a server that is restored from a backup.
fn restored_backups() -> impl Iterator<Item = FaultKind> {
    FaultKind::ALL.into_iter().filter(|kind| kind.name() == "set-back")
}

/// The faults of a clock that is not that of the server.
fn odd_clocks() -> impl Iterator<Item = FaultKind> {
    FaultKind::ALL.into_iter().filter(|kind| kind.name().starts_with("clock-"))
}

/// How often the user looks for Pods before something is wrong.
const ROUNDS: usize = 2000;

/// Gives all Pods that have none a status, until the object is as it should be.
async fn run_pods<K>(user: &User, key: &str, status: impl Fn(&Pod) -> Value, is_done: impl Fn(&K) -> bool)
where
    K: Kind<DynamicType: Default>,
{
    for _ in 0..ROUNDS {
        let scope = Scope::Namespace("default".to_owned());
        let pods = user.client().api::<Pod>().list(&scope, &Selection::default()).await.unwrap();
        for pod in pods.complete().unwrap() {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            if phase.is_none_or(|phase| phase == "Pending") && pod.metadata.deletion_timestamp.is_none() {
                let name = format!("default/{}", pod.metadata.name.as_ref().unwrap());
                user.patch_status::<Pod>(&name, json!({"status": status(&pod)})).await;
            }
        }
        if user.get::<K>(key).await.is_some_and(|object| is_done(&object)) {
            return;
        }
        user.sleep(Duration::from_secs(1)).await;
    }
    user.eventually::<K>(key, is_done).await;
}

fn ready(_: &Pod) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"phase": "Running", "conditions": [ready]})
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

async fn create<K>(user: &User, name: &str, mut spec: Value)
where
    K: Kind<DynamicType: Default> + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    spec["template"] = template("a:1");
    let metadata = json!({"name": name, "namespace": "default"});
    user.create(&serde_json::from_value::<K>(json!({"metadata": metadata, "spec": spec})).unwrap()).await;
}

/// A Deployment is rolled out, updated and scaled.
async fn rollouts(user: &User) {
    let is_done = |it: &Deployment, replicas: i32| {
        let status = it.status.clone().unwrap_or_default();
        let count = |count: Option<i32>| count.unwrap_or_default() == replicas;
        status.observed_generation == it.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas].into_iter().all(count)
    };
    create::<Deployment>(user, "web", json!({"replicas": 2})).await;
    run_pods::<Deployment>(user, "default/web", ready, |it| is_done(it, 2)).await;
    user.patch::<Deployment>("default/web", json!({"spec": {"replicas": 1, "template": template("a:2")}}))
        .await;
    run_pods::<Deployment>(user, "default/web", ready, |it| is_done(it, 1)).await;
    user.settle().await;
}

/// Whether only the progress of a rollout is told otherwise: it is still that of the rollout before.
fn is_earlier_progress(difference: &Difference) -> bool {
    let is_progress = |condition: &Value| condition["type"] == "Progressing";
    let conditions = |object: &Value| -> Vec<Value> {
        object["status"]["conditions"].as_array().cloned().unwrap_or_default()
    };
    let is_earlier = |object: &Value| {
        let mut progress = conditions(object).into_iter().filter(|it| is_progress(it));
        progress.all(|condition| condition["reason"] == "NewReplicaSetAvailable")
    };
    let without = |object: &Value| {
        let mut object = object.clone();
        let others = conditions(&object).into_iter().filter(|it| !is_progress(it)).collect::<Vec<_>>();
        object["status"]["conditions"] = others.into();
        object
    };
    let rest = |objects: &[Value]| objects.iter().map(without).collect::<Vec<_>>();
    difference.what == "deployments.apps default/web"
        && difference.found.iter().all(is_earlier)
        && rest(&difference.expected) == rest(&difference.found)
}

fn roll_out(check: Check) {
    // So it is in Kubernetes: how many replicas are updated says too little then.
    let reason = "a rollout whose first status cannot be written does not show that it progresses";
    let check = check.known(reason, is_earlier_progress);
    let register = |manager: &mut Manager, (): &()| {
        deployment::register(manager)?;
        replica_set::register(manager)
    };
    let report = check.run(|_| (), register, rollouts).unwrap();
    println!("{report}");
}

#[test]
fn through_every_fault_a_deployment_is_rolled_out() {
    roll_out(Check::builder().name("deployments").without(restored_backups()).pairs(10).seeds(20));
}

#[test]
fn through_restored_backups_a_deployment_makes_at_most_too_many_pods() {
    let reason = "sets are listed before their Pods, and Pods are made that are then too many: they go again";
    let is_pod_count = |it: &Difference| {
        ["created pods default/web-", "deleted pods default/web-"]
            .iter()
            .any(|what| it.what.starts_with(what))
    };
    let check = Check::builder().name("restored deployments").faults(restored_backups());
    roll_out(check.pairs(20).seeds(20).known(reason, is_pod_count));
}

/// Of the Pods of a Job one fails, and the others succeed.
async fn work(user: &User) {
    let spec = json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed",
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}}});
    let metadata = json!({"name": "work", "namespace": "default"});
    user.create(&serde_json::from_value::<Job>(json!({"metadata": metadata, "spec": spec})).unwrap()).await;
    let ended = |it: &Job, of: &str| {
        let conditions = it.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == of && condition.status == "True")
    };
    run_pods::<Job>(user, "default/work", |_| json!({"phase": "Succeeded"}), |it| ended(it, "Complete"))
        .await;
    let done = user.get::<Job>("default/work").await.unwrap().status.unwrap();
    assert_eq!((done.succeeded, done.completed_indexes.as_deref()), (Some(3), Some("0-2")));
    user.delete::<Job>("default/work").await;
    user.eventually_gone::<Job>("default/work").await;

    let spec = json!({"backoffLimit": 1, "parallelism": 1, "completions": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}}});
    let metadata = json!({"name": "doomed", "namespace": "default"});
    user.create(&serde_json::from_value::<Job>(json!({"metadata": metadata, "spec": spec})).unwrap()).await;
    run_pods::<Job>(user, "default/doomed", |_| json!({"phase": "Failed"}), |it| ended(it, "Failed")).await;
    user.settle().await;
    let done = user.get::<Job>("default/doomed").await.unwrap().status.unwrap();
    assert_eq!((done.succeeded, done.failed), (None, Some(2)));
}

#[test]
fn through_every_fault_a_job_counts_each_pod_once() {
    let report = Check::builder()
        .name("jobs")
        // After a restored backup, a Pod is let go because it is listed in a status that the server has lost: it is not counted.
        .without(restored_backups())
        // A Pod that could not be read was taken for missing, and replaced.
        .schedule(
            "hide(0ms) @ watch pods #1 event 2; refuse(429) @ watch pods #2; undecodable @ watch pods #3 event 1",
        )
        // A controller whose clock was an hour behind waited an hour before it replaced a Pod that had failed.
        .schedule("without=2,3,4; clock-offset(-3600) @ step 0")
        .pairs(10)
        .seeds(20)
        .run(|_| (), |manager, ()| job::register(manager), work)
        .unwrap();
    println!("{report}");
}

/// A StatefulSet grows, is updated and shrinks.
async fn ordinals(user: &User) {
    let is_done = |it: &StatefulSet, replicas: i32| {
        let status = it.status.clone().unwrap_or_default();
        status.observed_generation == it.metadata.generation
            && status.replicas == replicas
            && status.ready_replicas.unwrap_or_default() == replicas
            && status.current_revision == status.update_revision
            && status.updated_replicas.unwrap_or_default() == replicas
    };
    create::<StatefulSet>(user, "db", json!({"replicas": 2, "serviceName": "db"})).await;
    run_pods::<StatefulSet>(user, "default/db", ready, |it| is_done(it, 2)).await;
    user.patch::<StatefulSet>("default/db", json!({"spec": {"template": template("a:2")}})).await;
    run_pods::<StatefulSet>(user, "default/db", ready, |it| is_done(it, 2)).await;
    user.patch::<StatefulSet>("default/db", json!({"spec": {"replicas": 1}})).await;
    run_pods::<StatefulSet>(user, "default/db", ready, |it| is_done(it, 1)).await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_stateful_set_keeps_its_order() {
    let report = Check::builder()
        .name("stateful sets")
        .pairs(10)
        .seeds(20)
        .run(|_| (), |manager, ()| stateful_set::register(manager), ordinals)
        .unwrap();
    println!("{report}");
}

/// A DaemonSet runs on two nodes, is updated, and leaves one of them.
async fn daemons(user: &User) {
    for name in ["n1", "n2"] {
        user.create(&serde_json::from_value::<Node>(json!({"metadata": {"name": name}})).unwrap()).await;
        user.patch::<Node>(name, json!({"spec": {"taints": null}})).await;
    }
    let is_done = |it: &DaemonSet, nodes: i32| {
        let status = it.status.clone().unwrap_or_default();
        status.observed_generation == it.metadata.generation
            && status.desired_number_scheduled == nodes
            && status.number_ready == nodes
            && status.updated_number_scheduled.unwrap_or_default() == nodes
    };
    create::<DaemonSet>(user, "agent", json!({})).await;
    run_pods::<DaemonSet>(user, "default/agent", ready, |it| is_done(it, 2)).await;
    user.patch::<DaemonSet>("default/agent", json!({"spec": {"template": template("a:2")}})).await;
    run_pods::<DaemonSet>(user, "default/agent", ready, |it| is_done(it, 2)).await;
    user.patch::<Node>("n2", json!({"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}})).await;
    run_pods::<DaemonSet>(user, "default/agent", ready, |it| is_done(it, 1)).await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_daemon_set_has_one_pod_on_each_node() {
    let report = Check::builder()
        .name("daemon sets")
        .pairs(10)
        .seeds(20)
        .run(|_| (), |manager, ()| daemon_set::register(manager), daemons)
        .unwrap();
    println!("{report}");
}

/// A ReplicationController grows and shrinks.
async fn replicas(user: &User) {
    let is_done = |it: &ReplicationController, replicas: i32| {
        let status = it.status.clone().unwrap_or_default();
        status.observed_generation == it.metadata.generation
            && (status.replicas, status.ready_replicas.unwrap_or_default()) == (replicas, replicas)
    };
    let of = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"app": "a"}, "template": template("a:1")}});
    user.create(&serde_json::from_value::<ReplicationController>(of).unwrap()).await;
    for count in [2, 3, 1] {
        user.patch::<ReplicationController>("default/web", json!({"spec": {"replicas": count}})).await;
        run_pods::<ReplicationController>(user, "default/web", ready, |it| is_done(it, count)).await;
    }
    user.settle().await;
}

#[test]
fn through_every_fault_a_replication_controller_keeps_its_pods() {
    let report = Check::builder()
        .name("replication controllers")
        .pairs(10)
        .seeds(20)
        .run(|_| (), |manager, ()| replication_controller::register(manager), replicas)
        .unwrap();
    println!("{report}");
}

fn has_ended(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
}

/// Two times of a schedule come, one after the other; the Job of the second starts when that of the first has ended.
async fn times(user: &User) {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]});
    let spec = json!({"schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1,
        "jobTemplate": {"spec": {"template": {"spec": pod}}}});
    let cron = json!({"metadata": {"name": "tick", "namespace": "default"}, "spec": spec});
    user.create(&serde_json::from_value::<CronJob>(cron).unwrap()).await;
    let mut done = 0;
    for _ in 0..ROUNDS {
        let scope = Scope::Namespace("default".to_owned());
        let jobs = user.client().api::<Job>().list(&scope, &Selection::default()).await.unwrap();
        for job in jobs.complete().unwrap().iter().filter(|job| !has_ended(job)) {
            let now = user.env().clock.wall().to_string();
            let now = format!("{}Z", &now[..19]);
            let is = |of: &str| json!({"type": of, "status": "True", "lastTransitionTime": now});
            let conditions = [is("SuccessCriteriaMet"), is("Complete")];
            let name = format!("default/{}", job.metadata.name.as_ref().unwrap());
            let status =
                json!({"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions});
            user.patch_status::<Job>(&name, json!({ "status": status })).await;
            done += 1;
        }
        let status = user.get::<CronJob>("default/tick").await.unwrap().status.unwrap_or_default();
        if done >= 2
            && status.active.is_none_or(|active| active.is_empty())
            && status.last_successful_time.is_some()
        {
            break;
        }
        user.sleep(Duration::from_secs(30)).await;
    }
    assert!(done >= 2, "{done} jobs have run");
    // What it has started goes with it.
    user.delete::<CronJob>("default/tick").await;
    user.eventually_gone::<CronJob>("default/tick").await;
    user.settle().await;
}

/// Of a CronJob that forbids it, no two Jobs run at a time.
fn one_at_a_time(objects: &Objects) -> Result<(), String> {
    let active = objects.list::<Job>().iter().filter(|job| !has_ended(job)).count();
    if active > 1 { Err(format!("{active} jobs run")) } else { Ok(()) }
}

#[test]
fn through_every_fault_a_cron_job_starts_one_job_at_a_time() {
    let report = Check::builder()
        .name("cron jobs")
        // A restored backup has no word of a Job's end that the controller has seen. A controller whose clock is off starts the Jobs of
        // its own time.
        .without(restored_backups().chain(odd_clocks()))
        .always("one job at a time", one_at_a_time)
        .known("a story that takes longer has more times, each with one Job, and keeps the last one", |it| {
            let is_job = ["created jobs.batch default/tick-", "deleted jobs.batch default/tick-"]
                .iter()
                .any(|what| it.what.starts_with(what));
            is_job && it.found == [json!(1)]
        })
        .pairs(10)
        .seeds(20)
        .run(|_| (), |manager, ()| cron_job::register(manager), times)
        .unwrap();
    println!("{report}");
}

/// Pods come and are evicted, and a budget changes.
async fn budgets(user: &User) {
    let budget = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}}});
    user.create(&serde_json::from_value::<PodDisruptionBudget>(budget).unwrap()).await;
    let run = async |name: &str| {
        let mut pod = template("a:1");
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["namespace"] = "default".into();
        user.create(&serde_json::from_value::<Pod>(pod).unwrap()).await;
        user.patch_status::<Pod>(&format!("default/{name}"), json!({"status": ready(&Pod::default())})).await;
    };
    let evict = async |name: &str| {
        let metadata = json!({"name": name, "namespace": "default"});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        let key = ObjectName::namespaced("default", name);
        user.client().api::<Pod>().create_subresource("eviction", &key, &eviction).await.is_ok()
    };
    let allows = async |allowed: i64, pods: i64| {
        let is_so = |budget: &PodDisruptionBudget| {
            let status = serde_json::to_value(&budget.status).unwrap();
            let disrupted = status["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
            let is_current = status["observedGeneration"] == json!(budget.metadata.generation);
            let healthy = (&status["currentHealthy"], &status["expectedPods"]);
            is_current
                && disrupted == 0
                && status["disruptionsAllowed"] == allowed
                && healthy == (&json!(pods), &json!(pods))
        };
        user.eventually::<PodDisruptionBudget>("default/web", is_so).await;
    };
    for name in ["p0", "p1", "p2"] {
        run(name).await;
    }
    allows(1, 3).await;
    assert!(evict("p0").await);
    allows(0, 2).await;
    assert!(!evict("p1").await);
    run("p3").await;
    allows(1, 3).await;
    user.patch::<PodDisruptionBudget>("default/web", json!({"spec": {"minAvailable": 1}})).await;
    allows(2, 3).await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_budget_says_how_many_pods_may_be_evicted() {
    let report = Check::builder()
        .name("budgets")
        .pairs(10)
        .seeds(20)
        .run(|_| (), |manager, ()| disruption::register(manager), budgets)
        .unwrap();
    println!("{report}");
}
