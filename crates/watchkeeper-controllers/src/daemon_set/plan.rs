//! What a DaemonSet does next: a pure function of it, the nodes, its Pods and the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::nodes::{Place, node_of, place};
use crate::pods::{Availability, availability, has_ended, is_ready, node_name};
use crate::revisions::REVISION;

/// The spec of a set. It is not optional in all versions of the API.
pub(super) fn spec(set: &DaemonSet) -> Option<&DaemonSetSpec> {
    Option::<&DaemonSetSpec>::from(&set.spec)
}

/// What a DaemonSet does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Nodes that get a Pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    pub(super) status: DaemonSetStatus,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

/// A node, and the Pods of the set on it that have not ended and are not being deleted.
struct Spot<'a> {
    node: &'a str,
    place: Place,
    new: Vec<&'a Arc<Pod>>,
    old: Vec<&'a Arc<Pod>>,
    /// Pods that have ended, and are to be replaced.
    ended: Vec<&'a Arc<Pod>>,
    /// Whether there is a Pod that is being deleted.
    is_going: bool,
}

impl<'a> Spot<'a> {
    fn of(node: &'a Node, place: Place, pods: &[&'a Arc<Pod>], hash: &str) -> Self {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut spot = Self { node: name, place, new: vec![], old: vec![], ended: vec![], is_going: false };
        for pod in pods {
            match pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)) {
                _ if pod.metadata.deletion_timestamp.is_some() => spot.is_going = true,
                _ if has_ended(pod) => spot.ended.push(pod),
                Some(label) if label == hash => spot.new.push(pod),
                _ => spot.old.push(pod),
            }
        }
        // The one that stays is bound, ready and the oldest.
        for pods in [&mut spot.new, &mut spot.old] {
            pods.sort_by_key(|pod| {
                (
                    Reverse(!node_name(pod).is_empty()),
                    Reverse(is_ready(pod)),
                    pod.metadata.creation_timestamp.clone(),
                    pod.metadata.name.clone(),
                )
            });
        }
        spot
    }

    fn has_any(&self) -> bool {
        !self.new.is_empty() || !self.old.is_empty()
    }
}

/// Decides what a DaemonSet does; `pods` are those that it controls, and `hash` is the label of those of its template.
pub(super) fn plan(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    pods: &[Arc<Pod>],
    hash: &str,
    now: Timestamp,
) -> Plan {
    let Some(spec) = spec(set) else { return Plan::default() };
    let mut by_node = BTreeMap::<&str, Vec<&Arc<Pod>>>::new();
    for pod in pods {
        by_node.entry(node_of(pod)).or_default().push(pod);
    }
    let spots: Vec<_> = nodes
        .iter()
        .map(|node| {
            let pods = by_node.remove(node.metadata.name.as_deref().unwrap_or_default());
            Spot::of(node, place(spec, node), &pods.unwrap_or_default(), hash)
        })
        .collect();
    let mut plan = Plan::default();
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    let mut wake = None;
    let is_available = |pod: &Pod| match availability(pod, min_ready, now) {
        Availability::Yes => (true, None),
        Availability::In(rest) => (false, Some(rest)),
        Availability::No => (false, None),
    };
    plan.status = status(set, &spots, &is_available, &mut wake);
    plan.wake = wake;
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let is_available = |pod: &Pod| is_available(pod).0;
    for spot in &spots {
        manage(spot, &mut plan);
    }
    // The nodes of the rest are gone.
    plan.delete.extend(
        by_node.into_values().flatten().filter(|pod| pod.metadata.deletion_timestamp.is_none()).cloned(),
    );
    if spec.update_strategy.as_ref().is_none_or(|strategy| strategy.type_.as_deref() != Some("OnDelete")) {
        update(spec, &spots, &is_available, &mut plan);
    }
    plan
}

