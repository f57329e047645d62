//! The view of one object: facts, verdict, timeline and children.

use std::sync::Arc;

use super::explained::{Known, Runs};
use super::facts::{Facts, ObjectFacts, PendingWrite, RelatedFacts};
use super::key_view::{
    ChildView, ErrorView, KeyView, OutcomeView, PendingWriteView, TimelineEntry, TimelineKind, VersionsView,
    ViewRelation,
};
use super::program::Explain;
use super::verdict::{related_verdict, verdict};
use super::view::{KindView, LeaderView, ProgramPhase};
use super::words::Times;
use crate::object::ObjectName;
use crate::workqueue::{KeyRecord, KeyState, RunResult};

/// The number of children that are shown.
const CHILDREN: usize = 100;
/// The number of levels of children.
const LEVELS: usize = 4;

/// Returns the view of a key of a controller.
pub(super) fn view(
    known: &Known,
    key: &ObjectName,
    phase: ProgramPhase,
    leader: Option<&LeaderView>,
    controllers: &[Arc<Known>],
    times: &Times,
) -> KeyView {
    let object = known.mains.iter().find_map(|main| main.object(key));
    let record = known.queue.explain(key);
    let writes = known.writes.as_ref().map(|writes| writes.of_key(key)).unwrap_or_default();
    let phase = if known.queue.is_shutting_down() { ProgramPhase::Stopping } else { phase };
    let facts = Facts {
        now: times.now,
        controller: &known.name,
        kind: &known.kind,
        key,
        phase,
        leader,
        is_paused: known.runs.as_ref().is_some_and(|runs| (runs() as Runs).is_paused),
        workers: known.workers,
        watches: known.mains.iter().map(|main| main.facts()).collect(),
        others: known.related.iter().map(|(_, watched)| watched.facts()).collect(),
        has_predicates: known.has_predicates,
        finalizer: known.finalizer.as_deref(),
        object,
        record,
        writes,
    };
    let verdict = verdict(&facts);
    let Facts { object, record, writes, .. } = facts;
    let (children, left_off) = match &object {
        Some(object) => children(known, &object.uid, controllers),
        None => (Vec::new(), 0),
    };
    let mut view = KeyView {
        controller: known.name.clone(),
        verdict,
        state: if object.is_some() { KeyState::Cached } else { KeyState::Unknown },
        children,
        children_left_off: left_off,
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
    view.timeline.extend(writes.iter().map(|write| written(write, times)));
    view.waits_for = writes.into_iter().map(|write| pending(write, times)).collect();
    view.timeline.sort_by(|one, other| one.at.cmp(&other.at));
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
    let mut maps_to: Vec<_> = of_kind.iter().flat_map(|(_, watched)| watched.maps_to(key)).collect();
    maps_to.sort_unstable();
    maps_to.dedup();
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
    view.maps_to = facts.maps_to.iter().map(ToString::to_string).collect();
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
        ..VersionsView::default()
    };
    view.timeline = timeline(record, times);
}

fn timeline(record: &KeyRecord<ObjectName>, times: &Times) -> Vec<TimelineEntry> {
    let entry = |at, kind, text: String| TimelineEntry { at: times.wall(at), kind, text };
    let mut entries: Vec<_> = record
        .triggers
        .iter()
        .map(|trigger| entry(trigger.at, TimelineKind::Trigger, trigger.to_string()))
        .collect();
    if let Some(error) = &record.last_error {
        entries.push(entry(error.at, TimelineKind::Error, format!("a run failed: {}", error.message)));
    }
    let is_ok = |result| matches!(result, RunResult::Success | RunResult::RequeueAfter);
    if let Some(run) = record.last_run.filter(|run| is_ok(run.result)) {
        let saw = run.saw.map(|version| format!(", which saw version {version}")).unwrap_or_default();
        entries.push(entry(run.ended, TimelineKind::Run, format!("a run of {:?} ended well{saw}", run.took)));
    } else if let Some(at) = record.last_success {
        entries.push(entry(at, TimelineKind::Run, "a run ended well".to_owned()));
    }
    if let Some(at) = record.worked_on_since {
        entries.push(entry(at, TimelineKind::Run, "the current run began".to_owned()));
    }
    if let Some(at) = record.delayed_until {
        let what = if record.is_backing_off { "a retry is due" } else { "a run is due" };
        entries.push(entry(at, TimelineKind::Due, what.to_owned()));
    }
    if let Some(at) = record.parked_until {
        entries.push(entry(at, TimelineKind::Due, "it waits for its own writes no longer".to_owned()));
    }
    entries
}

fn written(write: &PendingWrite, times: &Times) -> TimelineEntry {
    let what = if write.deleted { "deleted" } else { "wrote" };
    let version =
        if write.version.is_unset() { String::new() } else { format!(" in version {}", write.version) };
    let text = format!("a run {what} {} {}{version}", write.kind, write.name);
    TimelineEntry {
        at: times.wall(times.now - write.age),
        kind: TimelineKind::Write,
        text: text.replace("  ", " "),
    }
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

/// Returns the first objects that an object controls, as a tree, and the number of those that were left off.
fn children(known: &Known, uid: &str, controllers: &[Arc<Known>]) -> (Vec<ChildView>, usize) {
    let mut left = CHILDREN;
    let mut left_off = 0;
    let tree = branch(known, uid, controllers, LEVELS, &mut left, &mut left_off);
    (tree, left_off)
}

fn branch(
    known: &Known,
    uid: &str,
    controllers: &[Arc<Known>],
    levels: usize,
    left: &mut usize,
    left_off: &mut usize,
) -> Vec<ChildView> {
    let mut children = Vec::new();
    if levels == 0 || uid.is_empty() {
        return children;
    }
    for (_, watched) in known.related.iter().filter(|(relation, _)| *relation == ViewRelation::Owner) {
        let kind = watched.kind().kind;
        let mut found = watched.children(uid);
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (key, facts) in found {
            if *left == 0 {
                *left_off += 1;
                continue;
            }
            *left -= 1;
            let state = Explain::state_in(controllers, &kind, &key);
            let own = controllers.iter().find(|other| other.kind.kind == kind);
            let below = own
                .map(|own| branch(own, &facts.uid, controllers, levels - 1, left, left_off))
                .unwrap_or_default();
            children.push(ChildView {
                kind: kind.clone(),
                key: key.to_string(),
                version: facts.version.to_string(),
                deleting: facts.deleting,
                controller: state.as_ref().map(|(name, _)| name.clone()),
                state: state.map(|(_, state)| state),
                children: below,
            });
        }
    }
    children
}
