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

    /// Whether two violations are of the same kind, about the same things.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
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
