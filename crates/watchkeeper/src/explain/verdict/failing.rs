//! Causes in a key whose last run failed.

use super::key::holds;
use super::{Cause, ERROR, ago, name};
use crate::explain::facts::{Facts, ObjectFacts};
use crate::explain::key_view::Level;
use crate::explain::query::cut;
use crate::explain::words::{human, ordinal};
use crate::object::ObjectName;
use crate::workqueue::{KeyRecord, KeyState, RunResult};

/// Returns whether the last run failed.
pub(super) fn has_failed(record: &KeyRecord<ObjectName>) -> bool {
    record.last_run.is_some_and(|run| !matches!(run.result, RunResult::Success | RunResult::RequeueAfter))
}

/// The last error, cut.
fn error_of(record: &KeyRecord<ObjectName>) -> String {
    record.last_error.as_ref().map(|error| cut(&error.message, ERROR)).unwrap_or_default()
}

pub(super) fn failing(
    facts: &Facts<'_>,
    record: &KeyRecord<ObjectName>,
    object: Option<&ObjectFacts>,
) -> Cause {
    if let Some(why) = object.and_then(|object| object.undecodable.as_ref()) {
        return Cause::new(
            "undecodable",
            Level::Problem,
            format!("{} cannot be decoded into its type ({})", name(facts), cut(why, ERROR)),
            "correct the object, or the type in the program; it is retried until then",
        );
    }
    let due = record.delayed_until.map(|due| human(due.saturating_duration_since(facts.now)));
    let last = record.last_error.as_ref();
    let since = ago(last.map(|error| error.at), facts.now);
    let result = record.last_run.map(|run| run.result);
    let verb = match result {
        Some(RunResult::Panic) => "panicked",
        Some(RunResult::Timeout) => "did not end in time",
        _ => "failed",
    };
    let row = match record.retries {
        0 | 1 => String::new(),
        times => format!(", for the {} time in a row", ordinal(times)),
    };
    let failed = format!(
        "{verb} {since} ago{row} ({}), and is retried in {}",
        error_of(record),
        due.unwrap_or_default()
    );
    if object.is_some_and(|object| object.deleting && holds(facts, object)) {
        let finalizer = facts.finalizer.unwrap_or_default();
        return Cause::new(
            "cleanupFails",
            Level::Problem,
            format!("{} is being deleted, and the cleanup for finalizer {finalizer} {failed}", name(facts)),
            "fix the cause of the error; the object is gone when the cleanup succeeds",
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
                "the reconcile of {} {failed} instead of after {}, as retries of all keys share one rate limit",
                name(facts),
                human(own)
            ),
            "fix the error that most of the failing keys have",
        );
    }
    let (word, advice) = match result {
        Some(RunResult::Panic) => ("panics", "fix the bug that the message names"),
        Some(RunResult::Timeout) => ("timesOut", "find out what it waits for, or raise Controller::timeout"),
        _ => ("failing", "fix the cause of the error; a change of the object is reconciled at once"),
    };
    Cause::new(word, Level::Problem, format!("the reconcile of {} {failed}", name(facts)), advice)
}

pub(super) fn terminal(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let since = ago(record.last_error.as_ref().map(|error| error.at), facts.now);
    Cause::new(
        "terminal",
        Level::Problem,
        format!(
            "the last reconcile of {} failed {since} ago with an error that is not retried ({})",
            name(facts),
            error_of(record)
        ),
        "correct what the error names; the next change of the object is reconciled",
    )
}

/// Returns that the runs before failed, of a key that runs, or waits for its next run.
pub(super) fn still_failing(facts: &Facts<'_>) -> Option<Cause> {
    let record = facts.record.as_ref().filter(|record| record.retries > 0)?;
    if !matches!(record.state, KeyState::Running | KeyState::Waiting | KeyState::Parked) {
        return None;
    }
    let since = ago(record.last_error.as_ref().map(|error| error.at), facts.now);
    let times = match record.retries {
        1 => "its last run".to_owned(),
        times => format!("its last {times} runs"),
    };
    Some(Cause::new(
        "failing",
        Level::Problem,
        format!("{times} failed, most recently {since} ago ({})", error_of(record)),
        "fix the cause of the error; a change of the object is reconciled at once",
    ))
}
