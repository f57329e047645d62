//! The conditions of a namespace in deletion, which describe what it waits for. Pure.
//!
//! Types, reasons and messages are those of kube-controller-manager, as people and programs read them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The result of one pass over the contents of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// The reason why some resources are unknown.
    pub(super) discovery: Option<String>,
    /// The reasons why contents could not be deleted, one text per resource.
    pub(super) failures: Vec<String>,
    /// The remaining objects, by the name and group of their resource.
    pub(super) remaining: BTreeMap<(String, String), usize>,
    /// The remaining objects, by finalizer. An object counts once for each of its finalizers.
    pub(super) finalizers: BTreeMap<String, usize>,
}

impl Findings {
    /// Writes the conditions into `status`; returns whether any of them changed.
    pub(super) fn write(&self, status: &mut NamespaceStatus, now: &Time) -> bool {
        let conditions = status.conditions.get_or_insert_default();
        let mut changed = false;
        for mut wanted in self.conditions() {
            wanted.last_transition_time = Some(now.clone());
            match conditions.iter_mut().find(|condition| condition.type_ == wanted.type_) {
                None => conditions.push(wanted),
                Some(found) if !says_the_same(found, &wanted) => *found = wanted,
                Some(_) => continue,
            }
            changed = true;
        }
        changed
    }

    fn conditions(&self) -> [NamespaceCondition; 5] {
        let failures = (!self.failures.is_empty()).then(|| {
            let count = self.failures.len();
            format!("Failed to delete all resource types, {count} remaining: {}", self.failures.join(", "))
        });
        let remaining =
            listed("Some resources are remaining: ", &self.remaining, |(resource, group), count| {
                format!("{resource}.{group} has {count} resource instances")
            });
        let finalizers = listed(
            "Some content in the namespace has finalizers remaining: ",
            &self.finalizers,
            |finalizer, count| format!("{finalizer} in {count} resource instances"),
        );
        [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                self.discovery.clone().map(|message| ("DiscoveryFailed", message)),
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            // Discovery is decoded as a whole: there are no group versions to parse one by one.
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                failures.map(|message| ("ContentDeletionFailed", message)),
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
            condition(
                "NamespaceContentRemaining",
                remaining.map(|message| ("SomeResourcesRemain", message)),
                ("ContentRemoved", "All content successfully removed"),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                finalizers.map(|message| ("SomeFinalizersRemain", message)),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

/// Returns a condition that is true if there is a problem, which is a reason and its message.
fn condition(type_: &str, problem: Option<(&str, String)>, fine: (&str, &str)) -> NamespaceCondition {
    let status = if problem.is_some() { "True" } else { "False" };
    let (reason, message) = problem.unwrap_or_else(|| (fine.0, fine.1.to_owned()));
    NamespaceCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: None,
    }
}

fn says_the_same(one: &NamespaceCondition, other: &NamespaceCondition) -> bool {
    (&one.status, &one.reason, &one.message) == (&other.status, &other.reason, &other.message)
}

fn listed<K>(intro: &str, counts: &BTreeMap<K, usize>, text: impl Fn(&K, usize) -> String) -> Option<String> {
    let texts: Vec<_> = counts.iter().map(|(key, count)| text(key, *count)).collect();
    (!texts.is_empty()).then(|| format!("{intro}{}", texts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time(jiff::Timestamp::from_second(seconds).unwrap())
    }

    fn message(status: &NamespaceStatus, type_: &str) -> (String, String, String) {
        let condition =
            status.conditions.iter().flatten().find(|condition| condition.type_ == type_).unwrap();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        (condition.status.clone(), text(&condition.reason), text(&condition.message))
    }

    #[test]
    fn a_namespace_without_contents_has_five_conditions_that_are_false() {
        let mut status = NamespaceStatus::default();
        assert!(Findings::default().write(&mut status, &at(1)));
        let found = status.conditions.clone().unwrap();
        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|condition| condition.status == "False"), "{found:?}");
        assert!(!Findings::default().write(&mut status, &at(2)), "nothing is new");
        assert_eq!(status.conditions.unwrap(), found);
    }

    #[test]
    fn what_remains_is_counted_by_resource_and_by_finalizer() {
        let key = |resource: &str, group: &str| (resource.to_owned(), group.to_owned());
        let findings = Findings {
            remaining: BTreeMap::from([(key("deployments", "apps"), 1), (key("configmaps", ""), 2)]),
            finalizers: BTreeMap::from([("example.com/g".to_owned(), 2), ("example.com/f".to_owned(), 3)]),
            ..Findings::default()
        };
        let mut status = NamespaceStatus::default();
        findings.write(&mut status, &at(1));
        assert_eq!(
            message(&status, "NamespaceContentRemaining").2,
            "Some resources are remaining: configmaps. has 2 resource instances, deployments.apps has 1 resource instances"
        );
        assert_eq!(
            message(&status, "NamespaceFinalizersRemaining").2,
            "Some content in the namespace has finalizers remaining: example.com/f in 3 resource instances, \
             example.com/g in 2 resource instances"
        );
    }

    #[test]
    fn a_condition_that_changes_has_a_new_time_and_the_others_keep_theirs() {
        let mut status = NamespaceStatus::default();
        let failed = Findings { failures: vec!["a".into(), "b".into()], ..Findings::default() };
        failed.write(&mut status, &at(1));
        let text = "Failed to delete all resource types, 2 remaining: a, b";
        let expected = ("True".into(), "ContentDeletionFailed".into(), text.into());
        assert_eq!(message(&status, "NamespaceDeletionContentFailure"), expected);
        assert!(Findings::default().write(&mut status, &at(2)));
        let times =
            status.conditions.iter().flatten().map(|condition| condition.last_transition_time.clone());
        assert_eq!(times.collect::<Vec<_>>(), [1, 1, 2, 1, 1].map(|seconds| Some(at(seconds))));
    }
}
