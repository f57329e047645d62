//! Causes in a key whose last run failed.

use super::key::{UNBLOCK, backlog, changed_since, holds};
use super::{Cause, ERROR, ago, name};
use crate::explain::facts::{Facts, ObjectFacts};
use crate::explain::key_view::Level;
use crate::explain::query::cut;
use crate::explain::words::{human, ordinal};
use crate::object::ObjectName;
use crate::workqueue::{KeyRecord, KeyState, RunResult};

const FIX: &str = "fix the cause of the error; a change to the object is reconciled at once";

/// Returns whether the last run failed.
pub(super) fn has_failed(record: &KeyRecord<ObjectName>) -> bool {
    record.last_run.is_some_and(|run| !matches!(run.result, RunResult::Success | RunResult::RequeueAfter))
}

/// The last error, cut, and without what the verdict says anyway.
fn error_of(record: &KeyRecord<ObjectName>) -> String {
    let message = record.last_error.as_ref().map(|error| &*error.message).unwrap_or_default();
    let text = match record.last_run.map(|run| run.result) {
        Some(RunResult::Panic) => message.strip_prefix("the reconcile panicked: ").map(str::to_owned),
        Some(RunResult::Timeout) => message
            .strip_prefix("the reconcile ")
            .and_then(|rest| rest.strip_suffix(", and was dropped"))
            .map(|rest| format!("it {rest}")),
        _ => None,
    };
    cut(text.as_deref().unwrap_or(message), ERROR)
}

pub(super) fn failing(
    facts: &Facts<'_>,
    record: &KeyRecord<ObjectName>,
    object: Option<&ObjectFacts>,
) -> Cause {
    if let Some(why) = object.and_then(|object| object.undecodable.as_ref()) {
        return undecodable(facts, why);
    }
    let due = record.delayed_until.map(|due| human(due.saturating_duration_since(facts.now)));
    let last = record.last_error.as_ref();
    let since = ago(last.map(|error| error.at), facts.now);
    let result = record.last_run.map(|run| run.result);
    let verb = match result {
        Some(RunResult::Panic) => "panicked",
        Some(RunResult::Timeout) => "timed out",
        _ => "failed",
    };
    let row = match record.retries {
        0 | 1 => String::new(),
        times => format!(", for the {} time in a row", ordinal(times)),
    };
    let failed = format!(
        "{verb} {since} ago{row} ({}), and will be retried in {}",
        error_of(record),
        due.unwrap_or_default()
    );
    if object.is_some_and(|object| object.deleting && holds(facts, object)) {
        let finalizer = facts.finalizer.unwrap_or_default();
        return Cause::new(
            "cleanupFails",
            Level::Problem,
            format!("{} is being deleted, but the cleanup for finalizer {finalizer} {failed}", name(facts)),
            "fix the cause of the error; the object is removed once the cleanup succeeds",
        );
    }
    let backoff = last.zip(record.delayed_until).map(|(error, due)| due.saturating_duration_since(error.at));
    if let (Some(own), Some(backoff)) = (record.own_backoff, backoff)
        && backoff > own * 2
    {
        return Cause::new(
            "rateLimited",
            Level::Problem,
            format!(
                "the reconcile of {} {failed} instead of after {}, because the retries of all keys share one rate limit",
                name(facts),
                human(own)
            ),
            "fix the error that most of the failing keys have",
        );
    }
    let (word, advice) = match result {
        Some(RunResult::Panic) => ("panics", "fix the bug that the panic message points to"),
        Some(RunResult::Timeout) => ("timesOut", "find out what it waits for, or raise Controller::timeout"),
        _ => ("failing", FIX),
    };
    Cause::new(word, Level::Problem, format!("the reconcile of {} {failed}", name(facts)), advice)
}

fn undecodable(facts: &Facts<'_>, why: &str) -> Cause {
    // The error names the object, as the verdict does.
    let prefix = format!("cannot decode {} as ", facts.key);
    let clause = match why.strip_prefix(&prefix) {
        Some(rest) => format!("{} cannot be decoded as {}", name(facts), cut(rest, ERROR)),
        None => format!("{} cannot be decoded into its Rust type ({})", name(facts), cut(why, ERROR)),
    };
    let advice = "correct the object or the Rust type; it is retried until then";
    Cause::new("undecodable", Level::Problem, clause, advice)
}

pub(super) fn terminal(
    facts: &Facts<'_>,
    record: &KeyRecord<ObjectName>,
    object: Option<&ObjectFacts>,
) -> Cause {
    let since = ago(record.last_error.as_ref().map(|error| error.at), facts.now);
    let failed = format!(
        "the last reconcile of {} failed {since} ago with an error that is not retried ({})",
        name(facts),
        error_of(record)
    );
    // A change that has not reached the handler was shown to no predicate, and will lead to a run.
    match (changed_since(record, object), backlog(facts)) {
        (Some((saw, cached)), Some(backlog)) => Cause::new(
            "terminal",
            Level::Problem,
            format!("{failed}; it saw version {saw}, the cached one is {cached}, and {backlog}"),
            UNBLOCK,
        ),
        (Some((saw, cached)), None) if facts.has_predicates => Cause::new(
            "terminal",
            Level::Problem,
            format!(
                "{failed}; it saw version {saw}, and a predicate has filtered out the change to version {cached} since"
            ),
            "loosen the predicate in Controller::when if the change was to fix the error",
        ),
        _ => Cause::new(
            "terminal",
            Level::Problem,
            failed,
            "fix what the error names; the next change to the object is reconciled",
        ),
    }
}

/// Returns that the runs before failed, of a key that runs, or waits for its next run.
pub(super) fn still_failing(facts: &Facts<'_>) -> Option<Cause> {
    let record = facts.record.as_ref().filter(|record| record.retries > 0)?;
    if !matches!(record.state, KeyState::Running | KeyState::Waiting | KeyState::Parked) {
        return None;
    }
    let since = ago(record.last_error.as_ref().map(|error| error.at), facts.now);
    let times = match record.retries {
        1 => "the last run".to_owned(),
        times => format!("the last {times} runs"),
    };
    let clause = format!("{times} failed, most recently {since} ago ({})", error_of(record));
    Some(Cause::new("failing", Level::Problem, clause, FIX))
}
