//! The figures of the last ten minutes, for the charts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Instant;
use crate::explain::{ControllerView, Overview};

/// The time between two samples.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// The number of points of a chart: ten minutes.
pub(super) const POINTS: usize = 120;

/// The last samples of each controller.
#[derive(Debug, Default)]
pub(super) struct Samples(Mutex<BTreeMap<String, VecDeque<Sample>>>);

/// The figures of a controller at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    waiting: usize,
    done: u64,
    errors: u64,
    seconds: f64,
}

/// The course of a controller, the newest point last. There may be fewer than [`POINTS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Course {
    /// Keys that waited for a worker.
    pub(super) waiting: Vec<f64>,
    /// Reconciles per second.
    pub(super) rate: Vec<f64>,
    /// Failed reconciles per second.
    pub(super) errors: Vec<f64>,
    /// How long reconciles took on average, in seconds; zero if there was none.
    pub(super) time: Vec<f64>,
}

/// The number of finished reconciles since the start.
pub(super) fn done(controller: &ControllerView) -> u64 {
    controller.reconciles.values().sum()
}

impl Samples {
    /// Adds a sample of each controller, and forgets controllers that are gone.
    pub(super) fn take(&self, overview: &Overview, at: Instant) {
        let mut all = self.0.lock();
        all.retain(|name, _| overview.controllers.iter().any(|controller| controller.name == *name));
        for controller in &overview.controllers {
            let samples = all.entry(controller.name.clone()).or_default();
            // One more than points: each point is made of two samples.
            if samples.len() > POINTS {
                samples.pop_front();
            }
            samples.push_back(Sample {
                at,
                waiting: controller.keys.waiting,
                done: done(controller),
                errors: controller.reconciles.get("error").copied().unwrap_or_default(),
                seconds: controller.reconcile_time.sum_seconds,
            });
        }
    }

    pub(super) fn course(&self, controller: &str) -> Course {
        let all = self.0.lock();
        let mut course = Course::default();
        let Some(samples) = all.get(controller) else { return course };
        for (before, after) in samples.iter().zip(samples.iter().skip(1)) {
            let passed = (after.at - before.at).as_secs_f64().max(f64::EPSILON);
            let done = after.done.saturating_sub(before.done) as f64;
            course.waiting.push(after.waiting as f64);
            course.rate.push(done / passed);
            course.errors.push(after.errors.saturating_sub(before.errors) as f64 / passed);
            let seconds = (after.seconds - before.seconds).max(0.0);
            course.time.push(if done > 0.0 { seconds / done } else { 0.0 });
        }
        course
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn overview(waiting: usize, success: u64, error: u64, seconds: f64) -> Overview {
        let mut controller = ControllerView { name: "websites".to_owned(), ..Default::default() };
        controller.keys.waiting = waiting;
        controller.reconciles = [("success".to_owned(), success), ("error".to_owned(), error)].into();
        controller.reconcile_time.sum_seconds = seconds;
        Overview { controllers: vec![controller], ..Default::default() }
    }

    #[test]
    fn a_point_is_made_of_two_samples() {
        let (samples, now) = (Samples::default(), Clock::system().now());
        samples.take(&overview(9, 10, 0, 1.0), now);
        assert_eq!(samples.course("websites"), Course::default());
        samples.take(&overview(4, 40, 10, 5.0), now + EVERY);
        let expected = Course { waiting: vec![4.0], rate: vec![8.0], errors: vec![2.0], time: vec![0.1] };
        assert_eq!(samples.course("websites"), expected);
        assert_eq!(samples.course("others"), Course::default());
    }

    #[test]
    fn samples_are_bounded_and_end_with_their_controller() {
        let (samples, mut now) = (Samples::default(), Clock::system().now());
        for round in 0..1_000 {
            now += EVERY;
            samples.take(&overview(round, 0, 0, 0.0), now);
        }
        let course = samples.course("websites");
        assert_eq!((course.waiting.len(), course.waiting.last()), (POINTS, Some(&999.0)));
        samples.take(&Overview::default(), now);
        assert!(samples.0.lock().is_empty());
    }
}
