//! The rules of a Job about failed Pods, and about what counts as success.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes::Indexes;
use crate::pods::condition;

/// What the failure of a Pod means for its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts towards the limits.
    Count,
    /// It does not count.
    Ignore,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed, for the reason given.
    FailJob(String),
}

/// What the failure policy of a Job says about a failed Pod: the first rule that matches decides.
pub(super) fn judge(job: &Job, pod: &Pod) -> Failure {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    for (at, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let Some(why) = why_matches(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignore,
            "FailIndex" => Failure::FailIndex,
            "FailJob" => Failure::FailJob(format!("{why} matching FailJob rule at index {at}")),
            _ => Failure::Count,
        };
    }
    Failure::Count
}

/// Why a rule is for a Pod, in words; none if it is not.
fn why_matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(codes) = &rule.on_exit_codes {
        let status = pod.status.as_ref()?;
        let mut containers =
            status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
        let (container, code) =
            containers.find_map(|container| Some((container, exits_by(codes, container)?)))?;
        return Some(format!(
            "Container {} for pod {namespace}/{name} failed with exit code {code}",
            container.name
        ));
    }
    let found = rule.on_pod_conditions.iter().flatten().find(|pattern| {
        let wanted = pattern.status.as_deref().unwrap_or("True");
        condition(pod, &pattern.type_).is_some_and(|condition| condition.status == wanted)
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", found.type_))
}

/// The exit code of a container that a requirement is about.
fn exits_by(codes: &PodFailurePolicyOnExitCodesRequirement, container: &ContainerStatus) -> Option<i32> {
    if codes.container_name.as_ref().is_some_and(|name| *name != container.name) {
        return None;
    }
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let is_listed = codes.values.contains(&code);
    let is_meant = match codes.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    (code != 0 && is_meant).then_some(code)
}

/// Why a Job has succeeded by its success policy, in words; none if it has not.
pub(super) fn is_success(job: &Job, completed: &Indexes) -> Option<String> {
    let spec = job.spec.as_ref()?;
    let rules = &spec.success_policy.as_ref()?.rules;
    let completions = spec.completions.unwrap_or_default();
    let is_met = rules.iter().position(|rule| {
        let counted = match &rule.succeeded_indexes {
            Some(wanted) => completed.common(&Indexes::parse(wanted, completions)),
            None => completed.count(),
        };
        let needed = match (&rule.succeeded_indexes, rule.succeeded_count) {
            (_, Some(count)) => count,
            (Some(wanted), None) => Indexes::parse(wanted, completions).count(),
            (None, None) => i32::MAX,
        };
        counted >= needed
    })?;
    Some(format!("Matched rules at index {is_met}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(spec: Value) -> Job {
        let mut spec = spec;
        spec["template"] = json!({});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
    }

    fn failed(code: i32, condition: Option<&str>) -> Pod {
        let conditions = condition.map(|it| json!([{"type": it, "status": "True"}]));
        serde_json::from_value(json!({"metadata": {"name": "a-1", "namespace": "default"}, "status": {
            "phase": "Failed", "conditions": conditions, "containerStatuses": [
                {"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": code}}}]}}))
        .unwrap()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let job = job(json!({"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
        ]}}));
        assert_eq!(judge(&job, &failed(42, Some("DisruptionTarget"))), Failure::Ignore);
        let message =
            "Container main for pod default/a-1 failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(judge(&job, &failed(42, None)), Failure::FailJob(message.to_owned()));
        assert_eq!(judge(&job, &failed(7, None)), Failure::FailIndex);
        assert_eq!(judge(&job, &failed(2, None)), Failure::Count);
        assert_eq!(judge(&job, &failed(0, None)), Failure::Count);
    }

    #[test]
    fn a_job_succeeds_by_the_indexes_or_the_number_of_them() {
        let policy = |rule: Value| job(json!({"completions": 9, "successPolicy": {"rules": [rule]}}));
        let completed = Indexes::parse("0,2-4", 9);
        let met = |rule| is_success(&policy(rule), &completed).is_some();
        assert!(met(json!({"succeededIndexes": "0,3"})));
        assert!(!met(json!({"succeededIndexes": "0,1"})));
        assert!(met(json!({"succeededIndexes": "0-1", "succeededCount": 1})));
        assert!(met(json!({"succeededCount": 4})) && !met(json!({"succeededCount": 5})));
        assert_eq!(is_success(&job(json!({"completions": 9})), &completed), None);
    }
}
