//! Memory cost of a handler that never returns, while another handler must receive every event in order.

use std::path::PathBuf;
use std::sync::mpsc;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, Handler, Registration, on_change};
use watchkeeper::source::{Feed, Reply, ScriptedSource};
use watchkeeper::{Env, SharedInformer};

use crate::informer::Failure;
use crate::measure::{megabytes, memory, print};
use crate::plot::{Axis, Panel, Series, svg};

mod load;

use load::{Event, Load};

/// Block one handler forever while events pass: first on the same objects, then on short-lived ones.
#[derive(Debug, Args)]
pub struct BehindArgs {
    /// Number of events in the first phase, and of short-lived objects in the second
    #[arg(long, value_name = "M", default_value_t = 1_000_000)]
    events: u32,
    /// Number of objects, in the second phase at any time
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
    /// Read memory after this many events
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// Draw the curves into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// One sample of the curve.
#[derive(Clone, Debug, Serialize)]
struct Line {
    phase: &'static str,
    load: &'static str,
    events: u64,
    rss_mb: f64,
    /// Pending notifications of the blocked handler, and those coalesced.
    pending: usize,
    coalesced: u64,
}

/// Summary of the curve.
#[derive(Debug, Serialize)]
struct Summary {
    phase: &'static str,
    load: &'static str,
    events: u64,
    /// Events delivered in order to the other handler; the run fails otherwise.
    told_in_order: u64,
    before_mb: f64,
    highest_mb: f64,
    after_mb: f64,
}

/// Events sent per batch.
const CHUNK: u64 = 500;
/// Maximum backlog of the running handler, so that its notifications are never coalesced.
const WINDOW: u64 = 1_000;

/// Runs the benchmark and prints the curves.
pub fn run(args: &BehindArgs) -> Result<(), Failure> {
    // One worker is the sleeping handler's.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build()?;
    let mut curves = Vec::new();
    for load in
        [Load::changes(args.objects, args.events.into()), Load::short_lived(args.objects, args.events)]
    {
        let curve = runtime.block_on(measure(&load, args.every.into()))?;
        curves
            .push(Series::measured(load.name(), curve.iter().map(|line| (line.events as f64, line.rss_mb))));
    }
    if let Some(file) = &args.svg {
        let panel = Panel {
            title: "Resident memory while one handler sleeps".into(),
            x: Axis::linear("events", curves.iter().flat_map(Series::xs)),
            y: Axis::linear("MB", curves.iter().flat_map(Series::ys)),
            series: curves,
        };
        std::fs::write(file, svg(&[panel]))?;
    }
    Ok(())
}

async fn measure(load: &Load, every: u64) -> Result<Vec<Line>, Failure> {
    let (env, stop, source) = (Env::system(), CancellationToken::new(), ScriptedSource::new());
    let (watching, feed) = Reply::live();
    source.on_list(Reply::body(load.list())).on_watch(watching);
    let week = std::time::Duration::from_secs(604_800);
    let informer = SharedInformer::<Pod>::builder(source, &env).min_watch_timeout(week).build();
    let (awake, asleep) = mpsc::channel::<()>();
    let sleeper = informer.add_handler(on_change(move |_: Change<'_, Pod>| {
        // Nothing is ever sent: this ends when `awake` is dropped, at the end of the measurement.
        let _ = asleep.recv();
    }))?;
    let (expected, expects) = mpsc::channel();
    let (told, telling) = watch::channel(Ok(0));
    let witness = informer.add_handler(check(expects, told))?;
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    witness.wait_until_synced().await;
    let curve = Feeder { load, feed, expected, telling }.run(every, &sleeper).await?;
    if witness.stats().coalesced > 0 {
        return Err("the handler that is awake was told less than everything".into());
    }
    drop(awake);
    stop.cancel();
    running.await?;
    Ok(curve)
}

/// A handler that compares its notifications with what was sent: the number of matches so far, or the first mismatch.
fn check(expects: mpsc::Receiver<Event>, told: watch::Sender<Result<u64, String>>) -> impl Handler<Pod> {
    on_change(move |change: Change<'_, Pod>| {
        if matches!(change, Change::Added { in_initial_list: true, .. }) {
            return;
        }
        let (heard, expected) = (Event::of(&change), expects.try_recv().ok());
        told.send_modify(|told| {
            if let Ok(count) = told {
                *told = match heard == expected {
                    true => Ok(*count + 1),
                    false => Err(format!("told of {heard:?} where {expected:?} was sent")),
                };
            }
        });
    })
}

/// Sends the events of a load, as fast as the running handler takes them.
struct Feeder<'a> {
    load: &'a Load,
    feed: Feed,
    expected: mpsc::Sender<Event>,
    telling: watch::Receiver<Result<u64, String>>,
}

impl Feeder<'_> {
    async fn run(mut self, every: u64, sleeper: &Registration<Pod>) -> Result<Vec<Line>, Failure> {
        let (mut sent, total) = (0, self.load.events());
        let mut curve = vec![self.sample(0, sleeper)?];
        while sent < total {
            let stop_at = total.min(sent + CHUNK).min((sent / every + 1) * every);
            self.send(sent + 1..=stop_at)?;
            sent = stop_at;
            let is_sampled = sent.is_multiple_of(every) || sent == total;
            self.until_told(if is_sampled { sent } else { sent.saturating_sub(WINDOW) }).await?;
            if is_sampled {
                curve.push(self.sample(sent, sleeper)?);
            }
        }
        let resident = || curve.iter().map(|line| line.rss_mb);
        print(&Summary {
            phase: "behind_summary",
            load: self.load.name(),
            events: total,
            told_in_order: self.until_told(total).await?,
            before_mb: resident().next().unwrap_or_default(),
            highest_mb: resident().fold(0.0, f64::max),
            after_mb: resident().next_back().unwrap_or_default(),
        })?;
        Ok(curve)
    }

    /// Prints a sample after `events` events.
    fn sample(&self, events: u64, sleeper: &Registration<Pod>) -> Result<Line, Failure> {
        let (stats, load) = (sleeper.stats(), self.load.name());
        let rss_mb = megabytes(memory()?.resident);
        let (pending, coalesced) = (stats.pending, stats.coalesced);
        let line = Line { phase: "behind", load, events, rss_mb, pending, coalesced };
        print(&line)?;
        Ok(line)
    }

    fn send(&self, numbers: std::ops::RangeInclusive<u64>) -> Result<(), Failure> {
        let mut chunk = Vec::new();
        for number in numbers {
            self.expected.send(self.load.write(&mut chunk, number))?;
        }
        if self.feed.send(chunk) { Ok(()) } else { Err("the informer has ended its watch".into()) }
    }

    /// Waits until the running handler has received this many events, all as sent.
    async fn until_told(&mut self, count: u64) -> Result<u64, Failure> {
        let told = self.telling.wait_for(|told| told.as_ref().map_or(true, |told| *told >= count)).await?;
        Ok(told.clone()?)
    }
}
