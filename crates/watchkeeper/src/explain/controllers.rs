//! The views of controllers: their keys by state, their rates and durations.

use super::explained::{Known, Runs};
use super::key_view::ViewRelation;
use super::view::{BucketView, ControllerView, HistogramView, KeyCounts, RelatedView};
use crate::workqueue::{Cause, QueueFigures};

/// Returns the number of keys by state. Those that are only in the cache are counted as the rest, which is too few while
/// the queue remembers objects that are gone.
pub(super) fn counts(known: &Known, figures: &QueueFigures) -> KeyCounts {
    let [running, waiting, parked, retrying, delayed, failed, idle] = figures.states;
    let cached: usize = known.mains.iter().map(|main| main.len()).sum();
    let queued = running + waiting + parked + retrying + delayed + failed + idle;
    KeyCounts {
        running,
        waiting,
        parked,
        retrying,
        delayed,
        failed,
        idle,
        cached: cached.saturating_sub(queued),
    }
}

pub(super) fn controller_view(known: &Known) -> ControllerView {
    let figures = known.queue.figures();
    let runs = known.runs.as_ref().map_or_else(|| counted(&figures), |runs| runs());
    let triggers =
        Cause::ALL.into_iter().zip(figures.triggers).map(|(cause, count)| (cause.as_str().to_owned(), count));
    let related = known.related.iter().map(|(relation, watched)| RelatedView {
        kind: watched.kind(),
        relation: if *relation == ViewRelation::Owner { "owner" } else { "mapping" }.to_owned(),
    });
    let mut related: Vec<_> = related.collect();
    related.dedup();
    ControllerView {
        name: known.name.clone(),
        kind: known.kind.clone(),
        related,
        workers: known.workers,
        active: runs.active,
        paused: runs.is_paused,
        keys: counts(known, &figures),
        oldest_waiting_seconds: figures.oldest_waiting.map(|age| age.as_secs_f64()),
        longest_running_seconds: (figures.running.count > 0).then_some(figures.running.longest.as_secs_f64()),
        adds: figures.adds,
        retries: figures.retries,
        triggers: triggers.collect(),
        reconciles: runs.reconciles,
        terminal_errors: runs.terminal,
        panics: runs.panics,
        timeouts: runs.timeouts,
        reconcile_time: runs.times,
        latency: HistogramView::of(
            figures.latency.count(),
            figures.latency.sum().as_secs_f64(),
            figures.latency.buckets(),
        ),
    }
}

/// What the queue knows of the runs of a controller that a manager does not run.
fn counted(figures: &QueueFigures) -> Runs {
    let work = &figures.work_duration;
    let [success, requeue_after, error, terminal, panics, timeouts] = figures.results;
    let errors = error + terminal + panics + timeouts;
    let reconciles = [("success", success), ("requeue_after", requeue_after), ("error", errors)];
    Runs {
        active: figures.running.count,
        reconciles: reconciles.map(|(result, count)| (result.to_owned(), count)).into(),
        terminal,
        panics,
        timeouts,
        times: HistogramView::of(work.count(), work.sum().as_secs_f64(), work.buckets()),
        ..Runs::default()
    }
}

impl HistogramView {
    pub(crate) fn of(count: u64, sum_seconds: f64, buckets: impl Iterator<Item = (f64, u64)>) -> Self {
        let filled = buckets.filter(|(_, count)| *count > 0);
        let buckets = filled
            .map(|(bound, count)| BucketView { up_to_seconds: bound.is_finite().then_some(bound), count });
        Self { count, sum_seconds, buckets: buckets.collect() }
    }
}
