//! The delay before Pods that have failed are replaced.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::per_index::Failures;
use super::tally::is_failed;
use crate::pods::{phase, since_then};

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The time until a failed Pod of the Job may be replaced. It doubles with each failure since the last success.
pub(super) fn left(job: &Job, pods: &[Arc<Pod>], now: Timestamp) -> Duration {
    let ends = |test: &dyn Fn(&Pod) -> bool| -> Vec<Timestamp> {
        pods.iter().filter(|pod| test(pod)).map(|pod| ended_at(pod, now)).collect()
    };
    let success = ends(&|pod| phase(pod) == "Succeeded").into_iter().max();
    let mut failures = ends(&|pod| is_failed(job, pod));
    failures.retain(|at| success.is_none_or(|success| *at > success));
    let Some(last) = failures.iter().max() else { return Duration::ZERO };
    rest(failures.len(), *last, now)
}

/// The time until the Pod of an index may be replaced, after so many failures of that index.
pub(super) fn left_of_index(failures: Failures, pod: &Pod, now: Timestamp) -> Duration {
    let count = usize::try_from(failures.counted + failures.ignored).unwrap_or_default();
    rest(count, ended_at(pod, now), now)
}

fn rest(failures: usize, last: Timestamp, now: Timestamp) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(6);
    let delay = (FIRST * 2_u32.pow(doublings)).min(LONGEST);
    if since_then(now, last) > LONGEST {
        // This clock is far behind that of the node: the Job would wait until it has caught up.
        return Duration::ZERO;
    }
    delay.saturating_sub(since_then(last, now))
}

/// When the last container of a Pod ended; if none has said so, when the Pod was deleted or created.
fn ended_at(pod: &Pod, now: Timestamp) -> Timestamp {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = containers
        .filter_map(|container| Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0));
    let metadata = &pod.metadata;
    let deletion = || {
        let grace = u64::try_from(metadata.deletion_grace_period_seconds.unwrap_or_default()).ok()?;
        metadata.deletion_timestamp.as_ref()?.0.checked_sub(Duration::from_secs(grace)).ok()
    };
    let creation = || metadata.creation_timestamp.as_ref().map(|time| time.0);
    ends.max().or_else(deletion).or_else(creation).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, second: u32) -> Arc<Pod> {
        let state =
            json!({"terminated": {"exitCode": 1, "finishedAt": format!("2026-01-01T00:00:{second:02}Z")}});
        let container = json!({"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        Arc::new(
            serde_json::from_value(json!({"status": {"phase": phase, "containerStatuses": [container]}}))
                .unwrap(),
        )
    }

    #[test]
    fn the_delay_doubles_with_each_failure_since_the_last_success() {
        let now: Timestamp = "2026-01-01T00:00:59Z".parse().unwrap();
        let left = |pods: &[Arc<Pod>]| left(&Job::default(), pods, now).as_secs();
        assert_eq!(left(&[]), 0);
        assert_eq!(left(&[pod("Failed", 55)]), 6);
        assert_eq!(left(&[pod("Failed", 20)]), 0);
        assert_eq!(left(&[pod("Failed", 20), pod("Failed", 55)]), 16);
        assert_eq!(left(&[pod("Failed", 20), pod("Succeeded", 30), pod("Failed", 55)]), 6);
        assert_eq!(left(&[pod("Failed", 20), pod("Succeeded", 30)]), 0);
        assert_eq!(left(&vec![pod("Failed", 59); 40]), 600);
        let behind = |earlier: u64| now - Duration::from_secs(earlier);
        let left = |now| super::left(&Job::default(), &[pod("Failed", 55)], now).as_secs();
        assert_eq!((left(behind(60)), left(behind(3_600))), (10, 0));
    }
}
