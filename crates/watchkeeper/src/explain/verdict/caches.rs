//! Causes in the caches: a watch that is down, late, or does not cover the key.

use super::{CATCHES_UP, Cause, ERROR};
use crate::clock::Instant;
use crate::explain::facts::WatchFacts;
use crate::explain::key_view::Level;
use crate::explain::query::cut;
use crate::explain::words::{human, kinds};
use crate::object::ObjectName;
use crate::reflector::{Cause as Trouble, Phase};

/// The number of troubles that are told.
const TOLD: usize = 2;
/// What the error of a request that did not arrive says before the reason.
const UNREACHED: &str = "cannot reach the API server: ";

/// Returns the first troubles of different causes: those of the watches that cover the key, then those of other kinds.
pub(super) fn caches(
    key: &ObjectName,
    watches: &[WatchFacts],
    others: &[WatchFacts],
    now: Instant,
) -> Vec<Cause> {
    let covering: Vec<_> = watches.iter().filter(|watch| watch.covers(key)).collect();
    if covering.is_empty() {
        return not_covered(key, watches).into_iter().collect();
    }
    troubles(covering.into_iter().chain(others), now)
}

/// Returns the first troubles of different causes.
pub(super) fn troubles<'a>(watches: impl Iterator<Item = &'a WatchFacts>, now: Instant) -> Vec<Cause> {
    let mut told: Vec<Cause> = Vec::new();
    for cause in watches.filter_map(|watch| trouble(watch, now)) {
        if told.iter().all(|other| other.word != cause.word) {
            told.push(cause);
        }
    }
    // What comes by itself is of no interest beside a problem.
    told.sort_by_key(|cause| cause.level < Level::Notice);
    told.truncate(TOLD);
    told
}

fn not_covered(key: &ObjectName, watches: &[WatchFacts]) -> Option<Cause> {
    let namespaces: Vec<_> = watches.iter().filter_map(|watch| watch.namespace.as_deref()).collect();
    let first = watches.first()?;
    let kinds = kinds(&first.kind, &first.resource);
    let (clause, advice) = match key.namespace() {
        Some(namespace) => (
            format!("{kinds} are watched only in {}, not in {namespace}", namespaces.join(", ")),
            format!("add {namespace} to the namespaces of the manager or of the watch, or move the object"),
        ),
        None => (
            format!("{kinds} are in namespaces, and {} was asked for without one", key.name()),
            "ask for NAMESPACE/NAME".to_owned(),
        ),
    };
    Some(Cause::new("wrongNamespace", Level::Problem, clause, advice))
}

fn trouble(watch: &WatchFacts, now: Instant) -> Option<Cause> {
    let WatchFacts { name, resource, kind, .. } = watch;
    if watch.phase == Phase::Stopped {
        return Some(Cause::new(
            "watchStopped",
            Level::Problem,
            format!("the informer of {name} has stopped, so its cache no longer changes"),
            "restart the program",
        ));
    }
    let Some((since, cause, why)) = &watch.degraded else {
        return (!watch.has_synced).then(|| {
            Cause::new(
                "notSynced",
                Level::Pending,
                format!("the cache of {name} has not synced yet"),
                "wait for the initial list",
            )
        });
    };
    let lasts = human(now.saturating_duration_since(*since));
    let why = cut(why, ERROR);
    Some(match cause {
        Trouble::NotServed => Cause::new(
            "notServed",
            Level::Problem,
            format!("the API server has not served {resource} for {lasts}"),
            format!("install the CRD of {kind}; the informer picks it up by itself"),
        ),
        Trouble::NoPermission => Cause::new(
            "noPermission",
            Level::Problem,
            format!("the program has not been allowed to list and watch {name} for {lasts} ({why})"),
            format!("grant its service account the verbs get, list and watch on {resource}"),
        ),
        Trouble::Polled => Cause::new(
            "polled",
            Level::Notice,
            format!("the program may list {resource} but not watch them, so their cache is late"),
            format!("grant its service account the verb watch on {resource}"),
        ),
        Trouble::Unreachable => {
            let why = why.split_once(UNREACHED).map_or(why.as_str(), |(_, reason)| reason);
            Cause::new(
                "watchDown",
                Level::Problem,
                format!("the informer of {name} has not reached the API server for {lasts} ({why})"),
                format!("check the API server and the network path to it{CATCHES_UP}"),
            )
        }
        Trouble::Failing => Cause::new(
            "watchFailing",
            Level::Problem,
            format!("requests for {name} have failed for {lasts} ({why})"),
            format!("fix what the error names{CATCHES_UP}"),
        ),
        #[allow(unreachable_patterns, reason = "causes may be added")]
        _ => Cause::new(
            "degraded",
            Level::Problem,
            format!("the cache of {name} has not been up to date for {lasts} ({why})"),
            "fix what the error names",
        ),
    })
}
