//! How often the controller created and deleted each object: more often than without faults means something was done twice.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::canonical::identity;
use crate::trace::{Entry, Event};
use crate::violation::Difference;

/// Creations and deletions by identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    created: BTreeMap<String, u32>,
    deleted: BTreeMap<String, u32>,
    /// Deleted by the cluster's own controllers: each may be followed by another creation.
    collected: BTreeMap<String, u32>,
}

/// Something that was done more often than in the reference run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Resource, namespace and name, or a value outside.
    pub what: String,
    /// `created` or `deleted`.
    pub done: &'static str,
    /// How often it was done.
    pub times: u32,
    /// How often it was done without faults.
    pub expected: u32,
}

impl Excess {
    /// The same as a difference, for what is known.
    pub(crate) fn difference(&self) -> Difference {
        let what = format!("{} {}", self.done, self.what);
        Difference { what, expected: vec![self.expected.into()], found: vec![self.times.into()] }
    }
}

impl Counts {
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let mut counts = Self::default();
        // Changes with their revisions: those after a backup are undone when it is restored.
        let mut changes: Vec<(u64, String, bool)> = Vec::new();
        let mut outside = BTreeSet::new();
        // A delete names an object by its name; one that is generated differs from run to run.
        let mut generated = BTreeMap::new();
        let known = |generated: &BTreeMap<String, String>, name: String| {
            generated.get(&name).cloned().unwrap_or(name)
        };
        for entry in entries {
            match &entry.event {
                Event::Acted { what, status, body, changed: Some(revision), .. } => {
                    if let Some((identity, is_creation)) = change(what, *status, body) {
                        if is_creation && let Some(name) = full_name(what, body) {
                            generated.insert(name, identity.clone());
                        }
                        let identity = if is_creation { identity } else { known(&generated, identity) };
                        changes.push((*revision, identity, is_creation));
                    }
                }
                Event::Restored { revision } => changes.retain(|(earlier, ..)| earlier <= revision),
                Event::BuiltIn { what, status } => {
                    if let Some((identity, false)) = change(what, *status, &[]) {
                        *counts.collected.entry(known(&generated, identity)).or_default() += 1;
                    }
                }
                Event::Outside { what, now } => {
                    let what = format!("outside {what}");
                    match now {
                        Some(_) if outside.insert(what.clone()) => {
                            *counts.created.entry(what).or_default() += 1
                        }
                        Some(_) => {}
                        None => {
                            outside.remove(&what);
                            *counts.deleted.entry(what).or_default() += 1;
                        }
                    }
                }
                _ => {}
            }
        }
        for (_, identity, is_creation) in changes {
            let counted = if is_creation { &mut counts.created } else { &mut counts.deleted };
            *counted.entry(identity).or_default() += 1;
        }
        counts
    }

    /// What was done more often here than in `reference`.
    pub(crate) fn excess(&self, reference: &Self) -> Vec<Excess> {
        let count = |counts: &BTreeMap<String, u32>, what: &str| counts.get(what).copied().unwrap_or(0);
        // An object of a stale owner may be collected and created again.
        let collected =
            |what: &str| count(&self.collected, what).saturating_sub(count(&reference.collected, what));
        let created = self.created.iter().map(|(what, times)| {
            (what, "created", *times, count(&reference.created, what) + collected(what))
        });
        let deleted = self
            .deleted
            .iter()
            .map(|(what, times)| (what, "deleted", *times, count(&reference.deleted, what)));
        let excess = created.chain(deleted).filter(|(.., times, expected)| times > expected);
        excess
            .map(|(what, done, times, expected)| Excess { what: what.clone(), done, times, expected })
            .collect()
    }
}

/// The resource and the name by which a delete would name the object that a request created.
fn full_name(what: &str, body: &[u8]) -> Option<String> {
    let resource = what.split(' ').nth(1)?;
    let object: Value = serde_json::from_slice(body).ok()?;
    let name = object["metadata"]["name"].as_str()?;
    Some(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{resource} {namespace}/{name}"),
        None => format!("{resource} {name}"),
    })
}

/// The identity of the object that a request created or deleted.
fn change(what: &str, status: u16, body: &[u8]) -> Option<(String, bool)> {
    let mut words = what.split(' ');
    let (verb, resource) = (words.next()?, words.next()?);
    if crate::site::is_noise(resource) || resource.contains('/') {
        return None;
    }
    match (verb, status) {
        ("create" | "apply" | "patch" | "update", 201) => {
            let object: Value = serde_json::from_slice(body).ok()?;
            Some((identity(resource, &object), true))
        }
        // A delete answers with the object, or with a Status if it is gone at once: the name is in the request.
        ("delete", 200 | 202) => Some((format!("{resource} {}", words.next()?), false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn acted(what: &str, status: u16, revision: u64, body: &str) -> Entry {
        let (what, body) = (what.into(), body.to_owned().into());
        let event = Event::Acted { replica: 0, what, nth: 1, status, body, changed: Some(revision) };
        Entry { at: Duration::ZERO, event }
    }

    const POD: &str = r#"{"metadata": {"name": "a-1", "namespace": "d", "generateName": "a-"}}"#;

    #[test]
    fn a_second_creation_is_an_excess_and_a_missing_one_is_not() {
        let once = Counts::of(&[acted("create pods d/", 201, 1, POD)]);
        let twice = Counts::of(&[acted("create pods d/", 201, 1, POD), acted("create pods d/", 201, 2, POD)]);
        let expected = Excess { what: "pods d/a-*".into(), done: "created", times: 2, expected: 1 };
        assert_eq!(twice.excess(&once), [expected]);
        assert_eq!(once.excess(&twice), []);
        assert_eq!(once.excess(&Counts::default()).len(), 1);
    }

    #[test]
    fn what_a_restored_backup_has_undone_does_not_count() {
        let restored = |revision| Entry { at: Duration::ZERO, event: Event::Restored { revision } };
        let once = Counts::of(&[acted("create pods d/", 201, 5, POD)]);
        // Others have changed something since, so that the revision is higher than before.
        let again = |revision| {
            let [first, again] = [5, 9].map(|revision| acted("create pods d/", 201, revision, POD));
            Counts::of(&[first, restored(revision), again])
        };
        assert_eq!(again(4), once);
        assert_eq!(again(5).excess(&once).len(), 1);
    }

    #[test]
    fn deletions_of_objects_with_generated_names_are_told_by_their_prefix() {
        let run = |suffix: &str| {
            let made = POD.replace("a-1", suffix);
            let delete = format!("delete pods d/{suffix}");
            Counts::of(&[acted("create pods d/", 201, 1, &made), acted(&delete, 200, 2, "{}")])
        };
        assert_eq!(run("a-x"), run("a-y"));
    }

    #[test]
    fn deletions_and_values_outside_count_too() {
        let delete = Counts::of(&[acted("delete pods d/x", 200, 1, "{}")]);
        assert_eq!(delete.excess(&Counts::default())[0].done, "deleted");
        let outside = |now: Option<&'static str>| Entry {
            at: Duration::ZERO,
            event: Event::Outside { what: "bucket".into(), now: now.map(Into::into) },
        };
        let put_twice = Counts::of(&[outside(Some("1")), outside(Some("2"))]);
        let put_again = Counts::of(&[outside(Some("1")), outside(None), outside(Some("2"))]);
        assert!(put_twice.excess(&put_again).is_empty());
        assert_eq!(put_again.excess(&put_twice).len(), 2);
    }
}
