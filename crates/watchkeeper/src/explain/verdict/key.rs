//! Causes in the key itself, while it does not fail.

use std::time::Duration;

use super::failing::{failing, has_failed, terminal};
use super::{Cause, NOTHING, ago, kubectl, name};
use crate::explain::facts::{Facts, ObjectFacts};
use crate::explain::key_view::Level;
use crate::explain::words::{counted, human};
use crate::object::ObjectName;
use crate::workqueue::{KeyRecord, KeyState, Reason, Relation, RunResult, Trigger};

/// A run that takes longer than this may hang.
const LONG_RUN: Duration = Duration::from_secs(60);
/// A key that waits for longer than this is in a queue that is too long.
const LONG_WAIT: Duration = Duration::from_secs(10);
/// A change that has led to no run for longer than this will not do so any more.
const LOST: Duration = Duration::from_secs(10);
pub(super) const UNBLOCK: &str =
    "find out what the handlers of the informer wait for: a handler must be quick, and not block";
const LOOSEN: &str = "if this is not intended, loosen the predicate in Controller::when";

/// The cause in the key itself.
pub(super) fn key(facts: &Facts<'_>) -> Cause {
    match (&facts.record, &facts.object) {
        (None, None) => absent(facts),
        (None, Some(object)) => not_remembered(facts, object),
        (Some(record), object) => recorded(facts, record, object.as_ref()),
    }
}

fn not_remembered(facts: &Facts<'_>, object: &ObjectFacts) -> Cause {
    let clause = format!("{} is in the cache in version {}", name(facts), object.version);
    if facts.has_forgotten {
        let clause = format!("{clause}, and its last run was too long ago to be remembered");
        return Cause::new("notRemembered", Level::Ok, clause, NOTHING);
    }
    Cause::new(
        "neverQueued",
        Level::Notice,
        format!("{clause}, but was never in the queue of controller {}", facts.controller),
        "check that a handler of the informer adds its key to the queue",
    )
}

fn absent(facts: &Facts<'_>) -> Cause {
    let plural = &facts.kind.plural;
    let mut covering = facts.watches.iter().filter(|watch| watch.covers(facts.key));
    let selected = covering.find(|watch| !watch.labels.is_empty() || !watch.fields.is_empty());
    let Some(watch) = selected else {
        return Cause::new(
            "notFound",
            Level::Problem,
            format!("{} is not in the cache: it does not exist, or was deleted long ago", name(facts)),
            format!("check its name and namespace with {}", kubectl(plural, facts.key, "")),
        );
    };
    let (selector, differ, show) = match (watch.labels.as_str(), watch.fields.as_str()) {
        (labels, "") => (format!("labels {labels}"), "labels", " --show-labels"),
        ("", fields) => (format!("fields {fields}"), "fields", " -o yaml"),
        (labels, fields) => (format!("labels {labels} and fields {fields}"), "labels or fields", " -o yaml"),
    };
    Cause::new(
        "notSelected",
        Level::Problem,
        format!(
            "{} is not in the cache, which has only objects with {selector}: its {differ} differ, or it does not exist",
            name(facts)
        ),
        format!("compare them with {}", kubectl(plural, facts.key, show)),
    )
}

fn recorded(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    match record.state {
        KeyState::Running => running(facts, record),
        KeyState::Waiting => waiting(facts, record),
        KeyState::Parked => parked(facts, record),
        KeyState::Retrying => failing(facts, record, object),
        KeyState::Delayed if has_failed(record) => failing(facts, record, object),
        KeyState::Delayed => unusual(facts, record, object).unwrap_or_else(|| delayed(facts, record)),
        KeyState::Failed => terminal(facts, record, object),
        _ => unusual(facts, record, object).unwrap_or_else(|| reconciled(facts, record, object)),
    }
}

fn one_of(workers: usize) -> String {
    if workers == 1 { "the only worker".to_owned() } else { format!("one of {workers} workers") }
}

