//! Chooses the action for an object from the state of its owners and dependents. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::core::params::PropagationPolicy;

use super::graph::Meta;
use super::policy_of;

/// The finalizer that keeps an owner until its blocking dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps an owner until its dependents no longer name it.
pub(super) const ORPHAN: &str = "orphan";

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// Exists, and is not waiting for its dependents.
    Solid,
    /// Gone, or another object has its name.
    Absent,
    /// In foreground deletion: waits until its dependents are gone.
    Waiting,
}

impl OwnerState {
    pub(super) fn of(owner: &ObjectMeta) -> Self {
        if is_waiting(owner) { Self::Waiting } else { Self::Solid }
    }
}

/// An object that this one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dependent {
    /// `blockOwnerDeletion` is set: a foreground deletion of the owner waits for it.
    pub(super) blocks: bool,
    /// In foreground deletion itself.
    pub(super) is_waiting: bool,
}

impl Dependent {
    pub(super) fn of(dependent: &Meta, owner: &str) -> Self {
        let references = dependent.metadata.owner_references.iter().flatten();
        let mut references = references.filter(|reference| reference.uid == owner);
        Self {
            blocks: references.any(|reference| reference.block_owner_deletion == Some(true)),
            is_waiting: is_waiting(&dependent.metadata),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Nothing,
    /// Delete the object.
    Delete(PropagationPolicy),
    /// Remove the references to the owners with these uids; others remain.
    DropOwners(Vec<String>),
    /// Enqueue the dependents: the object waits for them.
    DeleteDependents,
    /// Remove the references of all dependents, then the finalizer.
    Orphan,
    /// No blocking dependent is left: remove the finalizer.
    Unblock,
}

fn has_finalizer(object: &ObjectMeta, name: &str) -> bool {
    object.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Returns whether the object is in foreground deletion.
pub(super) fn is_waiting(object: &ObjectMeta) -> bool {
    object.deletion_timestamp.is_some() && has_finalizer(object, FOREGROUND)
}

/// Returns whether a dependent that is not in the caches could change the action.
pub(super) fn needs_all_dependents(action: &Action, owners: &[(String, OwnerState)]) -> bool {
    match action {
        Action::Unblock => true,
        Action::Delete(_) => owners.iter().any(|(_, state)| *state == OwnerState::Waiting),
        // Orphaning lists the dependents from the server.
        Action::Nothing | Action::DropOwners(_) | Action::DeleteDependents | Action::Orphan => false,
    }
}

/// `owners` has the uid and state of each owner reference; it is not read for an object in deletion.
pub(super) fn decide(
    object: &ObjectMeta,
    owners: &[(String, OwnerState)],
    dependents: &[Dependent],
) -> Action {
    if object.deletion_timestamp.is_some() {
        return match () {
            () if has_finalizer(object, ORPHAN) => Action::Orphan,
            () if !has_finalizer(object, FOREGROUND) => Action::Nothing,
            () if dependents.iter().any(|dependent| dependent.blocks) => Action::DeleteDependents,
            () => Action::Unblock,
        };
    }
    let of = |state: OwnerState| {
        owners.iter().filter(move |(_, owner)| *owner == state).map(|(uid, _)| uid.clone())
    };
    if owners.is_empty() {
        return Action::Nothing;
    }
    if of(OwnerState::Solid).next().is_some() {
        let gone: Vec<_> = of(OwnerState::Absent).chain(of(OwnerState::Waiting)).collect();
        return if gone.is_empty() { Action::Nothing } else { Action::DropOwners(gone) };
    }
    // If an owner waits for this object, the object waits for its own dependents in turn. But not for one that is waiting
    // already: two objects that own each other would wait forever.
    let waits = of(OwnerState::Waiting).next().is_some();
    if waits && !dependents.is_empty() && !dependents.iter().any(|dependent| dependent.is_waiting) {
        return Action::Delete(PropagationPolicy::Foreground);
    }
    Action::Delete(policy_of(object.finalizers.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn object(deleting: bool, finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            deletion_timestamp: deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
            finalizers: Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    fn owners(states: &[OwnerState]) -> Vec<(String, OwnerState)> {
        states.iter().enumerate().map(|(at, state)| (format!("u{at}"), *state)).collect()
    }

    const BLOCKING: Dependent = Dependent { blocks: true, is_waiting: false };
    const FREE: Dependent = Dependent { blocks: false, is_waiting: false };
    const WAITING: Dependent = Dependent { blocks: true, is_waiting: true };

    use OwnerState::{Absent, Solid, Waiting};

    #[test]
    fn an_object_stays_while_one_owner_does_and_forgets_the_others() {
        let plain = object(false, &[]);
        assert_eq!(decide(&plain, &[], &[]), Action::Nothing);
        assert_eq!(decide(&plain, &owners(&[Solid]), &[]), Action::Nothing);
        let dropped = Action::DropOwners(vec!["u0".into(), "u2".into()]);
        assert_eq!(decide(&plain, &owners(&[Absent, Solid, Waiting]), &[]), dropped);
    }

    #[test]
    fn an_object_whose_owners_are_all_gone_goes_by_its_own_policy() {
        let gone = owners(&[Absent, Absent]);
        for (finalizers, policy) in [
            (&["x/y"] as &[&str], PropagationPolicy::Background),
            (&[FOREGROUND], PropagationPolicy::Foreground),
            (&[ORPHAN, FOREGROUND], PropagationPolicy::Orphan),
        ] {
            assert_eq!(decide(&object(false, finalizers), &gone, &[FREE]), Action::Delete(policy));
        }
    }

    #[test]
    fn an_object_whose_owner_waits_for_it_waits_for_its_own_unless_they_wait_already() {
        let (plain, waiting) = (object(false, &[]), owners(&[Waiting]));
        assert_eq!(decide(&plain, &waiting, &[FREE]), Action::Delete(PropagationPolicy::Foreground));
        assert_eq!(decide(&plain, &waiting, &[]), Action::Delete(PropagationPolicy::Background));
        assert_eq!(decide(&plain, &waiting, &[FREE, WAITING]), Action::Delete(PropagationPolicy::Background));
    }

    #[test]
    fn an_owner_that_is_deleted_in_the_foreground_waits_for_those_that_block_it_only() {
        let deleted = object(true, &[FOREGROUND]);
        assert_eq!(decide(&deleted, &[], &[FREE, BLOCKING]), Action::DeleteDependents);
        assert_eq!(decide(&deleted, &[], &[FREE]), Action::Unblock);
        assert_eq!(decide(&deleted, &owners(&[Absent]), &[]), Action::Unblock);
    }

    #[test]
    fn what_one_more_dependent_could_change_needs_all_of_them() {
        let background = Action::Delete(PropagationPolicy::Background);
        assert!(needs_all_dependents(&Action::Unblock, &[]));
        assert!(needs_all_dependents(&background, &owners(&[Absent, Waiting])));
        assert!(!needs_all_dependents(&background, &owners(&[Absent])));
        assert!(!needs_all_dependents(&Action::DropOwners(vec!["u1".into()]), &owners(&[Solid, Waiting])));
        assert!(!needs_all_dependents(&Action::DeleteDependents, &[]));
    }

    #[test]
    fn an_orphaning_delete_comes_before_all_others_and_a_plain_one_is_nobodys_business() {
        assert_eq!(decide(&object(true, &[FOREGROUND, ORPHAN]), &[], &[BLOCKING]), Action::Orphan);
        assert_eq!(decide(&object(true, &["x/y"]), &owners(&[Absent]), &[]), Action::Nothing);
        assert_eq!(decide(&object(false, &[ORPHAN]), &[], &[BLOCKING]), Action::Nothing);
    }
}
