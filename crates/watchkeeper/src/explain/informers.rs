//! The views of informers.

use super::facts::WatchFacts;
use super::query::cut;
use super::view::{DegradedView, HandlerView, InformerView, KindView};
use super::watched::backlog;
use super::words::Times;
use crate::informer::{CacheDetail, Caches};
use crate::reflector::Phase;

/// The number of bytes of an error.
const ERROR: usize = 512;

/// Returns the views of the informers of a factory; none once it is gone.
pub(super) fn views(caches: &Caches, times: &Times) -> Vec<InformerView> {
    caches.details().into_iter().map(|detail| view(detail, times)).collect()
}

/// Returns the watches of a factory whose caches have not synced.
pub(super) fn unsynced(caches: &Caches) -> Vec<WatchFacts> {
    let unsynced = caches.details().into_iter().filter(|detail| !detail.has_synced);
    unsynced.map(facts).collect()
}

fn facts(detail: CacheDetail) -> WatchFacts {
    let CacheDetail {
        kind: (group, version, kind, plural), scope, selection, has_synced, health, stats, ..
    } = detail;
    let degraded = health.cause().zip(health.degraded.clone());
    let kind = KindView { group, version, kind, plural };
    WatchFacts {
        has_synced,
        phase: health.phase,
        degraded: degraded.map(|(cause, (since, why))| (since, cause, why)),
        backlog: backlog(&stats),
        ..WatchFacts::of(&kind, &scope, &selection)
    }
}

fn view(detail: CacheDetail, times: &Times) -> InformerView {
    let CacheDetail { id, name, kind, scope, selection, has_synced, health, stats } = detail;
    let degraded = health.cause().zip(health.degraded.as_ref());
    let handlers = stats.handlers.into_iter().map(|handler| HandlerView {
        name: handler.name,
        pending: handler.pending,
        coalesced: handler.coalesced,
        panics: handler.panics,
        slow: handler.slow,
    });
    let lists = health.lists_by_reason.iter();
    let (group, version, kind, plural) = kind;
    InformerView {
        id,
        name,
        kind: KindView { group, version, kind, plural },
        namespace: scope.namespace().map(str::to_owned),
        labels: selection.labels,
        fields: selection.fields,
        phase: phase(health.phase).to_owned(),
        synced: has_synced,
        degraded: degraded.map(|(cause, (since, why))| DegradedView {
            since: times.wall(*since),
            cause: cause.as_str().to_owned(),
            why: cut(why, ERROR),
        }),
        objects: stats.objects,
        bytes: stats.bytes,
        version: stats.version.to_string(),
        queued: stats.queued,
        last_contact: health.last_contact.map(|at| times.wall(at)),
        lists: lists.map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect(),
        watches: health.watches,
        rewritten: health.rewritten,
        verified: health.verified.map(|at| times.wall(at)),
        differences: health.differences,
        handlers: handlers.collect(),
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Listing => "listing",
        Phase::Watching => "watching",
        Phase::Waiting => "waiting",
        Phase::Parked => "parked",
        Phase::Stopped => "stopped",
    }
}
