//! Jobs as pure functions: what they do with their Pods, and how they end.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use super::per_index::{FAILURES, Failures};
use super::plan::{NewPod, Plan, count_pods, end, plan, time_to_live};
use super::tally::{INDEX, TRACKING, count_released};
use super::template::pod_of;

fn job(spec: Value, status: Value) -> Job {
    let mut whole = json!({"parallelism": 2, "completions": 4, "backoffLimit": 6,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({"name": "work", "namespace": "default", "uid": "u1"});
    serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).unwrap()
}

fn pod(name: &str, phase: &str, more: Value) -> Arc<Pod> {
    let state = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}});
    let container = json!({"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": if phase == "Failed" { state } else { json!({}) }});
    let mut metadata = json!({"name": name, "uid": name, "namespace": "default", "finalizers": [TRACKING]});
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let status = json!({"phase": phase, "containerStatuses": [container]});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
}

fn indexed(index: i32, phase: &str, failures: i32) -> Arc<Pod> {
    let annotations = json!({INDEX: index.to_string(), FAILURES: failures.to_string()});
    pod(&format!("i{index}-{failures}"), phase, json!({ "annotations": annotations }))
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// Carries a plan out without a server; returns the status in the end.
fn carry_out(plan: &Plan, pods: &[Arc<Pod>]) -> JobStatus {
    let mut status = plan.status.clone();
    count_pods(&mut status, pods, &plan.delete, plan.create.len());
    count_released(&mut status, &plan.release);
    if let Some(verdict) = &plan.verdict {
        end(&mut status, verdict, now());
    }
    status
}

fn conditions(status: &JobStatus) -> Vec<String> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .map(|it| format!("{}={} {}", it.type_, it.status, it.reason.as_deref().unwrap_or("")))
        .collect()
}

#[test]
fn pods_are_created_up_to_the_parallelism_and_what_is_left_to_do() {
    let create = |status: Value, pods: &[Arc<Pod>]| plan(&job(json!({}), status), pods, now()).create.len();
    assert_eq!(create(json!({}), &[]), 2);
    assert_eq!(create(json!({}), &[pod("a", "Running", json!({}))]), 1);
    assert_eq!(create(json!({"succeeded": 3}), &[]), 1);
    assert_eq!(create(json!({"succeeded": 4}), &[]), 0);
    let queue = job(json!({"completions": null}), json!({"succeeded": 1}));
    assert!(plan(&queue, &[pod("a", "Running", json!({}))], now()).create.is_empty());
}

#[test]
fn surplus_pods_go_when_the_parallelism_is_lowered() {
    let pods = [pod("a", "Running", json!({})), pod("b", "Pending", json!({}))];
    let plan = plan(&job(json!({"parallelism": 1}), json!({})), &pods, now());
    assert_eq!(plan.delete, [pods[1].clone()]);
    assert!(!plan.counts_deleted);
}

#[test]
fn an_ended_pod_is_listed_then_let_go_then_counted() {
    let job = job(json!({}), json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["gone"]}}));
    let pods = [pod("a", "Succeeded", json!({})), pod("b", "Failed", json!({}))];
    let plan = plan(&job, &pods, now());
    let listed = plan.status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!(
        (listed.succeeded.unwrap(), listed.failed.unwrap()),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    // What was listed and has no finalizer any more is counted now.
    assert_eq!((plan.status.succeeded, plan.release.len()), (Some(2), 2));
    let status = carry_out(&plan, &pods);
    assert_eq!((status.succeeded, status.failed), (Some(3), Some(1)));
    assert_eq!(serde_json::to_value(status.uncounted_terminated_pods).unwrap(), json!({}));
}

#[test]
fn a_job_completes_when_nothing_of_it_runs() {
    let job = job(json!({"completions": 1}), json!({"startTime": "2026-01-01T00:00:00Z"}));
    let pods = [pod("a", "Succeeded", json!({}))];
    let status = carry_out(&plan(&job, &pods, now()), &pods);
    assert_eq!(
        conditions(&status),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
    assert_eq!(status.completion_time.unwrap().0, now());
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []});
    let pods = [pod("a", "Succeeded", json!({})), pod("b", "Running", going)];
    let status = carry_out(&plan(&job, &pods, now()), &pods);
    assert_eq!(conditions(&status), ["SuccessCriteriaMet=True CompletionsReached"]);
    assert_eq!(status.terminating, Some(1));
}

#[test]
fn a_job_fails_beyond_its_backoff_limit_and_its_pods_go_first() {
    let job = job(json!({"backoffLimit": 1}), json!({"failed": 1}));
    let pods = [pod("a", "Failed", json!({})), pod("b", "Running", json!({}))];
    let plan = plan(&job, &pods, now());
    assert_eq!((plan.delete.len(), plan.counts_deleted), (1, true));
    let status = carry_out(&plan, &pods);
    assert_eq!(conditions(&status), ["FailureTarget=True BackoffLimitExceeded"]);
    assert_eq!((status.failed, status.active, status.terminating), (Some(3), None, Some(1)));
}