/// In what time a delayed key is due.
fn due_in(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Option<String> {
    record.delayed_until.map(|due| human(due.saturating_duration_since(facts.now)))
}

fn delayed(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let due = due_in(facts, record).unwrap_or_default();
    let reconciled = match record.last_success {
        Some(at) => format!("{} was reconciled {} ago", name(facts), ago(Some(at), facts.now)),
        None => format!("{} has not been reconciled yet", name(facts)),
    };
    let asked = record.last_run.is_none_or(|run| run.result == RunResult::RequeueAfter);
    let (word, clause) = if record.is_due_by_retry {
        let retry = format!("a retry that was scheduled after an earlier failure will run it again in {due}");
        ("retryLeft", format!("{reconciled}; {retry}"))
    } else if asked {
        ("requeued", format!("{reconciled}, and will run again in {due}, as its reconcile requested"))
    } else {
        ("requeued", format!("{reconciled}, and will run again in {due}, as an earlier reconcile requested"))
    };
    Cause::new(word, Level::Ok, clause, NOTHING)
}

fn running(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let lasts = record.worked_on_since.map(|since| facts.now.saturating_duration_since(since));
    let lasts = lasts.unwrap_or_default();
    let again = if record.waiting_since.is_some() { ", and another one follows it" } else { "" };
    if lasts < LONG_RUN {
        let clause = format!("a reconcile of {} has been running for {}{again}", name(facts), human(lasts));
        return Cause::new("running", Level::Pending, clause, NOTHING);
    }
    Cause::new(
        "hangs",
        Level::Problem,
        format!(
            "the reconcile of {} has been running for {} and occupies {}",
            name(facts),
            human(lasts),
            one_of(facts.workers)
        ),
        "find out what it waits for, and set Controller::timeout so that such runs end",
    )
}

fn waiting(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let waited = record.waiting_since.map(|since| facts.now.saturating_duration_since(since));
    let (waited, behind) = (waited.unwrap_or_default(), record.behind.unwrap_or(0));
    let clause =
        format!("{} has been waiting for {} for {}", name(facts), human(waited), one_of(facts.workers));
    let age = |since| facts.now.saturating_duration_since(since);
    let hanging = facts.runs.iter().take_while(|(_, since)| age(*since) >= LONG_RUN);
    let (hanging, oldest) = (hanging.count(), facts.runs.first());
    if let Some((key, since)) =
        oldest.filter(|_| hanging > 0 && (hanging >= facts.workers || waited >= LONG_WAIT))
    {
        let lasts = human(age(*since));
        let clause = match (facts.workers, hanging) {
            (1, _) => format!("{clause}, which has been on {key} for {lasts}"),
            (2, 2) => {
                format!("{clause}; both have been on the same keys for over a minute, on {key} for {lasts}")
            }
            (all, busy) if busy >= all => {
                format!("{clause}; all have been on the same keys for over a minute, on {key} for {lasts}")
            }
            _ => format!(
                "{clause}, behind {}; one worker has been on {key} for {lasts}",
                counted(behind, "other key")
            ),
        };
        let advice = format!(
            "find out what the run of {key} waits for, and set Controller::timeout so that such runs end"
        );
        return Cause::new("workersHang", Level::Problem, clause, advice);
    }
    let clause = format!("{clause}, behind {}", counted(behind, "other key"));
    if waited < LONG_WAIT {
        return Cause::new("waiting", Level::Pending, clause, NOTHING);
    }
    Cause::new(
        "queueLong",
        Level::Problem,
        clause,
        "give the controller more workers, or find out why its runs take so long",
    )
}

fn parked(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let left = record.parked_until.map(|until| human(until.saturating_duration_since(facts.now)));
    let left = left.unwrap_or_default();
    let (what, seen) = match &facts.writes[..] {
        [] => ("its own writes".to_owned(), "its own writes"),
        [write, rest @ ..] => {
            let verb = if write.deleted { "the deletion of " } else { "" };
            let kind = if write.kind.is_empty() { String::new() } else { format!("{} ", write.kind) };
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let version = if write.version.is_unset() {
                String::new()
            } else {
                format!(" in version {}", write.version)
            };
            let cached = if write.cached.is_unset() {
                String::new()
            } else {
                format!("; the cache is at version {}", write.cached)
            };
            let seen = if rest.is_empty() { "the write" } else { "the writes" };
            (format!("its own write of {verb}{kind}{}{version}{more}{cached}", write.name), seen)
        }
    };
    Cause::new(
        "ownWrites",
        Level::Pending,
        format!("{} waits until the cache has seen {what}", name(facts)),
        format!("it runs as soon as the cache has seen {seen}, and in {left} at the latest"),
    )
}

/// Returns whether the object has the finalizer of the controller.
pub(super) fn holds(facts: &Facts<'_>, object: &ObjectFacts) -> bool {
    facts.finalizer.is_some_and(|own| object.finalizers.iter().any(|finalizer| finalizer == own))
}

/// Returns the version that the last run saw, and the cached one, if that is newer.
pub(super) fn changed_since(
    record: &KeyRecord<ObjectName>,
    object: Option<&ObjectFacts>,
) -> Option<(u64, u64)> {
    let saw = record.last_run.and_then(|run| run.saw)?.get();
    let cached = object?.version.as_number()?;
    (cached > saw).then_some((saw, cached))
}

/// Returns how many changes have not reached the handlers of a watch that covers the key, if there are any.
pub(super) fn backlog(facts: &Facts<'_>) -> Option<String> {
    let covering = facts.watches.iter().filter(|watch| watch.covers(facts.key));
    let behind = covering.max_by_key(|watch| watch.backlog).filter(|watch| watch.backlog > 0)?;
    let (changes, wait) =
        (counted(behind.backlog, "change"), if behind.backlog == 1 { "waits" } else { "wait" });
    Some(format!("{changes} of {} still {wait} for the cache or for a handler", behind.name))
}

/// Returns what is unusual about a key that is idle or delayed after a success.
fn unusual(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Option<Cause> {
    let Some(object) = object else { return Some(deleted(facts, record)) };
    if object.deleting && !holds(facts, object) && !object.finalizers.is_empty() {
        let (finalizers, keeps) = match &object.finalizers[..] {
            [one] => (format!("finalizer {one}"), "keeps"),
            all => (format!("finalizers {}", all.join(", ")), "keep"),
        };
        return Some(Cause::new(
            "heldByOthers",
            Level::Notice,
            format!(
                "{} is being deleted, but {finalizers}, which controller {} does not own, {keeps} it",
                name(facts),
                facts.controller
            ),
            "find out why the owner of the finalizer does not remove it",
        ));
    }
    changed_since(record, Some(object)).map(|versions| changed(facts, record, versions))
}

fn deleted(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let ended = record.last_run.map(|run| run.ended).or(record.last_success);
    let deleted = record.triggers.iter().find(|record| {
        matches!(record.trigger, Trigger::Object { relation: Relation::Itself, reason: Reason::Deleted, .. })
    });
    let when = match deleted {
        Some(trigger) => format!("was deleted {} ago", ago(Some(trigger.at), facts.now)),
        None => "is no longer in the cache".to_owned(),
    };
    let clause = format!("{} {when}, and its last run ended {} ago", name(facts), ago(ended, facts.now));
    Cause::new("deleted", Level::Ok, clause, NOTHING)
}

/// A cached version that no run saw, though none is pending.
fn changed(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, (saw, cached): (u64, u64)) -> Cause {
    let passed =
        record.last_run.map(|run| facts.now.saturating_duration_since(run.ended)).unwrap_or_default();
    let clause = format!(
        "{} has changed to version {cached} since its last run {} ago, which saw version {saw}",
        name(facts),
        human(passed)
    );
    // A change that has not reached the handler was shown to no predicate.
    if let Some(backlog) = backlog(facts) {
        return Cause::new("cacheBehind", Level::Notice, format!("{clause}, and {backlog}"), UNBLOCK);
    }
    if facts.has_predicates {
        let next = due_in(facts, record).map(|due| format!("; its next run is in {due}")).unwrap_or_default();
        let clause = format!("{clause}, but a predicate filtered the change out{next}");
        return Cause::new("filtered", Level::Notice, clause, LOOSEN);
    }
    if let Some(due) = due_in(facts, record) {
        let clause = format!("{clause}, and runs again in {due}");
        return Cause::new("changing", Level::Pending, clause, NOTHING);
    }
    if passed < LOST {
        return Cause::new("changing", Level::Pending, clause, NOTHING);
    }
    Cause::new(
        "changeLost",
        Level::Notice,
        format!("{clause}, and the change led to no run"),
        "check that a handler of the informer adds its key to the queue",
    )
}

fn reconciled(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    let since = ago(record.last_run.map(|run| run.ended).or(record.last_success), facts.now);
    let saw = record.last_run.and_then(|run| run.saw).map(std::num::NonZero::get);
    let cached = object.and_then(|object| object.version.as_number());
    let seen = match (saw, cached) {
        (Some(saw), Some(cached)) if saw == cached => {
            format!(" and saw version {saw}, which is the cached one")
        }
        (Some(saw), Some(cached)) => {
            format!(" and saw version {saw}, while the cache still has version {cached}")
        }
        (Some(saw), None) => format!(" and saw version {saw}"),
        _ => String::new(),
    };
    let clause = format!("{} is reconciled: its last run ended {since} ago{seen}", name(facts));
    Cause::new("reconciled", Level::Ok, clause, NOTHING)
}
