//! Jobs and CronJobs on a test cluster, whose Pods complete, fail and hang as they are told.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube_core::params::{DeleteParams, Patch};
use serde_json::{Value, json};
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Env, ObjectName};
use watchkeeper_test::TestCluster;

async fn cluster() -> TestCluster {
    let patience = Duration::from_secs(3600);
    TestCluster::builder().env(&Env::simulated(1)).patience(patience).nodes(1).without_operator().await
}

fn job(spec: &str, annotations: &str, command: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: work}}, spec: {{{spec} template: {{metadata: {{annotations: \
         {{{annotations}}}}}, spec: {{restartPolicy: Never, containers: [{{name: main, image: a, command: [sh, -c, '{command}']}}]}}}}}}}}"
    )
}

fn reason(job: &Job, of: &str) -> Option<String> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == of && condition.status == "True")?;
    found.reason.clone()
}

async fn ended(cluster: &TestCluster, of: &str) -> Job {
    cluster.eventually::<Job>("default/work", |job| reason(job, of).is_some()).await
}

async fn pods(cluster: &TestCluster) -> Vec<Pod> {
    let scope = Scope::Namespace("default".to_owned());
    cluster.client().api::<Pod>().list(&scope, &Selection::default()).await.unwrap().complete().unwrap()
}

async fn patch(cluster: &TestCluster, patch: Value) {
    let key = ObjectName::namespaced("default", "work");
    cluster.client().api::<Job>().patch(&key, &Patch::Merge(patch)).await.unwrap();
}

fn tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|it| it == "batch.kubernetes.io/job-tracking")
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_its_completions_and_counts_each_pod_once() {
    let cluster = cluster().await;
    cluster.apply(&job("completions: 5, parallelism: 2,", "", "sleep 3")).await;
    let job = ended(&cluster, "Complete").await;
    let status = job.status.clone().unwrap();
    assert_eq!((status.succeeded, status.failed, status.active), (Some(5), None, None));
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    assert_eq!(reason(&job, "SuccessCriteriaMet").as_deref(), Some("CompletionsReached"));
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    let made = pods(&cluster).await;
    assert_eq!(made.len(), 5);
    assert!(!made.iter().any(tracked));
    assert!(made.iter().all(|pod| pod.metadata.labels.as_ref().unwrap()["job-name"] == "work"));
    cluster.eventually_any::<Event>(|event| event.reason.as_deref() == Some("Completed")).await;
}