#[test]
fn failed_pods_are_replaced_after_a_delay_and_ignored_ones_do_not_count() {
    let at: Timestamp = "2026-01-01T00:00:04Z".parse().unwrap();
    let pods = [pod("a", "Failed", json!({}))];
    let waits = plan(&job(json!({"parallelism": 1}), json!({})), &pods, at);
    assert_eq!((waits.create.len(), waits.wake), (0, Some(Duration::from_secs(6))));
    let policy = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]});
    let tolerant = job(json!({"backoffLimit": 0, "podFailurePolicy": policy}), json!({}));
    let plan = plan(&tolerant, &pods, now());
    assert_eq!((plan.verdict.clone(), plan.create.len()), (None, 2));
    assert_eq!(carry_out(&plan, &pods).failed, None);
}

#[test]
fn a_pod_that_is_being_deleted_is_replaced_at_once_or_when_it_has_ended() {
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30});
    let pods = [pod("a", "Running", going)];
    let at_once = plan(&job(json!({"parallelism": 1}), json!({})), &pods, now());
    assert_eq!((at_once.create.len(), at_once.release.len()), (1, 1));
    let patient = json!({"parallelism": 1, "podReplacementPolicy": "Failed"});
    let later = plan(&job(patient, json!({})), &pods, now());
    assert_eq!((later.create.len(), later.release.len()), (0, 0));
}

#[test]
fn a_job_past_its_deadline_fails_and_one_before_it_looks_again() {
    let spec = json!({"activeDeadlineSeconds": 700});
    let left = plan(&job(spec, json!({"startTime": "2026-01-01T00:00:00Z"})), &[], now());
    assert_eq!((left.verdict, left.wake), (None, Some(Duration::from_secs(100))));
    let spec = json!({"activeDeadlineSeconds": 600});
    let over = plan(&job(spec, json!({"startTime": "2026-01-01T00:00:00Z"})), &[], now());
    assert_eq!((over.verdict.unwrap().reason.as_str(), over.wake), ("DeadlineExceeded", None));
}

#[test]
fn a_suspended_job_has_no_pods_and_its_clock_starts_when_it_resumes() {
    let pods = [pod("a", "Running", json!({}))];
    let stopped = plan(&job(json!({"suspend": true}), json!({})), &pods, now());
    assert_eq!((stopped.delete.len(), stopped.suspended), (1, Some(true)));
    assert_eq!(
        (stopped.status.start_time.clone(), conditions(&stopped.status)),
        (None, vec!["Suspended=True JobSuspended".to_owned()])
    );
    let status = serde_json::to_value(&stopped.status).unwrap();
    let resumed = plan(&job(json!({"suspend": false}), status), &[], now());
    assert_eq!((resumed.suspended, resumed.create.len()), (Some(false), 2));
    assert_eq!(conditions(&resumed.status), ["Suspended=False JobResumed"]);
    assert_eq!(resumed.status.start_time.unwrap().0, now());
}

#[test]
fn indexes_run_from_the_lowest_and_each_succeeds_once() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 3, "completions": 5});
    let job = job(spec, json!({"completedIndexes": "0"}));
    let pods = [indexed(1, "Succeeded", 0), indexed(2, "Running", 0), indexed(2, "Pending", 1)];
    let work = plan(&job, &pods, now());
    assert_eq!(work.delete, [pods[2].clone()]);
    assert_eq!(work.status.completed_indexes.as_deref(), Some("0,1"));
    assert_eq!(work.status.succeeded, Some(2));
    let next = plan(&job, &pods[..2], now());
    assert_eq!(next.create.iter().map(|new| new.index.unwrap()).collect::<Vec<_>>(), [3, 4]);
    let made = pod_of(&job, next.create[0], &Generator::seeded(1));
    assert!(made.metadata.name.unwrap().starts_with("work-3-"));
    assert_eq!(made.metadata.labels.unwrap()[INDEX], "3");
    let spec = made.spec.unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("work-3"));
    assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
}

#[test]
fn an_index_fails_beyond_its_own_limit_and_the_others_go_on() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 3, "completions": 3, "backoffLimitPerIndex": 1,
        "backoffLimit": i32::MAX});
    let pods = [indexed(0, "Failed", 0), indexed(1, "Failed", 1), indexed(2, "Succeeded", 0)];
    let work = plan(&job(spec.clone(), json!({})), &pods, now());
    let again = NewPod { index: Some(0), failures: Some(Failures { counted: 1, ignored: 0 }) };
    assert_eq!((work.create.clone(), work.status.failed_indexes.as_deref()), (vec![again], Some("1")));
    // The Pod that knows of the failures stays until it is replaced.
    assert_eq!(work.release, pods[1..]);
    let over = [indexed(0, "Failed", 1), indexed(1, "Failed", 1), indexed(2, "Succeeded", 0)];
    let failed = plan(&job(spec, json!({})), &over, now());
    assert_eq!(failed.verdict.as_ref().unwrap().reason, "FailedIndexes");
    assert_eq!(carry_out(&failed, &over).failed, Some(2));
}

#[test]
fn a_job_that_has_ended_lives_for_its_time() {
    let ended = json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:09:00Z"}]});
    let left = |ttl: Value| time_to_live(&job(json!({"ttlSecondsAfterFinished": ttl}), ended.clone()), now());
    assert_eq!(left(json!(100)), Some(Duration::from_secs(40)));
    assert_eq!((left(json!(0)), left(Value::Null)), (Some(Duration::ZERO), None));
}
