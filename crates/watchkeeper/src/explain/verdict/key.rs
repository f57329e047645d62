//! Causes in the key itself, while it does not fail.

use std::time::Duration;

use super::failing::{failing, has_failed, terminal};
use super::{Cause, NOTHING, ago, kubectl, name};
use crate::explain::facts::{Facts, ObjectFacts};
use crate::explain::key_view::Level;
use crate::explain::words::{counted, human};
use crate::object::ObjectName;
use crate::workqueue::{KeyRecord, KeyState, Reason, Relation, Trigger};

/// A run that takes longer than this may hang.
const LONG_RUN: Duration = Duration::from_secs(60);
/// A key that waits for longer than this is in a queue that is too long.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// The cause in the key itself.
pub(super) fn key(facts: &Facts<'_>) -> Cause {
    match (&facts.record, &facts.object) {
        (None, None) => absent(facts),
        (None, Some(object)) => Cause::new(
            "notRemembered",
            Level::Notice,
            format!(
                "{} is in the cache with version {}, and controller {} remembers no run of it",
                name(facts),
                object.version,
                facts.controller
            ),
            "nothing is wrong if its last run was long ago; change an annotation to have it reconciled",
        ),
        (Some(record), object) => recorded(facts, record, object.as_ref()),
    }
}

fn absent(facts: &Facts<'_>) -> Cause {
    let plural = &facts.kind.plural;
    let mut covering = facts.watches.iter().filter(|watch| watch.covers(facts.key));
    let selected = covering.find(|watch| !watch.labels.is_empty() || !watch.fields.is_empty());
    match selected {
        Some(watch) => {
            let selector = if watch.labels.is_empty() { &watch.fields } else { &watch.labels };
            Cause::new(
                "notSelected",
                Level::Problem,
                format!(
                    "{} is not in the cache, which has only objects with {selector}: its labels or fields differ, or \
                     it does not exist",
                    name(facts)
                ),
                format!("compare them with {}", kubectl(plural, facts.key, " --show-labels")),
            )
        }
        None => Cause::new(
            "notFound",
            Level::Problem,
            format!("{} is not in the cache: it does not exist, or was deleted long ago", name(facts)),
            format!("check its name and namespace with {}", kubectl(plural, facts.key, "")),
        ),
    }
}

fn recorded(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    match record.state {
        KeyState::Running => running(facts, record),
        KeyState::Waiting => waiting(facts, record),
        KeyState::Parked => parked(facts, record),
        KeyState::Retrying => failing(facts, record, object),
        KeyState::Delayed if has_failed(record) => failing(facts, record, object),
        KeyState::Delayed => {
            let due = record.delayed_until.map(|due| human(due.saturating_duration_since(facts.now)));
            Cause::new(
                "requeued",
                Level::Ok,
                format!(
                    "{} was reconciled {} ago, and asked to run again in {}",
                    name(facts),
                    ago(record.last_success, facts.now),
                    due.unwrap_or_default()
                ),
                NOTHING,
            )
        }
        KeyState::Failed => terminal(facts, record),
        _ => idle(facts, record, object),
    }
}

fn one_of(workers: usize) -> String {
    if workers == 1 { "the only worker".to_owned() } else { format!("one of {workers} workers") }
}

fn running(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let lasts = record.worked_on_since.map(|since| facts.now.saturating_duration_since(since));
    let lasts = lasts.unwrap_or_default();
    let again = if record.waiting_since.is_some() { ", and runs once more afterwards" } else { "" };
    if lasts < LONG_RUN {
        let clause = format!("{} is being reconciled, for {} now{again}", name(facts), human(lasts));
        return Cause::new("running", Level::Pending, clause, NOTHING);
    }
    Cause::new(
        "hangs",
        Level::Problem,
        format!(
            "the reconcile of {} has been running for {} and holds {}",
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
    let clause = format!(
        "{} has waited {} for {}, behind {}",
        name(facts),
        human(waited),
        one_of(facts.workers),
        counted(behind, "other key")
    );
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
    let what = match &facts.writes[..] {
        [] => "its own writes".to_owned(),
        [write, rest @ ..] => {
            let verb = if write.deleted { "the delete of " } else { "" };
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
                format!(", which the cache at version {} has not seen", write.cached)
            };
            format!("its own write: {verb}{kind}{}{version}{more}{cached}", write.name)
        }
    };
    Cause::new(
        "ownWrites",
        Level::Pending,
        format!("{} waits for {what}", name(facts)),
        format!("it runs once the cache has, and in {} at the latest", left.unwrap_or_default()),
    )
}

/// Returns whether the object has the finalizer of the controller.
pub(super) fn holds(facts: &Facts<'_>, object: &ObjectFacts) -> bool {
    facts.finalizer.is_some_and(|own| object.finalizers.iter().any(|finalizer| finalizer == own))
}

fn idle(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    let ended = record.last_run.map(|run| run.ended).or(record.last_success);
    let since = ago(ended, facts.now);
    let Some(object) = object else {
        let deleted = record.triggers.iter().find(|record| {
            matches!(
                record.trigger,
                Trigger::Object { relation: Relation::Itself, reason: Reason::Deleted, .. }
            )
        });
        let when = match deleted {
            Some(trigger) => format!("was deleted {} ago", ago(Some(trigger.at), facts.now)),
            None => "is not in the cache any more".to_owned(),
        };
        let clause = format!("{} {when}, and the run for that ended {since} ago", name(facts));
        return Cause::new("deleted", Level::Ok, clause, NOTHING);
    };
    if object.deleting && !holds(facts, object) && !object.finalizers.is_empty() {
        return Cause::new(
            "heldByOthers",
            Level::Notice,
            format!(
                "{} is being deleted, and held by {}, which controller {} does not own",
                name(facts),
                object.finalizers.join(", "),
                facts.controller
            ),
            "see why the owner of the finalizer does not remove it",
        );
    }
    let saw = record.last_run.and_then(|run| run.saw);
    let cached = object.version.as_number();
    match (saw, cached) {
        (Some(saw), Some(cached)) if cached > saw.get() && facts.has_predicates => Cause::new(
            "filtered",
            Level::Notice,
            format!(
                "{} has changed since its last run {since} ago, which saw version {saw}, and a predicate did not pass \
                 the change to version {cached}",
                name(facts)
            ),
            "nothing is wrong if that is intended; otherwise loosen Controller::when",
        ),
        (Some(saw), Some(cached)) if cached > saw.get() => Cause::new(
            "changing",
            Level::Pending,
            format!(
                "{} has just changed to version {cached}, and its last run saw version {saw}",
                name(facts)
            ),
            NOTHING,
        ),
        (Some(saw), _) => Cause::new(
            "reconciled",
            Level::Ok,
            format!(
                "{} is reconciled: its last run ended {since} ago and saw version {saw}, the cached one",
                name(facts)
            ),
            NOTHING,
        ),
        _ => Cause::new(
            "reconciled",
            Level::Ok,
            format!("{} is reconciled: its last run ended {since} ago", name(facts)),
            NOTHING,
        ),
    }
}
