//! Metrics of a work queue, with client-go's meaning: counted as they happen, and read on demand.

use std::time::Duration;

use super::buckets::Buckets;
use super::known::RunResult;
use super::priority::Priority;
use super::state::KeyState;
use super::trigger::Cause;

/// The metrics of a work queue for an exporter: see [`RateLimitingQueue::metrics`](super::RateLimitingQueue::metrics).
///
/// A queue always counts, at the cost of a few additions under a lock that it holds anyway, and runs no task that would
/// push: the age of running work is up to date whenever it is read, even if all workers hang. One exporter serves any
/// number of queues of any key type.
pub trait QueueMetrics: Send + Sync {
    /// Returns the name of the queue, for the label `name`.
    fn name(&self) -> &str;

    /// Returns all figures, of one moment.
    fn figures(&self) -> QueueFigures;
}

/// The figures of one queue at one moment. Each field names its metric of client-go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueFigures {
    /// `workqueue_depth`: runs that are needed and have not begun, by priority in the order of [`Priority::ALL`].
    ///
    /// Counts a key that was added again during processing, as client-go does.
    pub depth: [usize; Priority::ALL.len()],
    /// `workqueue_adds_total`: adds that led to a run of their own. An add of a parked key does not, as a run is
    /// pending.
    pub adds: u64,
    /// `workqueue_retries_total`: adds with a delay or rate limited, even if the delay was zero.
    pub retries: u64,
    /// `workqueue_queue_duration_seconds`: the time from the add to the worker; for a parked key, from when it became
    /// ready again.
    pub queue_duration: Histogram,
    /// `workqueue_work_duration_seconds`: the time with the worker.
    pub work_duration: Histogram,
    /// `workqueue_unfinished_work_seconds` and `workqueue_longest_running_processor_seconds`.
    pub running: Running,
    /// The number of delayed keys; client-go has no such metric.
    pub delayed: usize,
    /// The number of [parked](super::WorkItem::park) keys. They count neither in `depth` nor in `delayed`.
    pub parked: usize,
    /// The number of adds by cause, in the order of [`Cause::ALL`]. It includes adds that collapse, and no adds without
    /// a trigger.
    pub triggers: [u64; Cause::ALL.len()],
    /// The number of finished runs by result, in the order of [`RunResult::ALL`]. Parking a key is no run.
    pub results: [u64; RunResult::ALL.len()],
    /// The number of keys by state, in the order of [`KeyState::ALL`], of which a queue knows the first seven.
    pub states: [usize; KeyState::QUEUED],
    /// The time since which the key that has waited longest for a worker has been ready; none if no key waits.
    pub oldest_waiting: Option<Duration>,
    /// The time from the arrival of a changed object to the end of the run that saw it. For a run of several changes, from
    /// the first.
    pub latency: Latencies,
}

/// Work in progress, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The number of keys with a worker.
    pub count: usize,
    /// The sum of their ages: if it grows steadily, workers are stuck, and its slope is their number.
    pub unfinished: Duration,
    /// The age of the oldest.
    pub longest: Duration,
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

static DURATIONS: Buckets<11> =
    Buckets::new([10, 100, 1_000, 10_000, 100_000, MS, 10 * MS, 100 * MS, SECOND, 10 * SECOND, u64::MAX]);

#[rustfmt::skip]
static LATENCIES: Buckets<18> = Buckets::new([
    MS, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS,
    SECOND, 5 * SECOND / 2, 5 * SECOND, 10 * SECOND, 30 * SECOND,
    60 * SECOND, 120 * SECOND, 300 * SECOND, 600 * SECOND, u64::MAX,
]);

/// A histogram of durations, in client-go's ten buckets from 10 ns to 10 s, and one beyond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; 11],
    /// In nanoseconds: 64 bits hold 584 years.
    sum: u64,
}

impl Histogram {
    pub(super) fn record(&mut self, nanos: u64) {
        self.counts[DURATIONS.of(nanos)] += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Returns the upper bound of each bucket in seconds, and its own count, not cumulated; the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        DURATIONS.in_seconds().zip(self.counts)
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }
}

/// A histogram of latencies, in buckets from a millisecond to ten minutes, and one beyond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; 18],
    /// In nanoseconds.
    sum: u64,
}

impl Latencies {
    pub(super) fn record(&mut self, nanos: u64) {
        self.counts[LATENCIES.of(nanos)] += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Returns the upper bound of each bucket in seconds, and its own count, not cumulated; the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        LATENCIES.in_seconds().zip(self.counts)
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all latencies.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        for (nanos, bound) in [
            (0, 1e-8),
            (1, 1e-8),
            (10, 1e-8),
            (11, 1e-7),
            (100, 1e-7),
            (999_999_999, 1.0),
            (1_000_000_000, 1.0),
            (10_000_000_000, 10.0),
            (10_000_000_001, f64::INFINITY),
            (u64::MAX, f64::INFINITY),
        ] {
            let mut histogram = Histogram::default();
            histogram.record(nanos);
            let found = histogram.buckets().find(|(_, count)| *count == 1);
            assert_eq!(found, Some((bound, 1)), "{nanos} ns");
            assert_eq!((histogram.count(), histogram.sum()), (1, Duration::from_nanos(nanos)));
        }
    }

    #[test]
    fn a_latency_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        let mut latencies = Latencies::default();
        for nanos in [0, 1_000_000, 1_000_001, 600_000_000_000, 600_000_000_001] {
            latencies.record(nanos);
        }
        let filled: Vec<_> = latencies.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.001, 2), (0.005, 1), (600.0, 1), (f64::INFINITY, 1)]);
        assert_eq!(latencies.count(), 5);
    }

    #[test]
    fn durations_add_up() {
        let mut histogram = Histogram::default();
        for nanos in [3_000, 5_000, 70_000] {
            histogram.record(nanos);
        }
        let filled: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1e-5, 2), (1e-4, 1)]);
        assert_eq!((histogram.count(), histogram.sum()), (3, Duration::from_micros(78)));
    }
}
