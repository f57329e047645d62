//! Limits of failures per index: how often an index has failed, and which indexes have failed for good.

// The number of failures of an index is in the annotations of its last Pod, which therefore stays until it is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::indexes::Indexes;
use super::policy::{Failure, judge};
use super::tally::{is_failed, is_tracked, valid_index};
use crate::pods::is_active;

/// The annotations with the failures of an index before this Pod: those that count, and those that are ignored.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The failures of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Failures {
    pub(super) counted: i32,
    pub(super) ignored: i32,
}

/// How often an index may fail and be tried again; none if the Job has one limit for all.
pub(super) fn limit(job: &Job) -> Option<i32> {
    job.spec.as_ref()?.backoff_limit_per_index
}

/// The failures of an index including that of this Pod.
pub(super) fn failures(job: &Job, pod: &Pod) -> Failures {
    let number = |name: &str| {
        let value = pod.metadata.annotations.as_ref().and_then(|all| all.get(name));
        value.and_then(|value| value.parse::<i32>().ok()).unwrap_or_default()
    };
    let before = Failures { counted: number(FAILURES), ignored: number(IGNORED) };
    match judge(job, pod) {
        Failure::Ignore => Failures { ignored: before.ignored + 1, ..before },
        _ => Failures { counted: before.counted + 1, ..before },
    }
}

/// The indexes that have failed for good.
pub(super) fn failed(job: &Job, status: &JobStatus, pods: &[Arc<Pod>]) -> Indexes {
    let Some(limit) = limit(job) else { return Indexes::default() };
    let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or_default();
    let known = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), completions);
    let gives_up = |pod: &&Arc<Pod>| match judge(job, pod) {
        Failure::FailIndex => true,
        Failure::Ignore => false,
        _ => failures(job, pod).counted > limit,
    };
    let pods = pods.iter().filter(|pod| is_tracked(pod) && is_failed(job, pod)).filter(gives_up);
    known.with(pods.filter_map(|pod| valid_index(job, pod)))
}

/// The failed Pod of each index that knows of the most failures.
pub(super) fn latest<'a>(job: &Job, pods: &'a [Arc<Pod>]) -> BTreeMap<i32, (Failures, &'a Arc<Pod>)> {
    let mut latest = BTreeMap::<i32, (Failures, &Arc<Pod>)>::new();
    for pod in pods.iter().filter(|pod| is_failed(job, pod)) {
        let Some(index) = valid_index(job, pod) else { continue };
        let failures = failures(job, pod);
        match latest.get(&index) {
            Some((known, _)) if known.counted + known.ignored >= failures.counted + failures.ignored => {}
            _ => drop(latest.insert(index, (failures, pod))),
        }
    }
    latest
}

/// The uids of Pods that keep their finalizer until their index has another Pod.
pub(super) fn held(job: &Job, pods: &[Arc<Pod>]) -> BTreeSet<String> {
    if limit(job).is_none() {
        return BTreeSet::new();
    }
    let status = job.status.clone().unwrap_or_default();
    let failed = failed(job, &status, pods);
    let replaced: BTreeSet<_> =
        pods.iter().filter(|pod| is_active(pod)).filter_map(|pod| valid_index(job, pod)).collect();
    let waits = |index: &i32| !failed.contains(*index) && !replaced.contains(index);
    let latest = latest(job, pods).into_iter().filter(|(index, _)| waits(index));
    latest.filter_map(|(_, (_, pod))| pod.metadata.uid.clone()).collect()
}
