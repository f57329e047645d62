//! Whether cost grows linearly: syncs of a growing number of small Pods, each with its own server and client process.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::child::{self, Server};
use crate::informer::Failure;
use crate::measure::{print, rounded};
use crate::plot::{Axis, Panel, Series, number, svg};

/// Sync a growing number of small Pods, and compare with an empty sync.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Numbers of Pods
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 1_000_000])]
    objects: Vec<u32>,
    /// Runs per point; the one with the least CPU time counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How to list: paged or stream
    #[arg(long, default_value = "stream")]
    list: String,
    /// Draw the curves into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The output of `bench informer` for a sync.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Sync {
    wall_s: f64,
    cpu_s: f64,
    rss_mb: f64,
    peak_mb: f64,
}

/// A point. The costs per object are those above an empty informer.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    phase: &'static str,
    objects: u32,
    wall_s: f64,
    cpu_s: f64,
    rss_mb: f64,
    peak_mb: f64,
    cpu_us_per_object: f64,
    bytes_per_object: f64,
}

/// Runs the benchmark and prints a line for each point.
pub fn run(args: &ScaleArgs) -> Result<(), Failure> {
    let nothing = measure(args, 0)?;
    print(&Line::new(0, &nothing, &nothing))?;
    let mut lines = Vec::new();
    for objects in args.objects.iter().copied().filter(|objects| *objects > 0) {
        let line = Line::new(objects, &measure(args, objects)?, &nothing);
        print(&line)?;
        lines.push(line);
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, svg(&panels(&lines)))?;
    }
    Ok(())
}

/// The best of several syncs from one server, each in a new process.
fn measure(args: &ScaleArgs, objects: u32) -> Result<Sync, Failure> {
    let objects = objects.to_string();
    let server = Server::start(&["--small", "--events", "0", "--objects", &objects])?;
    let url = server.url().to_string();
    let mut best: Option<Sync> = None;
    for _ in 0..args.runs {
        let lines = child::run("informer", &["--server", &url, "--objects", &objects, "--list", &args.list])?;
        let line = lines.into_iter().next().ok_or("the informer printed nothing")?;
        let sync: Sync = serde_json::from_value(line)?;
        best = Some(best.filter(|best| best.cpu_s <= sync.cpu_s).unwrap_or(sync));
    }
    best.ok_or_else(|| "no run was made".into())
}

impl Line {
    fn new(objects: u32, sync: &Sync, nothing: &Sync) -> Self {
        let each = |all: f64, none: f64| (all - none).max(0.0) * 1e6 / f64::from(objects.max(1));
        Self {
            phase: "scale",
            objects,
            wall_s: sync.wall_s,
            cpu_s: sync.cpu_s,
            rss_mb: sync.rss_mb,
            peak_mb: sync.peak_mb,
            cpu_us_per_object: rounded(each(sync.cpu_s, nothing.cpu_s), 2),
            bytes_per_object: rounded(each(sync.rss_mb, nothing.rss_mb), 0),
        }
    }
}

fn panels(lines: &[Line]) -> [Panel; 2] {
    let panel = |title: &str, label: &'static str, each: fn(&Line) -> f64, unit: &str| {
        let points = || lines.iter().map(|line| (f64::from(line.objects), each(line)));
        let measured = Series::measured(
            "measured",
            points().map(|(objects, each)| (objects, each * objects / 1e6)).filter(|(_, all)| *all > 0.0),
        );
        let notes =
            points().filter(|(_, each)| *each > 0.0).map(|(_, each)| format!("{} {unit} each", number(each)));
        let measured = measured.notes(notes);
        let linear = measured.proportional("proportional");
        Panel {
            title: title.into(),
            x: Axis::log("Pods", measured.xs()),
            y: Axis::log(label, measured.ys().chain(linear.ys())),
            series: vec![linear, measured],
        }
    };
    [
        panel("Processor time of a sync", "seconds", |line| line.cpu_us_per_object, "µs"),
        panel("Resident memory", "MB", |line| line.bytes_per_object, "B"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_object_costs_is_over_an_informer_without_any() {
        let nothing = Sync { wall_s: 0.1, cpu_s: 0.01, rss_mb: 10.0, peak_mb: 11.0 };
        let sync = Sync { wall_s: 1.0, cpu_s: 0.03, rss_mb: 12.5, peak_mb: 13.0 };
        let line = Line::new(1000, &sync, &nothing);
        assert_eq!((line.cpu_us_per_object, line.bytes_per_object), (20.0, 2500.0));
        let none = Line::new(0, &nothing, &nothing);
        assert_eq!((none.cpu_us_per_object, none.bytes_per_object), (0.0, 0.0));
    }

    #[test]
    fn the_figure_shows_each_point_and_what_proportional_would_be() {
        let nothing = Sync { wall_s: 0.1, cpu_s: 0.01, rss_mb: 10.0, peak_mb: 11.0 };
        let lines = [1000, 100_000].map(|objects| {
            let all = f64::from(objects) / 1e6;
            let sync =
                Sync { wall_s: 1.0, cpu_s: 0.01 + 20.0 * all, rss_mb: 10.0 + 1500.0 * all, peak_mb: 11.0 };
            Line::new(objects, &sync, &nothing)
        });
        let figure = svg(&panels(&lines));
        assert_eq!(figure.matches("<circle").count(), 4);
        assert_eq!(figure.matches("20 µs each").count(), 2);
        assert_eq!(figure.matches("1,500 B each").count(), 2);
        assert_eq!(figure.matches("proportional").count(), 2);
    }
}
