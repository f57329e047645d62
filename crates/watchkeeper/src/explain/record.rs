//! The view of one object: facts, verdict, state, timeline and children.

use std::sync::Arc;

use super::children::{Children, children};
use super::explained::{Known, Runs};
use super::facts::{Facts, Mapped, ObjectFacts, PendingWrite, RelatedFacts, WatchFacts};
use super::key_view::{ErrorView, KeyView, OutcomeView, PendingWriteView, VersionsView, ViewRelation};
use super::timeline::Past;
use super::verdict::{related_verdict, verdict};
use super::view::{KindView, LeaderView, ProgramPhase};
use super::words::Times;
use crate::object::ObjectName;
use crate::record::RecentEvents;
use crate::workqueue::{KeyRecord, KeyState};

/// The number of keys, writes and the like that a view lists.
const LISTED: usize = 100;
/// The number of running keys that a verdict looks at.
const RUNS: usize = 256;

/// What all views of one answer share.
pub(super) struct Around<'a> {
    pub(super) phase: ProgramPhase,
    pub(super) leader: Option<LeaderView>,
    pub(super) controllers: &'a [Arc<Known>],
    pub(super) events: Option<RecentEvents>,
    /// All watches of the program whose caches have not synced, while it starts.
    pub(super) unsynced: Vec<WatchFacts>,
    pub(super) times: &'a Times,
}

/// Returns the view of a key of a controller.
pub(super) fn view(known: &Known, key: &ObjectName, around: &Around<'_>) -> KeyView {
    let times = around.times;
    let object = known.mains.iter().find_map(|main| main.object(key));
    let record = known.queue.explain(key);
    let writes = known.writes.as_ref().map(|writes| writes.of_key(key)).unwrap_or_default();
    let phase = if known.queue.is_shutting_down() { ProgramPhase::Stopping } else { around.phase };
    let watches: Vec<_> = known.mains.iter().map(|main| main.facts()).collect();
    let others: Vec<_> = known.related.iter().map(|(_, watched)| watched.facts()).collect();
    let is_own = |watch: &&WatchFacts| watches.iter().chain(&others).any(|own| own.name == watch.name);
    let blockers: Vec<_> = around.unsynced.iter().filter(|watch| !is_own(watch)).cloned().collect();
    let facts = Facts {
        now: times.now,
        controller: &known.name,
        kind: &known.kind,
        key,
        phase,
        leader: around.leader.as_ref(),
        is_paused: known.runs.as_ref().is_some_and(|runs| (runs() as Runs).is_paused),
        workers: known.workers,
        runs: known.queue.running(RUNS),
        has_forgotten: known.queue.has_forgotten(),
        watches,
        others,
        blockers: &blockers,
        has_predicates: known.has_predicates,
        finalizer: known.finalizer.as_deref(),
        object,
        record,
        writes,
    };
    let verdict = verdict(&facts);
    let Facts { object, record, writes, .. } = facts;
    let children = match &object {
        Some(object) => children(known, &object.uid, around.controllers),
        None => Children::default(),
    };
    let mut view = KeyView {
        controller: known.name.clone(),
        verdict,
        state: if object.is_some() { KeyState::Cached } else { KeyState::Unknown },
        children: children.tree,
        children_left_off: children.left_off,
        children_unknown: children.unknown,
        ..KeyView::default()
    };
    if let Some(record) = &record {
        describe(&mut view, record, times);
    }
    if let Some(object) = object {
        cached(&mut view, object);
    }
    view.versions.written =
        writes.iter().filter_map(|write| write.version.as_number()).max().map(|v| v.to_string());
    let past = Past {
        record: record.as_ref(),
        writes: known.writes.as_ref().map(|writes| writes.recent(key)).unwrap_or_default(),
        pending: &writes,
        events: around.events.as_ref().map(|events| events.about(&known.kind.kind, key)).unwrap_or_default(),
    };
    view.timeline = past.timeline(times);
    view.waits_for_left_off = writes.len().saturating_sub(LISTED);
    view.waits_for = writes.into_iter().take(LISTED).map(|write| pending(write, times)).collect();
    view
}

/// Returns the view of an object whose changes lead to reconciles of others.
pub(super) fn related_view(
    known: &Known,
    relation: ViewRelation,
    kind: &KindView,
    key: &ObjectName,
    times: &Times,
) -> KeyView {
    let of_kind: Vec<_> = known
        .related
        .iter()
        .filter(|(other, watched)| *other == relation && watched.kind() == *kind)
        .collect();
    let object = of_kind.iter().find_map(|(_, watched)| watched.object(key));
    let mut maps_to = Mapped::default();
    for (_, watched) in &of_kind {
        let of_watch = watched.maps_to(key);
        maps_to.keys.extend(of_watch.keys);
        maps_to.panic = maps_to.panic.or(of_watch.panic);
    }
    maps_to.keys.sort_unstable();
    maps_to.keys.dedup();
    let facts = RelatedFacts {
        now: times.now,
        controller: &known.name,
        main: &known.kind,
        kind,
        key,
        is_owned: relation == ViewRelation::Owner,
        watches: of_kind.iter().map(|(_, watched)| watched.facts()).collect(),
        object,
        maps_to,
    };
    let mut view = KeyView {
        controller: known.name.clone(),
        relation,
        verdict: related_verdict(&facts),
        ..KeyView::default()
    };
    let keys = facts.maps_to.keys;
    view.maps_to_left_off = keys.len().saturating_sub(LISTED);
    view.maps_to = keys.iter().take(LISTED).map(ToString::to_string).collect();
    if let Some(object) = facts.object {
        cached(&mut view, object);
    }
    view
}

fn cached(view: &mut KeyView, object: ObjectFacts) {
    view.versions.cached = Some(object.version.to_string());
    view.deleting = object.deleting;
    view.finalizers = object.finalizers;
}

fn describe(view: &mut KeyView, record: &KeyRecord<ObjectName>, times: &Times) {
    let run = record.last_run;
    let ended = run.map(|run| run.ended).or(record.last_success);
    let (since, until) = match record.state {
        KeyState::Running => (record.worked_on_since, None),
        KeyState::Waiting => (record.waiting_since, None),
        KeyState::Parked => (record.parked_since, record.parked_until),
        KeyState::Retrying | KeyState::Delayed => (ended, record.delayed_until),
        _ => (ended, None),
    };
    view.state = record.state;
    view.since = since.map(|at| times.wall(at));
    view.until = until.map(|at| times.wall(at));
    view.behind = record.behind;
    view.worker = record.worker;
    view.failures = record.retries;
    view.last_error = record
        .last_error
        .as_ref()
        .map(|error| ErrorView { at: times.wall(error.at), message: error.message.to_string() });
    view.last_outcome = run.map(|run| OutcomeView {
        result: run.result.as_str().to_owned(),
        at: times.wall(run.ended),
        seconds: run.took.as_secs_f64(),
    });
    view.last_success = record.last_success.map(|at| times.wall(at));
    view.versions = VersionsView {
        reconciled: run.and_then(|run| run.saw).map(|version| version.to_string()),
        succeeded: record.last_success_saw.map(|version| version.to_string()),
        ..VersionsView::default()
    };
}

fn pending(write: PendingWrite, times: &Times) -> PendingWriteView {
    let known = |version: crate::object::ResourceVersion| (!version.is_unset()).then(|| version.to_string());
    PendingWriteView {
        kind: write.kind,
        name: write.name.to_string(),
        version: known(write.version),
        cached: known(write.cached),
        deleted: write.deleted,
        at: times.wall(times.now - write.age),
    }
}
