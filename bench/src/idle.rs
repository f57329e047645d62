//! CPU time of idle informers; the server is another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Config;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{InformerId, InformerMetrics, MetricsProvider, on_apply};
use watchkeeper::wire::WatchEventType;
use watchkeeper::{Client, Env, Object, SharedInformerFactory};

use crate::child::Server;
use crate::informer::Failure;
use crate::measure::{Phase, megabytes, print, rounded};

/// Keep informers idle while a server sends one bookmark per minute.
#[derive(Debug, Args)]
pub struct IdleArgs {
    /// Number of informers, each with a watch and a handler
    #[arg(long, value_name = "N", default_value_t = 50)]
    informers: usize,
    /// Duration in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Number of Pods per informer
    #[arg(long, value_name = "N", default_value_t = 100)]
    objects: u32,
}

#[derive(Debug, Serialize)]
struct Line {
    phase: &'static str,
    informers: usize,
    seconds: f64,
    /// Bookmarks received in that time, as proof that the watches were open.
    bookmarks: u64,
    cpu_ms: f64,
    cpu_ms_per_minute: f64,
    cpu_percent: f64,
    rss_mb: f64,
}

/// Counts the bookmarks of all informers.
#[derive(Clone, Debug, Default)]
struct Bookmarks(Arc<AtomicU64>);

impl InformerMetrics for Bookmarks {
    fn event(&self, event: &WatchEventType) {
        if *event == WatchEventType::Bookmark {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl MetricsProvider for Bookmarks {
    fn informer(&self, _id: InformerId) -> Arc<dyn InformerMetrics> {
        Arc::new(self.clone())
    }
}

/// Runs the benchmark and prints its line.
pub fn run(args: &IdleArgs) -> Result<(), Failure> {
    let server = Server::start(&["--objects", &args.objects.to_string(), "--events", "0"])?;
    // As a controller has it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(args, server.url().clone()))
}

async fn measure(args: &IdleArgs, server: http::Uri) -> Result<(), Failure> {
    let (env, stop, bookmarks) = (Env::system(), CancellationToken::new(), Bookmarks::default());
    let client = Client::from_config(Config::new(server), &env)?;
    // A factory shares the informers of a kind, so that each has its own.
    let builder =
        || SharedInformerFactory::builder(&client).name("idle").metrics(Arc::new(bookmarks.clone()));
    let factories: Vec<_> = (0..args.informers).map(|_| builder().build()).collect();
    let mut registrations = Vec::new();
    for factory in &factories {
        registrations.push(factory.informer::<Pod>().add_handler(on_apply(|_: &Object<Pod>| {}))?);
        factory.start(&stop);
    }
    for registration in &registrations {
        registration.wait_until_synced().await;
    }
    let before = bookmarks.0.load(Ordering::Relaxed);
    let phase = Phase::start(&env.clock)?;
    env.clock.sleep(Duration::from_secs(args.seconds)).await;
    let cost = phase.cost()?;
    let (wall, cpu_ms) = (cost.wall.as_secs_f64(), cost.cpu.as_secs_f64() * 1e3);
    print(&Line {
        phase: "idle",
        informers: args.informers,
        seconds: rounded(wall, 3),
        bookmarks: bookmarks.0.load(Ordering::Relaxed) - before,
        cpu_ms: rounded(cpu_ms, 3),
        cpu_ms_per_minute: rounded(cpu_ms * 60.0 / wall, 3),
        cpu_percent: rounded(cpu_ms / wall / 10.0, 5),
        rss_mb: megabytes(cost.memory.resident),
    })?;
    stop.cancel();
    for factory in factories {
        factory.join().await?;
    }
    Ok(())
}
