//! Causes in the caches: a watch that is down, late, or does not cover the key.

use super::{Cause, ERROR};
use crate::clock::Instant;
use crate::explain::facts::WatchFacts;
use crate::explain::key_view::Level;
use crate::explain::query::cut;
use crate::explain::words::human;
use crate::object::ObjectName;
use crate::reflector::{Cause as Trouble, Phase};

/// Returns the first trouble of the watches that cover the key, else that of another kind.
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
    let troubles = covering.into_iter().chain(others).filter_map(|watch| trouble(watch, now));
    troubles.take(1).collect()
}

fn not_covered(key: &ObjectName, watches: &[WatchFacts]) -> Option<Cause> {
    let namespaces: Vec<_> = watches.iter().filter_map(|watch| watch.namespace.as_deref()).collect();
    let first = watches.first()?;
    let (clause, advice) = match key.namespace() {
        Some(namespace) => (
            format!("{} are watched only in {}, not in {namespace}", resource(first), namespaces.join(", ")),
            format!("add {namespace} to the namespaces of the manager or of the watch, or move the object"),
        ),
        None => (
            format!("{} has no namespace, and {} have one", key.name(), resource(first)),
            "ask again with NAMESPACE/NAME".to_owned(),
        ),
    };
    Some(Cause::new("wrongNamespace", Level::Problem, clause, advice))
}

fn resource(watch: &WatchFacts) -> &str {
    &watch.resource
}

fn trouble(watch: &WatchFacts, now: Instant) -> Option<Cause> {
    let WatchFacts { name, resource, kind, .. } = watch;
    if watch.phase == Phase::Stopped {
        return Some(Cause::new(
            "watchStopped",
            Level::Problem,
            format!("the informer of {name} has stopped, so its cache does not change any more"),
            "start the program again",
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
            format!("install the CRD of {kind}; the informer finds it by itself"),
        ),
        Trouble::NoPermission => Cause::new(
            "noPermission",
            Level::Problem,
            format!("the program has not been permitted to list and watch {resource} for {lasts} ({why})"),
            "grant get, list and watch to its service account",
        ),
        Trouble::Polled => Cause::new(
            "polled",
            Level::Notice,
            format!("the program may list {resource} but not watch them, so its cache is late"),
            "grant watch to its service account",
        ),
        Trouble::Unreachable => Cause::new(
            "watchDown",
            Level::Problem,
            format!("the API server has not been reached for {name} for {lasts} ({why})"),
            "check the API server and the way to it; the cache catches up by itself",
        ),
        Trouble::Failing => Cause::new(
            "watchFailing",
            Level::Problem,
            format!("requests for {name} have failed for {lasts} ({why})"),
            "fix what the error says; the cache catches up by itself",
        ),
        #[allow(unreachable_patterns, reason = "causes may be added")]
        _ => Cause::new(
            "degraded",
            Level::Problem,
            format!("the cache of {name} has not been up to date for {lasts} ({why})"),
            "fix what the error says",
        ),
    })
}
