//! Figures of a controller, under the names that controller-runtime gives them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::explain::{HistogramView, Runs};

/// How a reconcile ended, for the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Success,
    RequeueAfter,
    Error,
    /// An error that is not retried.
    Terminal,
    Panic,
    Timeout,
}

/// The upper bounds of the buckets of `controller_runtime_reconcile_time_seconds`.
const BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// What a controller counts.
#[derive(Debug)]
pub(super) struct Figures {
    controller: String,
    workers: usize,
    active: AtomicUsize,
    success: AtomicU64,
    requeue_after: AtomicU64,
    errors: AtomicU64,
    terminal: AtomicU64,
    panics: AtomicU64,
    timeouts: AtomicU64,
    longest_requeue: AtomicU64,
    times: Mutex<Times>,
}

#[derive(Clone, Debug)]
struct Times {
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

/// The figures of a controller at one moment; see [`ManagerHandle::figures`](super::ManagerHandle::figures).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ControllerFigures {
    /// The controller's name.
    pub controller: String,
    /// `controller_runtime_max_concurrent_reconciles`.
    pub workers: usize,
    /// `controller_runtime_active_workers`.
    pub active: usize,
    /// `controller_runtime_reconcile_total`, by the label `result`.
    pub reconciles: [(&'static str, u64); 3],
    /// `controller_runtime_reconcile_errors_total`.
    pub errors: u64,
    /// `controller_runtime_terminal_reconcile_errors_total`.
    pub terminal: u64,
    /// `controller_runtime_reconcile_panics_total`.
    pub panics: u64,
    /// `controller_runtime_reconcile_timeouts_total`.
    pub timeouts: u64,
    /// `controller_runtime_reconcile_time_seconds`: the upper bound of each bucket, and the reconciles in it and in none before.
    pub times: Vec<(f64, u64)>,
    /// How long all reconciles took together.
    pub time: Duration,
    /// Runs that began although a cache had not seen the key's own writes for 5 s.
    pub overdue: u64,
    /// The longest delay after which a reconcile has asked to run again, to the millisecond.
    pub longest_requeue: Duration,
}

impl Figures {
    pub(super) fn new(controller: &str, workers: usize) -> Self {
        Self {
            controller: controller.to_owned(),
            workers,
            active: AtomicUsize::new(0),
            success: AtomicU64::new(0),
            requeue_after: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            terminal: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            longest_requeue: AtomicU64::new(0),
            times: Mutex::new(Times { counts: [0; BOUNDS.len() + 1], sum: Duration::ZERO }),
        }
    }

    /// Counts a worker as active until the guard is dropped.
    pub(super) fn start(&self) -> Active<'_> {
        self.active.fetch_add(1, Relaxed);
        Active(self)
    }

    pub(super) fn record(&self, ended: Ended, took: Duration) {
        let counters: &[&AtomicU64] = match ended {
            Ended::Success => &[&self.success],
            Ended::RequeueAfter => &[&self.requeue_after],
            Ended::Error => &[&self.errors],
            Ended::Terminal => &[&self.errors, &self.terminal],
            Ended::Panic => &[&self.errors, &self.panics],
            Ended::Timeout => &[&self.errors, &self.timeouts],
        };
        counters.iter().for_each(|counter| {
            counter.fetch_add(1, Relaxed);
        });
        let bucket = BOUNDS.partition_point(|bound| *bound < took.as_secs_f64());
        let mut times = self.times.lock();
        times.counts[bucket] += 1;
        times.sum += took;
    }

    /// Records that a reconcile has asked to run again after `delay`.
    pub(super) fn requeued(&self, delay: Duration) {
        self.longest_requeue.fetch_max(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn now(&self, overdue: u64) -> ControllerFigures {
        let Times { counts, sum } = self.times.lock().clone();
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        ControllerFigures {
            controller: self.controller.clone(),
            workers: self.workers,
            active: self.active.load(Relaxed),
            reconciles: [
                ("success", of(&self.success)),
                ("requeue_after", of(&self.requeue_after)),
                ("error", of(&self.errors)),
            ],
            errors: of(&self.errors),
            terminal: of(&self.terminal),
            panics: of(&self.panics),
            timeouts: of(&self.timeouts),
            times: BOUNDS.into_iter().chain([f64::INFINITY]).zip(counts).collect(),
            time: sum,
            overdue,
            longest_requeue: Duration::from_millis(of(&self.longest_requeue)),
        }
    }
}

impl Figures {
    /// What the controller says of its runs.
    pub(super) fn runs(&self, is_paused: bool) -> Runs {
        let now = self.now(0);
        let count = now.times.iter().map(|(_, count)| count).sum();
        Runs {
            active: now.active,
            is_paused,
            reconciles: now
                .reconciles
                .into_iter()
                .map(|(result, count)| (result.to_owned(), count))
                .collect(),
            terminal: now.terminal,
            panics: now.panics,
            timeouts: now.timeouts,
            times: HistogramView::of(count, now.time.as_secs_f64(), now.times.into_iter()),
        }
    }
}

/// A worker that is active.
pub(super) struct Active<'a>(&'a Figures);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_counts_where_controller_runtime_counts_it() {
        let figures = Figures::new("websites", 2);
        for ended in [
            Ended::Success,
            Ended::Success,
            Ended::RequeueAfter,
            Ended::Error,
            Ended::Terminal,
            Ended::Panic,
            Ended::Timeout,
        ] {
            figures.record(ended, Duration::from_millis(5));
        }
        let now = figures.now(7);
        assert_eq!(now.reconciles, [("success", 2), ("requeue_after", 1), ("error", 4)]);
        assert_eq!((now.errors, now.terminal, now.panics, now.timeouts, now.overdue), (4, 1, 1, 1, 7));
        assert_eq!((now.times[0], now.time), ((0.005, 7), Duration::from_millis(35)));
    }

    #[test]
    fn a_time_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        let figures = Figures::new("websites", 1);
        figures.record(Ended::Success, Duration::from_millis(6));
        figures.record(Ended::Success, Duration::from_secs(61));
        let filled: Vec<_> = figures.now(0).times.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.01, 1), (f64::INFINITY, 1)]);
    }

    #[test]
    fn the_longest_requeue_stays() {
        let figures = Figures::new("websites", 1);
        assert_eq!(figures.now(0).longest_requeue, Duration::ZERO);
        for seconds in [3, 600, 60] {
            figures.requeued(Duration::from_secs(seconds));
        }
        assert_eq!(figures.now(0).longest_requeue, Duration::from_secs(600));
    }

    #[test]
    fn a_worker_is_active_until_its_guard_is_dropped() {
        let figures = Figures::new("websites", 1);
        let active = figures.start();
        assert_eq!(figures.now(0).active, 1);
        drop(active);
        assert_eq!(figures.now(0).active, 0);
    }
}
