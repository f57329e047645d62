//! What a Deployment does next: a pure function of it, its ReplicaSets and their Pods.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::limits::Limits;
use super::rolling::{new_replicas, scale_all, scale_new, scale_old};
use super::sets::{REVISION, Set, new_set, revision};
use super::spec;
use super::status::{self, PROGRESSING, Status, counts, deadline, is_complete, judge, note_pause};

/// What the Deployment controller knows of a Deployment.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) sets: Vec<Set>,
    /// Whether Pods of other templates than the current one have not ended.
    pub(super) old_pods_run: bool,
    pub(super) status: Status,
    pub(super) now: Timestamp,
}

/// What the Deployment controller does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// A set to create.
    pub(super) create: Option<ReplicaSet>,
    /// Sets to change.
    pub(super) change: Vec<Set>,
    /// Names of sets to delete.
    pub(super) delete: Vec<String>,
    /// The revision to give to the Deployment.
    pub(super) revision: Option<String>,
    pub(super) status: Status,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

/// Decides what to do next. Each call makes one step; what it changes leads to the next.
pub(super) fn plan(world: World<'_>) -> Plan {
    let World { deployment, mut sets, old_pods_run, status: before, now } = world;
    let limits = Limits::of(deployment);
    sets.sort_by(|one, other| one.created().cmp(&other.created()).then_with(|| one.name().cmp(other.name())));
    let mut step = Step { deployment, limits, now, plan: Plan::default(), status: before.clone() };
    // The oldest, if there are several.
    let new = sets.iter().position(|set| set.is_of(deployment));
    if deployment.metadata.deletion_timestamp.is_some() {
        let newest = new.map(|at| sets[at].clone());
        step.plan.status = counts(deployment, &sets, newest.as_ref(), &limits, &before, now);
        return step.plan;
    }
    note_pause(deployment, &mut step.status, now);
    let is_paused = spec(deployment).is_some_and(|spec| spec.paused == Some(true));
    let is_rescaled = sets
        .iter()
        .any(|set| set.replicas > 0 && set.desired().is_some_and(|desired| desired != limits.replicas));
    if let Some(new) = new {
        step.adopt_revision(&mut sets, new);
    }
    match () {
        () if is_paused || is_rescaled => step.rescale(sets, new, &before, is_paused),
        () if limits.is_recreate => step.recreate(sets, new, old_pods_run, &before),
        () => step.roll(sets, new, &before),
    }
}

struct Step<'a> {
    deployment: &'a Deployment,
    limits: Limits,
    now: Timestamp,
    plan: Plan,
    /// The status so far.
    status: Status,
}

