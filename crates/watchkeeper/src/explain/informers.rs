//! The views of informers.

use super::query::cut;
use super::view::{DegradedView, HandlerView, InformerView, KindView};
use super::words::Times;
use crate::informer::{CacheDetail, Caches};
use crate::reflector::Phase;

/// The number of bytes of an error.
const ERROR: usize = 512;

/// Returns the views of the informers of a factory; none once it is gone.
pub(super) fn views(caches: &Caches, times: &Times) -> Vec<InformerView> {
    caches.details().into_iter().map(|detail| view(detail, times)).collect()
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