/// Brings the Pods of a node to one, or none.
fn manage(spot: &Spot<'_>, plan: &mut Plan) {
    let Spot { new, old, ended, .. } = spot;
    if !spot.place.keeps {
        plan.delete.extend([new, old, ended].into_iter().flatten().map(|pod| (*pod).clone()));
        return;
    }
    plan.delete.extend(ended.iter().map(|pod| (*pod).clone()));
    let surplus = new.iter().skip(1).chain(old.iter().skip(1));
    plan.delete.extend(surplus.map(|pod| (*pod).clone()));
    if spot.place.starts && !spot.has_any() && ended.is_empty() && !spot.is_going {
        plan.create.push(spot.node.to_owned());
    }
}

/// Replaces Pods of other templates: by deleting them first, or with a surge by starting new ones beside them.
fn update(spec: &DaemonSetSpec, spots: &[Spot<'_>], is_available: &dyn Fn(&Pod) -> bool, plan: &mut Plan) {
    let wanted: Vec<_> = spots.iter().filter(|spot| spot.place.keeps && spot.place.starts).collect();
    let (surge, unavailable) = limits(spec, wanted.len());
    let is_up = |pods: &[&Arc<Pod>]| pods.first().is_some_and(|pod| is_available(pod));
    if surge > 0 {
        let beside = wanted.iter().filter(|spot| !spot.new.is_empty() && !spot.old.is_empty()).count();
        let mut left = surge.saturating_sub(beside);
        for spot in &wanted {
            let Some(old) = spot.old.first() else { continue };
            if is_up(&spot.new) || (spot.new.is_empty() && !is_available(old)) {
                plan.delete.push((*old).clone());
            } else if spot.new.is_empty() && left > 0 {
                plan.create.push(spot.node.to_owned());
                left -= 1;
            }
        }
        return;
    }
    let down = wanted.iter().filter(|spot| !is_up(&spot.new) && !is_up(&spot.old)).count();
    let mut left = unavailable.saturating_sub(down);
    for spot in &wanted {
        let Some(old) = spot.old.first() else { continue };
        if !spot.new.is_empty() || !is_available(old) {
            plan.delete.push((*old).clone());
        } else if left > 0 {
            plan.delete.push((*old).clone());
            left -= 1;
        }
    }
}

/// The surge, and how many Pods may be unavailable.
fn limits(spec: &DaemonSetSpec, nodes: usize) -> (usize, usize) {
    let rolling = spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let resolve = |value: Option<&IntOrString>, default: usize| match value {
        None => default,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or_default(),
        Some(IntOrString::String(text)) => {
            let percentage: usize = text.trim_end_matches('%').parse().unwrap_or_default();
            (nodes * percentage).div_ceil(100)
        }
    };
    let surge = resolve(rolling.and_then(|rolling| rolling.max_surge.as_ref()), 0);
    let unavailable = resolve(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), 1);
    (surge, if surge == 0 { unavailable.max(1) } else { unavailable })
}

fn status(
    set: &DaemonSet,
    spots: &[Spot<'_>],
    is_available: &dyn Fn(&Pod) -> (bool, Option<Duration>),
    wake: &mut Option<Duration>,
) -> DaemonSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let (mut desired, mut current, mut wrong, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
    for spot in spots {
        let pods = || spot.new.iter().chain(&spot.old);
        if !spot.place.starts {
            wrong += i32::from(spot.has_any());
            continue;
        }
        desired += 1;
        current += i32::from(spot.has_any());
        updated += i32::from(!spot.new.is_empty());
        ready += i32::from(pods().any(|pod| is_ready(pod)));
        let mut is_up = false;
        for pod in pods() {
            let (up, rest) = is_available(pod);
            is_up |= up;
            *wake = match (*wake, rest) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        available += i32::from(is_up);
    }
    let shown = |count: i32| (count != 0).then_some(count);
    DaemonSetStatus {
        current_number_scheduled: current,
        desired_number_scheduled: desired,
        number_misscheduled: wrong,
        number_ready: ready,
        updated_number_scheduled: shown(updated),
        number_available: shown(available),
        number_unavailable: shown(desired - available),
        observed_generation: set.metadata.generation,
        ..before
    }
}
