//! Rolling updates: how the sets of a Deployment are scaled, step by step.

use std::cmp::Reverse;

use super::limits::Limits;
use super::sets::Set;

/// The replicas of a new set that has `current` so far, beside sets with `total` replicas in all.
pub(super) fn new_replicas(limits: &Limits, current: i32, total: i32) -> i32 {
    if limits.is_recreate {
        return limits.replicas;
    }
    let free = limits.most() - total;
    if free <= 0 { current } else { current + free.min(limits.replicas - current) }
}

/// Scales the new set towards the replicas of the Deployment; returns whether it did.
pub(super) fn scale_new(new: &mut Set, total: i32, limits: &Limits) -> bool {
    let before = new.replicas;
    let wanted = match before {
        _ if before > limits.replicas => limits.replicas,
        _ if before < limits.replicas => new_replicas(limits, before, total),
        _ => before,
    };
    if wanted != before {
        new.scale(wanted, limits);
    }
    wanted != before
}

/// Scales old sets down as far as enough Pods stay available: first what is not available anyway, then the oldest. Returns whether
/// it did.
pub(super) fn scale_old(old: &mut [Set], new: &Set, limits: &Limits) -> bool {
    if old.iter().all(|set| set.replicas == 0) {
        return false;
    }
    let all = old.iter().map(|set| set.replicas).sum::<i32>() + new.replicas;
    let most = all - limits.fewest() - (new.replicas - new.available());
    if most <= 0 {
        return false;
    }
    old.sort_by(|one, other| one.created().cmp(&other.created()).then_with(|| one.name().cmp(other.name())));
    let mut removed = 0;
    for set in old.iter_mut().filter(|set| set.replicas > set.available()) {
        let count = (most - removed).min(set.replicas - set.available());
        if count > 0 {
            set.scale(set.replicas - count, limits);
            removed += count;
        }
    }
    let available = old.iter().map(Set::available).sum::<i32>() + new.available();
    let mut surplus = available - limits.fewest();
    for set in old.iter_mut() {
        let count = surplus.min(set.replicas);
        if count > 0 {
            set.scale(set.replicas - count, limits);
            (surplus, removed) = (surplus - count, removed + count);
        }
    }
    removed > 0
}

/// Scales the sets of a Deployment whose replicas have changed, or that is paused: one set alone in whole, several in proportion to
/// their size.
pub(super) fn scale_all(sets: &mut [Set], new: Option<usize>, limits: &Limits, replicas_in_status: i32) {
    if let Some(only) = active_or_latest(sets, new) {
        if sets[only].replicas != limits.replicas || sets[only].desired() != Some(limits.replicas) {
            sets[only].scale(limits.replicas, limits);
        }
        return;
    }
    if let Some(new) = new
        && is_saturated(&sets[new], limits)
    {
        for (at, set) in sets.iter_mut().enumerate() {
            if at != new && set.replicas > 0 {
                set.scale(0, limits);
            }
        }
        return;
    }
    if !limits.is_recreate {
        scale_in_proportion(sets, limits, replicas_in_status);
    }
}

/// The only set with replicas; if none has any, the new one, or else the latest.
fn active_or_latest(sets: &[Set], new: Option<usize>) -> Option<usize> {
    let mut active = (0..sets.len()).filter(|at| sets[*at].replicas > 0);
    match (active.next(), active.next()) {
        (Some(only), None) => Some(only),
        (Some(_), Some(_)) => None,
        (None, _) => new.or_else(|| (0..sets.len()).max_by_key(|at| sets[*at].created())),
    }
}

fn is_saturated(new: &Set, limits: &Limits) -> bool {
    let all = Some(limits.replicas);
    Some(new.replicas) == all && new.desired() == all && Some(new.available()) == all
}

fn scale_in_proportion(sets: &mut [Set], limits: &Limits, replicas_in_status: i32) {
    let mut active: Vec<&mut Set> = sets.iter_mut().filter(|set| set.replicas > 0).collect();
    let total = active.iter().map(|set| set.replicas).sum::<i32>();
    let allowed = if limits.replicas > 0 { limits.most() } else { 0 };
    let to_add = allowed - total;
    // Larger sets first; of equal ones the newer if Pods are added, the older if they are removed.
    if to_add > 0 {
        active.sort_by_key(|set| (Reverse(set.replicas), Reverse(set.created())));
    } else {
        active.sort_by_key(|set| (Reverse(set.replicas), set.created()));
    }
    let mut sizes: Vec<i32> = active.iter().map(|set| set.replicas).collect();
    let mut added = 0;
    for (set, size) in active.iter().zip(&mut sizes) {
        let share = share(set, limits, replicas_in_status, to_add, added);
        (*size, added) = (*size + share, added + share);
    }
    // What rounding has left goes to the largest.
    if let Some(largest) = sizes.first_mut() {
        *largest = (*largest + to_add - added).max(0);
    }
    for (set, size) in active.into_iter().zip(sizes) {
        set.scale(size, limits);
    }
}

