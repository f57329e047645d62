//! Resident memory of the processes over time.

use crate::plot::{Axis, Panel, Series, svg};

/// Resident memory over time: minutes, and megabytes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) replicas: [Vec<(f64, f64)>; 2],
    /// This process, with its own informers, which nobody kills.
    pub(super) observer: Vec<(f64, f64)>,
}

impl Memory {
    /// The most memory of a replica in the first and in the last third.
    pub(super) fn thirds(&self) -> (f64, f64) {
        let all = || self.replicas.iter().flatten();
        let end = all().map(|(minute, _)| *minute).fold(0.0, f64::max);
        let most = |is_in: &dyn Fn(f64) -> bool| {
            all().filter(|(minute, _)| is_in(*minute)).map(|(_, resident)| *resident).fold(0.0, f64::max)
        };
        (most(&|minute| minute <= end / 3.0), most(&|minute| minute >= end * 2.0 / 3.0))
    }

    pub(super) fn draw(&self) -> String {
        let series = |name, points: &[(f64, f64)]| {
            // As many points as a figure has room for.
            let step = points.len().div_ceil(120).max(1);
            Series::measured(name, points.iter().copied().step_by(step))
        };
        let panel = |title: &str, series: Vec<Series>| Panel {
            title: title.to_owned(),
            x: Axis::linear("minutes", series.iter().flat_map(Series::xs)),
            y: Axis::linear("MB", series.iter().flat_map(Series::ys)),
            series,
        };
        let [one, two] = &self.replicas;
        svg(&[
            panel(
                "Resident memory of the replicas",
                vec![series("replica 1", one), series("replica 2", two)],
            ),
            panel("and of an observer that is not killed", vec![series("observer", &self.observer)]),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_compared_between_the_first_and_the_last_third() {
        let memory = Memory {
            replicas: [
                vec![(0.5, 20.0), (1.0, 40.0), (5.0, 90.0), (9.0, 41.0)],
                vec![(1.0, 25.0), (8.0, 30.0)],
            ],
            observer: Vec::new(),
        };
        assert_eq!(memory.thirds(), (40.0, 41.0));
        assert!(memory.draw().starts_with("<svg"));
    }
}
