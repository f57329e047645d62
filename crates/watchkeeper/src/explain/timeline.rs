//! What happened to a key, and what will, in the order of time.

use std::sync::Arc;

use super::facts::{PastWrite, PendingWrite};
use super::key_view::{TimelineEntry, TimelineKind};
use super::query::cut;
use super::words::{Times, human};
use crate::object::{ObjectName, ResourceVersion};
use crate::record::Occurrence;
use crate::workqueue::{KeyRecord, LastRun, PastRun, RunResult};

/// The number of bytes of the message of an event.
const MESSAGE: usize = 200;
/// The number of writes and of events that are shown.
const SHOWN: usize = 16;

/// What is remembered of a key.
pub(super) struct Past<'a> {
    pub(super) record: Option<&'a KeyRecord<ObjectName>>,
    /// The last writes, the oldest first.
    pub(super) writes: Vec<PastWrite>,
    /// Those that the caches have not seen. They are among the last writes if those are remembered.
    pub(super) pending: &'a [PendingWrite],
    /// The last events about the object, the oldest first.
    pub(super) events: Vec<Arc<Occurrence>>,
}

impl Past<'_> {
    pub(super) fn timeline(&self, times: &Times) -> Vec<TimelineEntry> {
        let mut entries = self.record.map(|record| recorded(record, times)).unwrap_or_default();
        let writes = &self.writes[self.writes.len().saturating_sub(SHOWN)..];
        if writes.is_empty() {
            let pending = self.pending.iter();
            entries.extend(pending.map(|write| {
                let text = written(&write.kind, &write.name, &write.version, write.deleted);
                entry(times.wall(times.now - write.age), TimelineKind::Write, text)
            }));
        }
        entries.extend(writes.iter().map(|write| {
            let text = written(&write.kind, &write.name, &write.version, write.deleted);
            entry(times.wall(times.now - write.age), TimelineKind::Write, text)
        }));
        entries.extend(events(&self.events));
        // Stable: what has the same time stays in the order of causes and effects.
        entries.sort_by(|one, other| one.at.cmp(&other.at));
        entries
    }
}

fn entry(at: String, kind: TimelineKind, text: String) -> TimelineEntry {
    TimelineEntry { at, kind, text }
}

/// The triggers and runs of a key, and what is due.
fn recorded(record: &KeyRecord<ObjectName>, times: &Times) -> Vec<TimelineEntry> {
    let at = |at, kind, text: String| entry(times.wall(at), kind, text);
    let triggers = record.triggers.iter().rev();
    let mut entries: Vec<_> =
        triggers.map(|trigger| at(trigger.at, TimelineKind::Trigger, trigger.to_string())).collect();
    entries.extend(record.runs.iter().rev().map(|past| run(past, times)));
    let oldest = record.runs.last().map(|past| past.run.ended);
    let is_older = |at| oldest.is_none_or(|oldest| at < oldest);
    if let Some(error) = record.last_error.as_ref().filter(|error| is_older(error.at)) {
        entries.push(at(error.at, TimelineKind::Error, format!("failed: {}", error.message)));
    }
    if let Some(ended) = record.last_success.filter(|ended| is_older(*ended)) {
        let last = record.last_run.filter(|run| run.ended == ended);
        let text = last.map_or_else(|| "reconciled".to_owned(), |run| reconciled(&run));
        entries.push(at(ended, TimelineKind::Run, text));
    }
    if let Some(since) = record.worked_on_since {
        let on = record.worker.map(|number| format!(" on worker {number}")).unwrap_or_default();
        entries.push(at(since, TimelineKind::Run, format!("the current run started{on}")));
    }
    if let Some(due) = record.delayed_until {
        let what = if record.is_backing_off { "a retry is due" } else { "a run is due" };
        entries.push(at(due, TimelineKind::Due, what.to_owned()));
    }
    if let Some(until) = record.parked_until {
        entries.push(at(
            until,
            TimelineKind::Due,
            "it runs even if the cache has not seen its own writes".to_owned(),
        ));
    }
    entries
}

fn run(past: &PastRun, times: &Times) -> TimelineEntry {
    let run = &past.run;
    let (kind, text) = match run.result {
        RunResult::Success | RunResult::RequeueAfter => (TimelineKind::Run, reconciled(run)),
        result => {
            let (how, more) = match result {
                RunResult::Panic => ("panicked", ""),
                RunResult::Timeout => ("timed out", ""),
                RunResult::Terminal => ("failed", ", and is not retried"),
                _ => ("failed", ""),
            };
            let error = past.error.as_deref().unwrap_or_default();
            (TimelineKind::Error, format!("{how} after {}{more}: {error}", took(run)))
        }
    };
    entry(times.wall(run.ended), kind, text)
}

fn reconciled(run: &LastRun) -> String {
    let saw = run.saw.map(|version| format!(", at version {version}")).unwrap_or_default();
    format!("reconciled in {}{saw}", took(run))
}

fn took(run: &LastRun) -> String {
    match run.took {
        short if short.as_millis() == 0 => format!("{} µs", short.as_micros()),
        long => human(long),
    }
}

fn written(kind: &str, name: &ObjectName, version: &ResourceVersion, deleted: bool) -> String {
    let what = if deleted { "deleted" } else { "wrote" };
    let kind = if kind.is_empty() { String::new() } else { format!("{kind} ") };
    let version = if version.is_unset() { String::new() } else { format!(" in version {version}") };
    format!("{what} {kind}{name}{version}")
}

/// The last events. Equal ones in a row count as one, of the last time.
fn events(all: &[Arc<Occurrence>]) -> Vec<TimelineEntry> {
    let mut entries: Vec<(TimelineEntry, String, usize)> = Vec::new();
    for event in all {
        let at = event.at.strftime("%FT%T.%3fZ").to_string();
        let text = cut(&event.to_string(), MESSAGE);
        match entries.last_mut().filter(|(_, last, _)| *last == text) {
            Some((last, _, times)) => (last.at, *times) = (at, *times + 1),
            None => entries.push((entry(at, TimelineKind::Event, String::new()), text, 1)),
        }
    }
    let shown = entries.len().saturating_sub(SHOWN);
    let entries = entries.into_iter().skip(shown).map(|(entry, text, times)| {
        let text = if times == 1 { text } else { format!("{text}, {times} times") };
        TimelineEntry { text, ..entry }
    });
    entries.collect()
}