/// The Pods that a set gets of those to add, or loses of those to remove.
fn share(set: &Set, limits: &Limits, replicas_in_status: i32, to_add: i32, added: i32) -> i32 {
    if to_add == 0 || to_add == added {
        return 0;
    }
    let left = to_add - added;
    let fraction = fraction(set, limits, replicas_in_status);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(set: &Set, limits: &Limits, replicas_in_status: i32) -> i32 {
    if limits.replicas == 0 {
        return -set.replicas;
    }
    let before = set.most().filter(|most| *most > 0).unwrap_or(replicas_in_status).max(1);
    let size = f64::from(set.replicas) * f64::from(limits.most()) / f64::from(before);
    #[allow(clippy::cast_possible_truncation, reason = "a share of an i32")]
    let size = size.round() as i32;
    size - set.replicas
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn limits(replicas: i32, surge: i32, unavailable: i32) -> Limits {
        Limits { replicas, surge, unavailable, is_recreate: false }
    }

    fn set(age: i32, replicas: i32, available: i32, most: i32) -> Set {
        let set = json!({
            "metadata": {"name": format!("s{age}"), "creationTimestamp": format!("2026-01-01T00:{:02}:00Z", 59 - age),
                "annotations": {"deployment.kubernetes.io/max-replicas": most.to_string(),
                    "deployment.kubernetes.io/desired-replicas": most.to_string()}},
            "spec": {"replicas": replicas, "selector": {}},
            "status": {"replicas": replicas, "availableReplicas": available},
        });
        Set::new(Arc::new(serde_json::from_value(set).unwrap()))
    }

    fn replicas(sets: &[Set]) -> Vec<i32> {
        sets.iter().map(|set| set.replicas).collect()
    }

    #[test]
    fn the_new_set_grows_as_far_as_the_surge_allows() {
        let limits = limits(10, 3, 2);
        let mut new = set(0, 0, 0, 13);
        assert!(scale_new(&mut new, 10, &limits));
        assert_eq!(new.replicas, 3);
        assert!(!scale_new(&mut new, 13, &limits));
        let mut large = set(0, 12, 12, 13);
        assert!(scale_new(&mut large, 12, &limits));
        assert_eq!(large.replicas, 10);
        assert_eq!(new_replicas(&limits, 9, 9), 10);
    }

    #[test]
    fn old_sets_shrink_as_long_as_enough_pods_are_available() {
        let limits = limits(10, 3, 2);
        let mut old = [set(1, 10, 10, 13)];
        assert!(scale_old(&mut old, &set(0, 3, 0, 13), &limits));
        assert_eq!(replicas(&old), [8]);
        let mut old = [set(1, 8, 8, 13)];
        assert!(!scale_old(&mut old, &set(0, 5, 0, 13), &limits));
        assert!(scale_old(&mut old, &set(0, 5, 4, 13), &limits));
        assert_eq!(replicas(&old), [4]);
    }

    #[test]
    fn what_is_not_available_anyway_shrinks_first() {
        let limits = limits(10, 3, 2);
        let mut old = [set(2, 5, 5, 13), set(1, 5, 0, 13)];
        assert!(scale_old(&mut old, &set(0, 3, 3, 13), &limits));
        assert_eq!(replicas(&old), [5, 0]);
    }

    #[test]
    fn sets_in_the_middle_of_a_rollout_are_scaled_in_proportion() {
        let mut sets = [set(0, 5, 5, 13), set(1, 8, 8, 13)];
        scale_all(&mut sets, Some(0), &limits(15, 3, 2), 13);
        assert_eq!(replicas(&sets), [7, 11]);
        let mut sets = [set(0, 5, 5, 13), set(1, 8, 8, 13)];
        scale_all(&mut sets, Some(0), &limits(0, 0, 0), 13);
        assert_eq!(replicas(&sets), [0, 0]);
    }

    #[test]
    fn the_only_active_set_is_scaled_in_whole() {
        let mut sets = [set(0, 0, 0, 13), set(1, 10, 10, 13)];
        scale_all(&mut sets, Some(0), &limits(4, 1, 1), 10);
        assert_eq!(replicas(&sets), [0, 4]);
        let mut sets = [set(1, 0, 0, 1), set(0, 0, 0, 1)];
        scale_all(&mut sets, None, &limits(4, 1, 1), 0);
        assert_eq!(replicas(&sets), [0, 4]);
    }

    #[test]
    fn a_saturated_set_takes_the_place_of_all_others() {
        let mut sets = [set(0, 4, 4, 4), set(1, 2, 2, 4)];
        scale_all(&mut sets, Some(0), &limits(4, 1, 1), 6);
        assert_eq!(replicas(&sets), [4, 0]);
    }
}
