//! What a StatefulSet does next: a pure function of it, its Pods, its revisions and the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::identity::{new_pod, ordinal, revision};
use crate::pods::{Availability, availability, has_ended, is_ready, phase};
use crate::revisions;

/// The spec of a set. It is not optional in all versions of the API.
pub(super) fn spec(set: &StatefulSet) -> Option<&StatefulSetSpec> {
    Option::<&StatefulSetSpec>::from(&set.spec)
}

/// The revisions between which a set moves.
#[derive(Debug)]
pub(super) struct Revisions {
    pub(super) current: Arc<ControllerRevision>,
    pub(super) update: Arc<ControllerRevision>,
}

/// What a StatefulSet does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Pods to create, with their ordinals.
    pub(super) create: Vec<(i32, Pod)>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

struct Turn<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    revisions: &'a Revisions,
    now: Timestamp,
    plan: Plan,
}

/// Decides which Pods to create and delete; `pods` are those that the set controls.
pub(super) fn plan(set: &StatefulSet, pods: &[Arc<Pod>], revisions: &Revisions, now: Timestamp) -> Plan {
    let Some(spec) = spec(set) else { return Plan::default() };
    let mut turn = Turn { set, spec, revisions, now, plan: Plan::default() };
    if set.metadata.deletion_timestamp.is_some() {
        return turn.plan;
    }
    let by_ordinal: BTreeMap<_, _> =
        pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, pod.clone()))).collect();
    let first = start(spec);
    let wanted = first..first.saturating_add(spec.replicas.unwrap_or(1).max(0));
    let is_settled = turn.fill(&by_ordinal, wanted.clone()) && turn.shrink(&by_ordinal, wanted.clone());
    if is_settled && !is_on_delete(spec) {
        turn.update(&by_ordinal, wanted);
    }
    turn.plan
}

fn start(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default()
}

fn is_on_delete(spec: &StatefulSetSpec) -> bool {
    spec.update_strategy.as_ref().is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete"))
}

fn is_parallel(spec: &StatefulSetSpec) -> bool {
    spec.pod_management_policy.as_deref() == Some("Parallel")
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

impl Turn<'_> {
    /// Whether a Pod runs, and has been ready for long enough; notes when it will have.
    fn is_available(&mut self, pod: &Pod) -> bool {
        let min_ready = self.spec.min_ready_seconds.unwrap_or_default();
        match availability(pod, min_ready, self.now) {
            Availability::Yes => phase(pod) == "Running",
            Availability::No => false,
            Availability::In(rest) => {
                self.plan.wake = Some(self.plan.wake.map_or(rest, |wake| wake.min(rest)));
                false
            }
        }
    }

    /// Creates missing Pods and replaces those that have ended; in order, each when the one before is available. Returns whether there
    /// is nothing to wait for.
    fn fill(&mut self, pods: &BTreeMap<i32, Arc<Pod>>, wanted: std::ops::Range<i32>) -> bool {
        let waits = !is_parallel(self.spec);
        for at in wanted {
            let is_settled = match pods.get(&at) {
                None => {
                    let of =
                        if self.is_current(at) { &self.revisions.current } else { &self.revisions.update };
                    self.plan.create.push((at, new_pod(self.set, self.spec, of, at)));
                    false
                }
                Some(pod) if has_ended(pod) => {
                    if !is_going(pod) {
                        self.plan.delete.push(pod.clone());
                    }
                    false
                }
                Some(pod) => !is_going(pod) && self.is_available(pod),
            };
            if !is_settled && waits {
                return false;
            }
        }
        true
    }

    /// Whether a new Pod is of the current revision still.
    fn is_current(&self, ordinal: i32) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        if is_on_delete(self.spec) {
            return false;
        }
        let kept = match rolling {
            Some(rolling) => rolling.partition.unwrap_or_default(),
            None => self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default(),
        };
        ordinal < start(self.spec).saturating_add(kept)
    }

    /// Deletes Pods beyond the number of replicas; in order, from the highest ordinal. Returns whether there is nothing to wait for.
    fn shrink(&mut self, pods: &BTreeMap<i32, Arc<Pod>>, wanted: std::ops::Range<i32>) -> bool {
        let waits = !is_parallel(self.spec);
        let unhealthy = pods.values().find(|pod| is_going(pod) || !is_ready(pod)).cloned();
        for (_, pod) in pods.iter().rev().filter(|(at, _)| !wanted.contains(at)) {
            if is_going(pod) {
                if waits {
                    return false;
                }
                continue;
            }
            // The first Pod that does not serve may go, and must not hold up the others.
            let is_first = unhealthy.as_ref().is_some_and(|first| Arc::ptr_eq(first, pod));
            if waits && !is_first && !self.is_available(pod) {
                return false;
            }
            self.plan.delete.push(pod.clone());
            if waits {
                return false;
            }
        }
        true
    }

    /// Deletes Pods of other revisions from the highest ordinal down to the partition, as many at a time as may be unavailable.
    fn update(&mut self, pods: &BTreeMap<i32, Arc<Pod>>, wanted: std::ops::Range<i32>) {
        let strategy = self.spec.update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default();
        let from = wanted.start.saturating_add(partition.max(0));
        let update = revisions::name(&self.revisions.update).to_owned();
        let mut budget = most_unavailable(self.spec);
        for (_, pod) in pods.range(wanted.start..wanted.end.max(wanted.start)).rev() {
            let at = ordinal(self.set, pod).unwrap_or_default();
            if at < from || budget == 0 {
                return;
            }
            if revision(pod) != update && !is_going(pod) {
                self.plan.delete.push(pod.clone());
                budget -= 1;
            } else if is_going(pod) || !self.is_available(pod) {
                budget -= 1;
            }
        }
    }
}

