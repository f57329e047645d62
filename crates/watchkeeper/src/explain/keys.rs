//! Pages of the keys of a controller.

use std::cmp::Ordering;

use super::explained::Known;
use super::query::{ExplainError, KeySort, KeysQuery, cut};
use super::view::{KeyCounts, KeySummary, KeysPage};
use super::words::Times;
use crate::clock::Instant;
use crate::object::ObjectName;
use crate::workqueue::{Glance, KeyState};

/// The number of bytes of an error.
const ERROR: usize = 200;

type Row = Glance<ObjectName>;

/// Returns a page. All keys are looked at, and only those up to the page are sorted, and only those on it described.
pub(super) fn page(known: &Known, query: &KeysQuery, times: &Times) -> Result<KeysPage, ExplainError> {
    let from = query.from.as_deref().map(|from| Place::parse(from, query.sort)).transpose()?;
    let mut rows = rows(known);
    let mut counts = KeyCounts::default();
    rows.iter().for_each(|row| counts.count(row.state));
    rows.retain(|row| query.state.is_none_or(|state| state == row.state) && contains(&row.key, &query.q));
    let matched = rows.len();
    let order = |one: &Row, other: &Row| in_order(query, one, other);
    let (start, end) = match &from {
        None => (0, query.limit),
        Some(Place::At(offset)) => (*offset, offset.saturating_add(query.limit)),
        Some(Place::After(last)) => {
            rows.retain(|row| by_key(query, &row.key, last).is_gt());
            (0, query.limit)
        }
        Some(Place::Before(first)) => {
            rows.retain(|row| by_key(query, &row.key, first).is_lt());
            (rows.len().saturating_sub(query.limit), rows.len())
        }
    };
    let (start, end) = (start.min(rows.len()), end.min(rows.len()));
    // What the place has left out is before or behind the page.
    let left_out = matched - rows.len();
    let (before, behind) = match &from {
        Some(Place::After(_)) => (left_out, rows.len() - end),
        Some(Place::Before(_)) => (start, left_out),
        None | Some(Place::At(_)) => (start, rows.len() - end),
    };
    cut_out(&mut rows, start, end, order);
    let place = |word: &str, row: Option<&Row>, offset: usize| match (query.sort, row) {
        (KeySort::Key, row) => row.map(|row| format!("{word}:{}", row.key)),
        _ => Some(format!("at:{offset}")),
    };
    let next = (behind > 0).then(|| place("after", rows.last(), end)).flatten();
    let previous =
        (before > 0).then(|| place("before", rows.first(), start.saturating_sub(query.limit))).flatten();
    let keys = rows.iter().map(|row| summary(known, row, times)).collect();
    Ok(KeysPage {
        at: times.wall(times.now),
        controller: known.name.clone(),
        kind: known.kind.clone(),
        counts,
        matched,
        keys,
        next,
        previous,
    })
}

/// Leaves the rows from `start` to `end` in an order, and sorts no others.
fn cut_out(rows: &mut Vec<Row>, start: usize, end: usize, order: impl Fn(&Row, &Row) -> Ordering) {
    if end < rows.len() {
        rows.select_nth_unstable_by(end, &order);
        rows.truncate(end);
    }
    if start > 0 && start < rows.len() {
        rows.select_nth_unstable_by(start, &order);
    }
    rows.drain(..start.min(rows.len()));
    rows.sort_unstable_by(order);
}

/// Where a page begins.
enum Place {
    After(ObjectName),
    Before(ObjectName),
    At(usize),
}

impl Place {
    fn parse(text: &str, sort: KeySort) -> Result<Self, ExplainError> {
        let bad = || ExplainError::bad_parameter("continue", text, &["the value of an earlier page"]);
        match (text.split_once(':').ok_or_else(bad)?, sort) {
            (("after", key), KeySort::Key) => key.parse().map(Self::After).map_err(|_| bad()),
            (("before", key), KeySort::Key) => key.parse().map(Self::Before).map_err(|_| bad()),
            (("at", offset), _) => offset.parse().map(Self::At).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

/// Returns all keys: those that the queue knows, and those that are only in the cache.
fn rows(known: &Known) -> Vec<Row> {
    let mut rows = known.queue.glances();
    for (at, main) in known.mains.iter().enumerate() {
        let mut keys = main.keys();
        known.queue.retain_unknown(&mut keys);
        // Selections may overlap.
        let before = &known.mains[..at];
        keys.retain(|key| !before.iter().any(|other| other.has(key)));
        let cached = |key| Glance { key, state: KeyState::Cached, failures: 0, since: None, until: None };
        rows.extend(keys.into_iter().map(cached));
    }
    rows
}

/// Returns whether a key contains a text, as it is written.
fn contains(key: &ObjectName, text: &str) -> bool {
    let (namespace, name) = (key.namespace(), key.name());
    if name.contains(text) {
        return true;
    }
    let Some(namespace) = namespace else { return false };
    namespace.contains(text)
        || text
            .split_once('/')
            .is_some_and(|(end, start)| namespace.ends_with(end) && name.starts_with(start))
}

fn by_key(query: &KeysQuery, one: &ObjectName, other: &ObjectName) -> Ordering {
    if query.is_reversed { other.cmp(one) } else { one.cmp(other) }
}

/// Compares two keys in the order of the page. What has no value comes last in both directions.
fn in_order(query: &KeysQuery, one: &Row, other: &Row) -> Ordering {
    let turned = |order: Ordering| if query.is_reversed { order.reverse() } else { order };
    let times = |one: Option<Instant>, other: Option<Instant>| match (one, other) {
        (Some(one), Some(other)) => turned(one.cmp(&other)),
        (one, other) => one.is_none().cmp(&other.is_none()),
    };
    match query.sort {
        KeySort::Key => return by_key(query, &one.key, &other.key),
        KeySort::State => turned(one.state.cmp(&other.state)),
        KeySort::Since => times(one.since, other.since),
        KeySort::Until => times(one.until, other.until),
        KeySort::Failures => turned(other.failures.cmp(&one.failures)),
    }
    .then_with(|| one.key.cmp(&other.key))
}

fn summary(known: &Known, row: &Row, times: &Times) -> KeySummary {
    let record = known.queue.brief(&row.key);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_a_key_as_in_its_written_form() {
        for key in [ObjectName::namespaced("shop", "web-1"), ObjectName::cluster("node-1")] {
            for text in [
                "", "we", "sh", "op/we", "/", "/web", "shop/", "op/eb", "o/w", "op/we/", "node-1", "x/node",
                "1",
            ] {
                assert_eq!(contains(&key, text), key.to_string().contains(text), "{text} in {key}");
            }
        }
    }
}
