//! Pages of the keys of a controller.

use std::cmp::Reverse;

use super::explained::Known;
use super::query::{ExplainError, KeySort, KeysQuery, cut};
use super::view::{KeyCounts, KeySummary, KeysPage};
use super::words::Times;
use crate::clock::Instant;
use crate::object::ObjectName;
use crate::workqueue::{Glance, KeyState};

/// The number of bytes of an error.
const ERROR: usize = 200;

/// Returns a page. All keys are looked at, and only those of the page are described.
pub(super) fn page(known: &Known, query: &KeysQuery, times: &Times) -> Result<KeysPage, ExplainError> {
    let from = query.from.as_deref().map(|from| Place::parse(from, query.sort)).transpose()?;
    let rows = rows(known);
    let mut counts = KeyCounts::default();
    rows.iter().for_each(|row| counts.count(row.state));
    let is_asked = |row: &&Glance<ObjectName>| {
        query.state.is_none_or(|state| state == row.state)
            && (query.q.is_empty() || row.key.to_string().contains(&query.q))
    };
    let mut rows: Vec<_> = rows.iter().filter(is_asked).collect();
    let matched = rows.len();
    sort(&mut rows, query.sort);
    let start = match &from {
        None => 0,
        Some(Place::After(key)) => rows.partition_point(|row| row.key <= *key),
        Some(Place::At(offset)) => (*offset).min(rows.len()),
    };
    let end = rows.len().min(start.saturating_add(query.limit));
    let next = (end < rows.len()).then(|| match query.sort {
        KeySort::Key => format!("after:{}", rows[end - 1].key),
        _ => format!("at:{end}"),
    });
    let keys = rows[start..end].iter().map(|row| summary(known, row, times)).collect();
    Ok(KeysPage {
        at: times.wall(times.now),
        controller: known.name.clone(),
        kind: known.kind.clone(),
        counts,
        matched,
        keys,
        next,
    })
}

/// Where a page begins.
enum Place {
    After(ObjectName),
    At(usize),
}

impl Place {
    fn parse(text: &str, sort: KeySort) -> Result<Self, ExplainError> {
        let bad = || ExplainError::bad_parameter("continue", text, &["the value of an earlier page"]);
        match (text.split_once(':').ok_or_else(bad)?, sort) {
            (("after", key), KeySort::Key) => key.parse().map(Self::After).map_err(|_| bad()),
            (("at", offset), _) => offset.parse().map(Self::At).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

/// Returns all keys by name: those that the queue knows, and those that are only in the cache.
fn rows(known: &Known) -> Vec<Glance<ObjectName>> {
    let mut rows = known.queue.glances();
    rows.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    let queued = rows.len();
    for main in &known.mains {
        for key in main.keys() {
            if rows[..queued].binary_search_by(|row| row.key.cmp(&key)).is_err() {
                rows.push(Glance { key, state: KeyState::Cached, failures: 0, since: None, until: None });
            }
        }
    }
    rows.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    rows.dedup_by(|one, other| one.key == other.key);
    rows
}

/// Sorts rows that are sorted by name.
fn sort(rows: &mut [&Glance<ObjectName>], sort: KeySort) {
    let soonest = |at: Option<Instant>| (at.is_none(), at);
    match sort {
        KeySort::Key => {}
        KeySort::State => rows.sort_by_key(|row| row.state),
        KeySort::Since => rows.sort_by_key(|row| soonest(row.since)),
        KeySort::Until => rows.sort_by_key(|row| soonest(row.until)),
        KeySort::Failures => rows.sort_by_key(|row| Reverse(row.failures)),
    }
}

fn summary(known: &Known, row: &Glance<ObjectName>, times: &Times) -> KeySummary {
    let record = known.queue.explain(&row.key);
    let last_error = record.as_ref().and_then(|record| {
        let error = record.last_error.as_ref()?;
        record.last_success.is_none_or(|success| success < error.at).then(|| cut(&error.message, ERROR))
    });
    KeySummary {
        key: row.key.to_string(),
        state: row.state,
        since: row.since.map(|at| times.wall(at)),
        until: row.until.map(|at| times.wall(at)),
        failures: row.failures,
        last_error,
        last_success: record.as_ref().and_then(|record| record.last_success).map(|at| times.wall(at)),
        trigger: record.and_then(|record| record.triggers.first().map(ToString::to_string)),
    }
}

impl KeyCounts {
    fn count(&mut self, state: KeyState) {
        match state {
            KeyState::Running => self.running += 1,
            KeyState::Waiting => self.waiting += 1,
            KeyState::Parked => self.parked += 1,
            KeyState::Retrying => self.retrying += 1,
            KeyState::Delayed => self.delayed += 1,
            KeyState::Failed => self.failed += 1,
            KeyState::Idle => self.idle += 1,
            KeyState::Cached => self.cached += 1,
            KeyState::Unknown => {}
        }
    }
}