/// The most Pods that an update makes unavailable.
fn most_unavailable(spec: &StatefulSetSpec) -> i32 {
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let replicas = i64::from(spec.replicas.unwrap_or(1));
    let most = match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
        None => 1,
        Some(IntOrString::Int(number)) => i64::from(*number),
        Some(IntOrString::String(text)) => {
            let percentage: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            (replicas * percentage + 99) / 100
        }
    };
    i32::try_from(most.max(1)).unwrap_or(i32::MAX)
}

/// The status for these Pods. `pods` has those that were created, and not those that were deleted.
pub(super) fn status(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    revisions: &Revisions,
    collisions: Option<i32>,
    now: Timestamp,
) -> StatefulSetStatus {
    let Some(spec) = spec(set) else { return StatefulSetStatus::default() };
    let members: Vec<_> = pods.iter().filter(|pod| ordinal(set, pod).is_some()).collect();
    let count = |test: &dyn Fn(&Pod) -> bool| {
        i32::try_from(members.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
    };
    let (current, update) = (revisions::name(&revisions.current), revisions::name(&revisions.update));
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    let runs = |pod: &Pod| phase(pod) == "Running" && is_ready(pod);
    let of = |name: &str| count(&|pod| !is_going(pod) && revision(pod) == name);
    let replicas = count(&|pod| !phase(pod).is_empty());
    let (ready, mut in_current, updated) = (count(&runs), of(current), of(update));
    let available = count(&|pod| runs(pod) && availability(pod, min_ready, now) == Availability::Yes);
    let wanted = spec.replicas.unwrap_or(1);
    let is_done = !is_on_delete(spec) && [replicas, ready, updated].iter().all(|count| *count == wanted);
    let current = if is_done { update } else { current };
    if is_done {
        in_current = updated;
    }
    let shown = |count: i32| (count != 0).then_some(count);
    StatefulSetStatus {
        available_replicas: Some(available),
        collision_count: Some(collisions.unwrap_or_default()),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
        current_replicas: shown(in_current),
        current_revision: Some(current.to_owned()),
        observed_generation: set.metadata.generation,
        ready_replicas: shown(ready),
        replicas,
        update_revision: Some(update.to_owned()),
        updated_replicas: shown(updated),
    }
}
