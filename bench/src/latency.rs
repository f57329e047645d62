//! Latency of events from the server's socket to a handler.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Config;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::{Clock, Generator, Instant};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::{Client, Env, SharedInformerFactory};

use crate::informer::{Failure, get};
use crate::measure::{print, rounded};
use crate::serve::{Pace, Sent, Service, World, answer};

/// Send events to an informer, first one at a time, then at a high rate, and time each.
#[derive(Debug, Args)]
pub struct LatencyArgs {
    /// Number of Pods
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    objects: u32,
    /// Number of events to send one at a time
    #[arg(long, value_name = "M", default_value_t = 200)]
    seldom: u32,
    /// Interval between those, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Number of events to send at the rate
    #[arg(long, value_name = "M", default_value_t = 100_000)]
    events: u32,
    /// Rate, in events per second
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
}

/// The result, in microseconds.
#[derive(Debug, PartialEq, Serialize)]
struct Line {
    phase: &'static str,
    events: usize,
    sent_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// From the planned time of the event, so that a delayed sender does not hide latency.
    p99_from_due_us: f64,
}

/// The number of an event, and when the handler received it.
type Heard = Vec<(u64, Instant)>;

/// Runs the benchmark and prints a line for each pace.
pub fn run(args: &LatencyArgs) -> Result<(), Failure> {
    let loaded = Duration::from_secs(1) / u32::try_from(args.rate)?;
    for (phase, events, every) in
        [("idle", args.seldom, Duration::from_millis(args.every)), ("loaded", args.events, loaded)]
    {
        if events > 0 {
            print(&measure(phase, args.objects, events, every)?)?;
        }
    }
    Ok(())
}

fn measure(phase: &'static str, objects: u32, events: u32, every: Duration) -> Result<Line, Failure> {
    let env = Env::system();
    let (sent, journal) = mpsc::channel();
    let world = World::synthetic(objects, events, &Generator::seeded(1));
    let sender = Sender::start(Service::new(world, env.clock.clone()).paced(Pace { every, sent }))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let heard = runtime.block_on(listen(sender.url(), &env, events, every))?;
    drop(sender);
    let sent: Vec<Sent> = journal.try_iter().collect();
    Line::new(phase, &sent, &heard)
}

/// Starts the events, and waits until the handler has received the last.
async fn listen(server: http::Uri, env: &Env, events: u32, every: Duration) -> Result<Heard, Failure> {
    let client = Client::from_config(Config::new(server), env)?;
    let factory = SharedInformerFactory::builder(&client).build();
    let (done, all) = oneshot::channel();
    let registration = factory.informer::<Pod>().add_handler(record(env.clock.clone(), events, done))?;
    let stop = CancellationToken::new();
    factory.start(&stop);
    registration.wait_until_synced().await;
    get(client.kube(), "/start").await?;
    let patience = every * events * 2 + Duration::from_secs(60);
    let heard =
        env.clock.timeout(patience, all).await.map_err(|_| "some events never reached the handler")?;
    stop.cancel();
    factory.join().await?;
    Ok(heard?)
}

/// A handler that records when it receives each event, and sends the records after the last.
fn record(
    clock: Clock,
    events: u32,
    done: oneshot::Sender<Heard>,
) -> impl watchkeeper::informer::Handler<Pod> {
    let (mut heard, mut done) = (Heard::with_capacity(events as usize), Some(done));
    on_change(move |change: Change<'_, Pod>| {
        let now = clock.now();
        if matches!(change, Change::Added { in_initial_list: true, .. }) {
            return;
        }
        let version = change.last_known().and_then(|object| object.version().as_number());
        heard.push((version.unwrap_or_default().saturating_sub(World::BEFORE), now));
        if heard.len() == events as usize
            && let Some(done) = done.take()
        {
            // Whoever waits for it may have given up.
            let _ = done.send(std::mem::take(&mut heard));
        }
    })
}

impl Line {
    fn new(phase: &'static str, sent: &[Sent], heard: &[(u64, Instant)]) -> Result<Self, Failure> {
        let each_once =
            sent.len() == heard.len() && sent.iter().zip(heard).all(|(sent, heard)| sent.number == heard.0);
        let (true, Some(first), Some(last)) = (each_once, sent.first(), sent.last()) else {
            return Err("the handler was not told of each event once and in order".into());
        };
        let since = |from: fn(&Sent) -> Instant| {
            let mut taken: Vec<_> = sent
                .iter()
                .zip(heard)
                .map(|(sent, (_, at))| at.saturating_duration_since(from(sent)))
                .collect();
            taken.sort_unstable();
            taken
        };
        let (taken, from_due) = (since(|sent| sent.at), since(|sent| sent.due));
        let us = |time: Duration| rounded(time.as_secs_f64() * 1e6, 1);
        Ok(Self {
            phase,
            events: sent.len(),
            sent_per_s: rounded(sent.len().saturating_sub(1) as f64 / (last.at - first.at).as_secs_f64(), 0),
            p50_us: us(percentile(&taken, 50)),
            p99_us: us(percentile(&taken, 99)),
            max_us: us(percentile(&taken, 100)),
            p99_from_due_us: us(percentile(&from_due, 99)),
        })
    }
}

/// The percentile of `sorted` samples; zero without samples.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// A server on its own thread and runtime; dropping it ends both.
struct Sender {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    fn start(service: Service) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(stopped.run_until_cancelled(answer(listener, service)));
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }

    fn url(&self) -> http::Uri {
        http::Uri::try_from(format!("http://{}", self.address)).unwrap_or_default()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed, and shows in the events that are missing.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_percentile_is_a_sample_that_so_many_do_not_exceed() {
        let samples: Vec<_> = (1..=200).map(MS).collect();
        assert_eq!(percentile(&samples, 50), MS(100));
        assert_eq!(percentile(&samples, 99), MS(198));
        assert_eq!(percentile(&samples, 100), MS(200));
        assert_eq!(percentile(&samples[..1], 99), MS(1));
        assert_eq!(percentile(&samples[..3], 50), MS(2));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    /// Three events, 10 ms apart, the last sent 5 ms late; received 1, 2 and 3 ms after they were sent.
    fn three() -> (Vec<Sent>, Heard) {
        let start = Clock::system().now();
        let due = |number: u64| start + MS(10 * number);
        let at = |number| due(number) + MS(if number == 3 { 5 } else { 0 });
        let sent = |number| Sent { number, due: due(number), at: at(number) };
        ((1..=3).map(sent).collect(), (1..=3).map(|number| (number, at(number) + MS(number))).collect())
    }

    #[test]
    fn an_event_is_timed_from_its_write_and_from_when_it_was_due() {
        let (sent, heard) = three();
        let line = Line::new("idle", &sent, &heard).unwrap();
        assert_eq!((line.p50_us, line.p99_us, line.max_us), (2000.0, 3000.0, 3000.0));
        assert_eq!((line.p99_from_due_us, line.sent_per_s, line.events), (8000.0, 80.0, 3));
    }

    #[test]
    fn an_event_that_is_missing_or_out_of_order_is_an_error() {
        let (sent, mut heard) = three();
        assert!(Line::new("idle", &sent, &heard[..2]).is_err());
        heard.swap(0, 1);
        assert!(Line::new("idle", &sent, &heard).is_err());
        assert!(Line::new("idle", &[], &[]).is_err());
    }
}
