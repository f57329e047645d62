//! The verdict on an object: from facts to one or two sentences. Pure.
//!
//! Causes are collected from the most fundamental one on: the program (`program.rs`), the caches (`caches.rs`), the key
//! (`key.rs`, `failing.rs`). The text has the first two. `related.rs` is about objects that are no keys.

mod caches;
mod failing;
mod key;
mod program;
mod related;

use self::caches::{caches, troubles};
use self::failing::still_failing;
use self::key::key;
use self::program::program;
use self::related::related;
use super::facts::{Facts, RelatedFacts};
use super::key_view::{Level, Verdict};
use super::words::human;
use crate::clock::Instant;
use crate::object::ObjectName;

/// The number of bytes of an error in a verdict.
const ERROR: usize = 200;

/// The words for causes, in [`Verdict::causes`] and in JSON.
pub const CAUSES: [&str; 44] = [
    // In the program.
    "shutDown",
    "notLeader",
    "noLeader",
    "notStarted",
    "paused",
    // In the caches.
    "watchStopped",
    "notSynced",
    "notServed",
    "noPermission",
    "polled",
    "watchDown",
    "watchFailing",
    "degraded",
    "wrongNamespace",
    // In a key that runs or waits.
    "running",
    "hangs",
    "waiting",
    "workersHang",
    "queueLong",
    "ownWrites",
    // In a key that failed.
    "failing",
    "panics",
    "timesOut",
    "terminal",
    "cleanupFails",
    "undecodable",
    "rateLimited",
    // In a key that rests.
    "reconciled",
    "requeued",
    "retryLeft",
    "changing",
    "cacheBehind",
    "filtered",
    "changeLost",
    "heldByOthers",
    "deleted",
    // In a key that is not known.
    "notFound",
    "notSelected",
    "neverQueued",
    "notRemembered",
    // In a related object.
    "related",
    "noOwner",
    "noMapping",
    "mappingPanics",
];

/// One cause: a clause, and what to do about it. Neither has a full stop.
struct Cause {
    word: &'static str,
    level: Level,
    clause: String,
    advice: String,
}

impl Cause {
    fn new(word: &'static str, level: Level, clause: impl Into<String>, advice: impl Into<String>) -> Self {
        debug_assert!(CAUSES.contains(&word), "{word} is not listed");
        Self { word, level, clause: clause.into(), advice: advice.into() }
    }
}

const NOT_STARTED: &str = "notStarted";
const CATCHES_UP: &str = "; the cache catches up by itself";
const NOTHING: &str = "no action is needed";

/// Returns what is the matter with a key.
pub(super) fn verdict(facts: &Facts<'_>) -> Verdict {
    let mut causes: Vec<Cause> = Vec::new();
    causes.extend(program(facts));
    let of_caches = caches(facts.key, &facts.watches, &facts.others, facts.now);
    let is_starting = causes.iter().any(|cause| cause.word == NOT_STARTED);
    causes.extend(of_caches.into_iter().filter(|cause| !is_starting || cause.word != "notSynced"));
    if is_starting && causes.len() == 1 {
        let of_others = troubles(facts.blockers.iter(), facts.now).into_iter();
        causes.extend(of_others.filter(|cause| cause.word != "notSynced"));
    }
    if facts.is_paused {
        causes.push(Cause::new(
            "paused",
            Level::Problem,
            format!("controller {} starts no reconciles while a cache is out of date", facts.controller),
            NOTHING,
        ));
    }
    let of_key = key(facts);
    // What is well or comes by itself is of no interest beside a problem.
    // What is not in a cache that is not right may exist all the same.
    let is_known = facts.record.is_some() || facts.object.is_some();
    if causes.is_empty() || (of_key.level == Level::Problem && is_known) {
        causes.push(of_key);
        causes.extend(still_failing(facts));
    }
    write(&causes)
}

/// Returns what is the matter with an object whose changes lead to reconciles of others.
pub(super) fn related_verdict(facts: &RelatedFacts<'_>) -> Verdict {
    let mut causes = caches(facts.key, &facts.watches, &[], facts.now);
    let of_object = related(facts);
    if causes.is_empty() || (of_object.level == Level::Problem && facts.object.is_some()) {
        causes.push(of_object);
    }
    write(&causes)
}

/// Writes the first two causes as sentences.
fn write(causes: &[Cause]) -> Verdict {
    let text = match causes {
        [] => String::new(),
        [one] => format!("{}. {}.", capital(&one.clause), capital(&one.advice)),
        [first, second, ..] => {
            let also = format!("{}; also, {}.", capital(&first.clause), second.clause);
            if first.word == NOT_STARTED {
                // What keeps it from starting is to be mended.
                format!("{also} {}.", capital(&second.advice))
            } else if second.advice == NOTHING || first.advice == second.advice {
                format!("{also} {}.", capital(&first.advice))
            } else if first.advice == NOTHING {
                format!("{also} {}.", capital(&second.advice))
            } else {
                let mut to_do = first.advice.as_str();
                if second.advice.ends_with(CATCHES_UP) {
                    to_do = to_do.strip_suffix(CATCHES_UP).unwrap_or(to_do);
                }
                format!("{also} {}; then {}.", capital(to_do), second.advice)
            }
        }
    };
    Verdict {
        level: causes.iter().map(|cause| cause.level).max().unwrap_or_default(),
        causes: causes.iter().map(|cause| cause.word.to_owned()).collect(),
        text,
    }
}

fn capital(clause: &str) -> String {
    let mut signs = clause.chars();
    signs.next().map(|first| first.to_uppercase().chain(signs).collect()).unwrap_or_default()
}

fn name(facts: &Facts<'_>) -> String {
    format!("{} {}", facts.kind.kind, facts.key)
}

/// Returns the command that shows an object.
fn kubectl(plural: &str, key: &ObjectName, more: &str) -> String {
    let namespace = key.namespace().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    format!("`kubectl get {plural} {}{namespace}{more}`", key.name())
}

fn ago(at: Option<Instant>, now: Instant) -> String {
    at.map(|at| human(now.saturating_duration_since(at))).unwrap_or_default()
}

#[cfg(test)]
mod tests;