#[tokio::test(start_paused = true)]
async fn every_index_of_an_indexed_job_succeeds() {
    let cluster = cluster().await;
    cluster.apply(&job("completions: 4, parallelism: 2, completionMode: Indexed,", "", "true")).await;
    let job = ended(&cluster, "Complete").await;
    assert_eq!(job.status.unwrap().completed_indexes.as_deref(), Some("0-3"));
    let mut hosts: Vec<_> =
        pods(&cluster).await.into_iter().map(|pod| pod.spec.unwrap().hostname.unwrap()).collect();
    hosts.sort();
    assert_eq!(hosts, ["work-0", "work-1", "work-2", "work-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_fail_reaches_its_backoff_limit() {
    let cluster = cluster().await;
    cluster.apply(&job("backoffLimit: 2,", "", "exit 3")).await;
    let start = cluster.client().env().clock.wall();
    let job = ended(&cluster, "Failed").await;
    let took = cluster.client().env().clock.wall().duration_since(start).as_secs();
    assert_eq!(reason(&job, "Failed").as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(reason(&job, "FailureTarget").as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(job.status.unwrap().failed, Some(3));
    assert!((30..60).contains(&took), "10 s and 20 s between the Pods, not {took} s");
}

#[tokio::test(start_paused = true)]
async fn a_failure_policy_ends_a_job_at_once() {
    let cluster = cluster().await;
    let policy = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]},";
    cluster.apply(&job(policy, "", "exit 42")).await;
    let job = ended(&cluster, "Failed").await;
    assert_eq!(reason(&job, "Failed").as_deref(), Some("PodFailurePolicy"));
    assert_eq!(pods(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_past_its_deadline_stops_its_pods_first() {
    let cluster = cluster().await;
    let stop = "watchkeeper.dev/stop-delay: 5s";
    cluster
        .apply(&job("parallelism: 2, completions: 2, activeDeadlineSeconds: 10,", stop, "sleep 600"))
        .await;
    let target = ended(&cluster, "FailureTarget").await;
    assert_eq!((reason(&target, "Failed"), target.status.unwrap().terminating), (None, Some(2)));
    let job = ended(&cluster, "Failed").await;
    assert_eq!(reason(&job, "Failed").as_deref(), Some("DeadlineExceeded"));
    assert_eq!((job.status.unwrap().failed, pods(&cluster).await.len()), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_is_suspended_resumed_and_gone_after_its_time() {
    let cluster = cluster().await;
    cluster.apply(&job("suspend: true, ttlSecondsAfterFinished: 60,", "", "sleep 30")).await;
    ended(&cluster, "Suspended").await;
    assert_eq!(pods(&cluster).await.len(), 0);
    patch(&cluster, json!({"spec": {"suspend": false}})).await;
    let runs = |job: &Job| job.status.as_ref().is_some_and(|status| status.ready == Some(1));
    cluster.eventually::<Job>("default/work", runs).await;
    patch(&cluster, json!({"spec": {"suspend": true}})).await;
    let stops = |job: &Job| job.status.as_ref().is_some_and(|status| status.active.is_none());
    let stopped = cluster.eventually::<Job>("default/work", stops).await;
    assert_eq!(stopped.status.unwrap().failed, None);
    patch(&cluster, json!({"spec": {"suspend": false}})).await;
    ended(&cluster, "Complete").await;
    cluster.eventually_gone::<Job>("default/work").await;
    for pod in pods(&cluster).await {
        cluster.eventually_gone::<Pod>(&format!("default/{}", pod.metadata.name.unwrap())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_job_go_and_orphans_are_let_go() {
    let cluster = cluster().await;
    cluster.apply(&job("", "", "sleep 600")).await;
    let runs = |job: &Job| job.status.as_ref().is_some_and(|status| status.ready == Some(1));
    cluster.eventually::<Job>("default/work", runs).await;
    let pod = format!("default/{}", pods(&cluster).await[0].metadata.name.clone().unwrap());
    cluster.delete::<Job>("default/work").await;
    cluster.eventually_gone::<Pod>(&pod).await;

    cluster.apply(&job("", "", "sleep 600")).await;
    cluster.eventually::<Job>("default/work", runs).await;
    let key = ObjectName::namespaced("default", "work");
    cluster.client().api::<Job>().delete_with(&key, &DeleteParams::orphan()).await.unwrap();
    cluster.eventually_gone::<Job>("default/work").await;
    let pod = format!("default/{}", pods(&cluster).await[0].metadata.name.clone().unwrap());
    cluster.eventually::<Pod>(&pod, |pod| !tracked(pod) && pod.metadata.owner_references.is_none()).await;
}

const TICK: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: '*/5 * * * *'
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 2
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a, command: [sleep, '60']}]}}}}
";

#[tokio::test(start_paused = true)]
async fn a_cron_job_starts_jobs_on_time_and_keeps_a_history() {
    let cluster = cluster().await;
    cluster.apply(TICK).await;
    let has_run = |cron: &CronJob| {
        cron.status
            .as_ref()
            .is_some_and(|status| status.last_schedule_time.is_some() && status.active.is_some())
    };
    let cron = cluster.eventually::<CronJob>("default/tick", has_run).await;
    let status = cron.status.unwrap();
    let time = status.last_schedule_time.unwrap().0;
    assert_eq!(time.as_second() % 300, 0);
    assert_eq!(status.active.unwrap()[0].name.clone().unwrap(), format!("tick-{}", time.as_second() / 60));
    cluster.client().env().clock.sleep(Duration::from_secs(1500)).await;
    let scope = Scope::Namespace("default".to_owned());
    let jobs = cluster.client().api::<Job>().list(&scope, &Selection::default()).await.unwrap();
    let jobs = jobs.complete().unwrap();
    let done = jobs.iter().filter(|job| reason(job, "Complete").is_some()).count();
    assert_eq!(done, 2);
    let cron = cluster.get::<CronJob>("default/tick").await.unwrap();
    assert!(cron.status.unwrap().last_successful_time.is_some());
    cluster.delete::<CronJob>("default/tick").await;
    for job in jobs {
        cluster.eventually_gone::<Job>(&format!("default/{}", job.metadata.name.unwrap())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_that_forbids_it_does_not_start_a_second_job() {
    let cluster = cluster().await;
    cluster.apply(&TICK.replace("'60'", "'7200'")).await;
    let refused = |event: &Event| event.reason.as_deref() == Some("JobAlreadyActive");
    cluster.eventually_any::<Event>(refused).await;
    let scope = Scope::Namespace("default".to_owned());
    let jobs = cluster.client().api::<Job>().list(&scope, &Selection::default()).await.unwrap();
    assert_eq!(jobs.complete().unwrap().len(), 1);
}