impl Step<'_> {
    /// Makes the set of the current template the one with the highest revision.
    fn adopt_revision(&mut self, sets: &mut [Set], new: usize) {
        let highest = highest_of_others(sets, Some(new));
        sets[new].make_newest(self.deployment, highest + 1);
        self.set_revision(sets[new].revision());
        if deadline(self.deployment).is_some() && self.status.condition(PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{}\"", sets[new].name());
            self.status.set(PROGRESSING, "True", "FoundNewReplicaSet", &message, self.now);
        }
    }

    fn set_revision(&mut self, newest: i64) {
        let known = self.deployment.metadata.annotations.as_ref();
        if newest > 0 && known.map_or(0, revision) != newest {
            self.plan.revision = Some(newest.to_string());
        }
    }

    /// Plans a set for the current template.
    fn create(&mut self, sets: &[Set]) {
        let total = sets.iter().map(|set| set.replicas).sum();
        let replicas = new_replicas(&self.limits, 0, total);
        let revision = highest_of_others(sets, None) + 1;
        let collisions = self.status.collision_count.unwrap_or_default();
        let set = new_set(self.deployment, collisions, replicas, revision, &self.limits);
        if deadline(self.deployment).is_some() {
            let name = set.metadata.name.as_deref().unwrap_or_default();
            let message = format!("Created new replica set \"{name}\"");
            self.status.set(PROGRESSING, "True", "NewReplicaSetCreated", &message, self.now);
        }
        self.set_revision(revision);
        self.plan.create = Some(set);
    }

    /// The Deployment is paused, or its replicas have changed: only the number of Pods changes.
    fn rescale(mut self, mut sets: Vec<Set>, new: Option<usize>, before: &Status, is_paused: bool) -> Plan {
        let in_status = before.replicas.unwrap_or_default();
        scale_all(&mut sets, new, &self.limits, in_status);
        if is_paused {
            self.clean_up(&sets, new);
        }
        let newest = new.map(|at| &sets[at]);
        self.plan.status = counts(self.deployment, &sets, newest, &self.limits, &self.status, self.now);
        self.plan.change = changed(sets);
        self.plan
    }

    /// Ends all old Pods before there are new ones.
    fn recreate(
        mut self,
        mut sets: Vec<Set>,
        new: Option<usize>,
        old_pods_run: bool,
        before: &Status,
    ) -> Plan {
        let mut is_scaled = false;
        for (_, set) in sets.iter_mut().enumerate().filter(|(at, set)| Some(*at) != new && set.replicas > 0) {
            set.scale(0, &self.limits);
            is_scaled = true;
        }
        // Otherwise the status would show old Pods beside new ones.
        let is_counted = sets.iter().enumerate().any(|(at, set)| Some(at) != new && set.running() > 0);
        if !is_scaled && !old_pods_run && !is_counted {
            match new {
                None => self.create(&sets),
                Some(new) if sets[new].replicas != self.limits.replicas => {
                    sets[new].scale(self.limits.replicas, &self.limits);
                }
                Some(_) => {}
            }
            self.clean_up_if_complete(&sets, new, before);
        }
        self.finish(sets, new, before)
    }

    /// Replaces Pods within the limits.
    fn roll(mut self, mut sets: Vec<Set>, new: Option<usize>, before: &Status) -> Plan {
        let Some(new) = new else {
            self.create(&sets);
            return self.finish(sets, None, before);
        };
        let total = sets.iter().map(|set| set.replicas).sum();
        if scale_new(&mut sets[new], total, &self.limits) {
            return self.finish(sets, Some(new), before);
        }
        let newest = sets.remove(new);
        let is_scaled = scale_old(&mut sets, &newest, &self.limits);
        sets.push(newest);
        let new = sets.len() - 1;
        if !is_scaled {
            self.clean_up_if_complete(&sets, Some(new), before);
        }
        self.finish(sets, Some(new), before)
    }

    fn clean_up_if_complete(&mut self, sets: &[Set], new: Option<usize>, before: &Status) {
        let newest = new.map(|at| &sets[at]);
        let status = counts(self.deployment, sets, newest, &self.limits, before, self.now);
        if is_complete(self.deployment, &self.limits, &status) {
            self.clean_up(sets, new);
        }
    }

    /// Deletes the oldest sets beyond the limit of the revision history, if nothing is left of them.
    fn clean_up(&mut self, sets: &[Set], new: Option<usize>) {
        let limit = spec(self.deployment).and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return };
        let mut old: Vec<_> = sets
            .iter()
            .enumerate()
            .filter(|(at, set)| Some(*at) != new && set.object.metadata.deletion_timestamp.is_none())
            .map(|(_, set)| set)
            .collect();
        old.sort_by_key(|set| (set.revision(), set.created()));
        let surplus = old.len().saturating_sub(limit);
        let gone = old.into_iter().take(surplus).filter(|set| {
            let status = set.object.status.as_ref();
            let is_seen =
                status.and_then(|status| status.observed_generation) >= set.object.metadata.generation;
            set.replicas == 0
                && set.replicas_before() == 0
                && is_seen
                && status.is_none_or(|it| it.replicas == 0)
        });
        self.plan.delete.extend(gone.map(|set| set.name().to_owned()));
    }

    /// Completes the plan with the status of the rollout.
    fn finish(mut self, sets: Vec<Set>, new: Option<usize>, before: &Status) -> Plan {
        let newest = new.map(|at| sets[at].clone());
        let newest = newest.as_ref();
        let known = Status { conditions: self.status.conditions.clone(), ..before.clone() };
        let mut status = counts(self.deployment, &sets, newest, &self.limits, &self.status, self.now);
        self.plan.wake = judge(self.deployment, &sets, newest, &self.limits, &known, &mut status, self.now);
        self.plan.status = status;
        self.plan.change = changed(sets);
        self.plan
    }
}

fn highest_of_others(sets: &[Set], new: Option<usize>) -> i64 {
    let others = sets.iter().enumerate().filter(|(at, _)| Some(*at) != new);
    others.map(|(_, set)| set.revision()).max().unwrap_or_default()
}

fn changed(sets: Vec<Set>) -> Vec<Set> {
    sets.into_iter().filter(Set::is_changed).collect()
}

/// The annotation of a Deployment with its revision.
pub(super) const fn revision_annotation() -> &'static str {
    REVISION
}

/// The status after a name for a new set was taken by another.
pub(super) fn after_collision(status: &mut Status) {
    *status.collision_count.get_or_insert(0) += 1;
}

/// The status after a new set could not be created.
pub(super) fn after_failed_create(status: &mut status::Status, name: &str, error: &str, now: Timestamp) {
    let message = format!("Failed to create new replica set \"{name}\": {error}");
    status.set(PROGRESSING, "False", "ReplicaSetCreateError", &message, now);
}
