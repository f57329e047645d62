//! What can be wrong with a run.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::canonical::State;
use crate::counts::Excess;
use crate::trace::{Event, Trace};

/// What was wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The end state differs from that without faults: for each object, both forms.
    Differs(Vec<Difference>),
    /// The controller goes on writing though nothing changes any more.
    Restless {
        /// How long it should have rested.
        rest: Duration,
        /// Its last writes.
        writes: Vec<String>,
    },
    /// Something was created or deleted more often than without faults.
    Doubled(Vec<Excess>),
    /// An invariant of the author's did not hold.
    Invariant {
        /// Its name.
        name: String,
        /// What it says.
        problem: String,
    },
    /// The story could not go on.
    Story(String),
    /// The story has not ended after this much virtual time.
    Unended(Duration),
    /// The controller ends without any fault before it is told to: what it says.
    Ended(String),
    /// The controller panicked.
    Panic(String),
    /// The program is wrong, for example by reading a kind that it does not watch.
    Mistake(String),
    /// The controller makes requests without end.
    Runaway(u64),
    /// Two runs of one schedule were not the same.
    NotDeterministic,
}

/// An object, or a value outside, that is not as without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Resource, namespace and name.
    pub what: String,
    /// The canonical forms without faults; none if there should be none.
    pub expected: Vec<Value>,
    /// The canonical forms in this run.
    pub found: Vec<Value>,
}

impl Violation {
    /// What differs between two states.
    pub(crate) fn differences(expected: &State, found: &State) -> Vec<Difference> {
        let names: BTreeSet<&String> = expected.objects.keys().chain(found.objects.keys()).collect();
        let of = |state: &State, name: &String| state.objects.get(name).cloned().unwrap_or_default();
        let objects = names.into_iter().map(|name| Difference {
            what: name.clone(),
            expected: of(expected, name),
            found: of(found, name),
        });
        let names: BTreeSet<&String> = expected.outside.keys().chain(found.outside.keys()).collect();
        let of =
            |state: &State, name: &String| state.outside.get(name).cloned().into_iter().collect::<Vec<_>>();
        let outside = names.into_iter().map(|name| Difference {
            what: format!("outside {name}"),
            expected: of(expected, name),
            found: of(found, name),
        });
        objects.chain(outside).filter(|it| it.expected != it.found).collect()
    }

    pub(crate) fn restless(trace: &Trace, rest: Duration) -> Self {
        let writes = trace.since(0, |entries| {
            let writes = entries.iter().rev().filter_map(|entry| match &entry.event {
                Event::Acted { what, changed: Some(_), .. } => Some(what.to_string()),
                _ => None,
            });
            writes.filter(|what| !what.contains(" events") && !what.contains(" leases")).take(6).collect()
        });
        Self::Restless { rest, writes }
    }

    /// Whether two violations are of the same kind, and about one thing at least that is the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Differs(one), Self::Differs(other)) => {
                one.iter().any(|one| other.iter().any(|other| one.what == other.what))
            }
            (Self::Doubled(one), Self::Doubled(other)) => {
                one.iter().any(|one| other.iter().any(|other| one.what == other.what))
            }
            (Self::Restless { writes: one, .. }, Self::Restless { writes: other, .. }) => {
                (one.is_empty() && other.is_empty()) || one.iter().any(|write| other.contains(write))
            }
            (Self::Invariant { name: one, .. }, Self::Invariant { name: other, .. }) => one == other,
            // What they say may have numbers that differ from run to run.
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(differences) => {
                f.write_str("the end state differs from the one without faults: ")?;
                list(
                    f,
                    differences.iter().map(|it| match (it.expected.len(), it.found.len()) {
                        (expected, 0) if expected > 0 => format!("{} is missing", it.what),
                        (0, _) => format!("{} is left over", it.what),
                        (expected, found) if expected != found => {
                            format!("{} is there {found} times, not {expected}", it.what)
                        }
                        _ => format!("{} is different", it.what),
                    }),
                )
            }
            Self::Restless { rest, writes } => {
                write!(f, "the controller writes though nothing has changed for {rest:?}: ")?;
                list(f, writes.iter().cloned())
            }
            Self::Doubled(excess) => list(
                f,
                excess
                    .iter()
                    .map(|it| format!("{} was {} {} times, not {}", it.what, it.done, it.times, it.expected)),
            ),
            Self::Invariant { name, problem } => write!(f, "{name:?} does not hold: {problem}"),
            Self::Story(message) => write!(f, "the story cannot go on: {message}"),
            Self::Unended(time) => {
                write!(
                    f,
                    "the story has not ended after {} hours of virtual time",
                    time.as_secs_f64() / 3600.0
                )
            }
            Self::Ended(why) => write!(f, "without faults, the controller {why}"),
            Self::Panic(message) => write!(f, "the controller panicked: {message}"),
            Self::Mistake(message) => write!(f, "the controller is wrong: {message}"),
            Self::Runaway(requests) => {
                write!(f, "the controller makes requests without end: {requests} so far")
            }
            Self::NotDeterministic => f.write_str(
                "two runs of the same schedule were not the same: \
                 something uses other time or randomness than it was given",
            ),
        }
    }
}

/// At most five items, and how many more there are.
fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = String>) -> fmt::Result {
    let items: Vec<String> = items.collect();
    let shown = items.len().min(5);
    f.write_str(&items[..shown].join(", "))?;
    match items.len() - shown {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differs(names: &[&str]) -> Violation {
        let difference =
            |name: &&str| Difference { what: (*name).to_owned(), expected: Vec::new(), found: Vec::new() };
        Violation::Differs(names.iter().map(difference).collect())
    }

    #[test]
    fn violations_are_alike_if_they_are_about_the_same() {
        assert!(differs(&["pods d/a", "pods d/b"]).is_like(&differs(&["pods d/b"])));
        assert!(!differs(&["pods d/a"]).is_like(&differs(&["pods d/b"])));
        let doubled = |what: &str| {
            Violation::Doubled(vec![Excess { what: what.into(), done: "created", times: 2, expected: 1 }])
        };
        assert!(doubled("pods d/a").is_like(&doubled("pods d/a")));
        assert!(!doubled("pods d/a").is_like(&doubled("pods d/b")));
        assert!(!doubled("pods d/a").is_like(&differs(&["pods d/a"])));
        let invariant =
            |name: &str, problem: &str| Violation::Invariant { name: name.into(), problem: problem.into() };
        assert!(invariant("one", "2 Pods").is_like(&invariant("one", "3 Pods")));
        assert!(!invariant("one", "2 Pods").is_like(&invariant("other", "2 Pods")));
        let restless = |writes: &[&str]| {
            let writes = writes.iter().map(ToString::to_string).collect();
            Violation::Restless { rest: Duration::ZERO, writes }
        };
        assert!(restless(&["apply pods d/a", "apply pods d/b"]).is_like(&restless(&["apply pods d/b"])));
        assert!(!restless(&["apply pods d/a"]).is_like(&restless(&["apply pods d/b"])));
        assert!(Violation::Panic("1".into()).is_like(&Violation::Panic("2".into())));
    }
}
