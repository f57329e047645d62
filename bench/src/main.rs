//! The `bench` command: parses the command line and runs the benchmark.

use bench::apiserver::{self, ApiserverArgs};
use bench::behind::{self, BehindArgs};
use bench::cluster::{self, ClusterArgs};
use bench::controller::{self, ControllerArgs, OperatorArgs};
use bench::foos::{self, FoosArgs};
use bench::idle::{self, IdleArgs};
use bench::informer::{self, InformerArgs};
use bench::latency::{self, LatencyArgs};
use bench::queue::{self, QueueArgs};
use bench::relist::{self, RelistArgs};
use bench::scale::{self, ScaleArgs};
use bench::serve::{self, ServeArgs};
use bench::sim::{self, SimArgs};
use bench::store::{self, StoreArgs};
use bench::sync::{self, SyncArgs};
use bench::takeover::{self, TakeOverArgs};
use bench::weather::{self, WeatherArgs};
use bench::worst::{self, WorstArgs};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

// glibc's allocator does not return the pages of a burst, so the resident set would show the peak instead of the live data. jemalloc returns
// them, and is what a controller with a large cache would ship with.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Benchmarks of watchkeeper and its peers.
#[derive(Parser)]
#[command(name = "bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve Pods and events over plain HTTP on loopback, for any client.
    Serve(ServeArgs),
    /// Measure an informer: initial sync, then events.
    Informer(InformerArgs),
    /// Measure the work queue: time per round, and memory of a million delayed keys.
    Queue(QueueArgs),
    /// Measure reads and writes of the store and of alternative implementations.
    Store(StoreArgs),
    /// Measure the latency of events from the server's write to a handler.
    Latency(LatencyArgs),
    /// Measure the CPU time of many idle informers.
    Idle(IdleArgs),
    /// Measure memory while one handler is blocked and another receives every event.
    Behind(BehindArgs),
    /// Measure the sample controller on a cluster: time and writes for many Foos.
    Foos(FoosArgs),
    /// Measure reconciles that change nothing: CPU time, requests and memory, beside the same operator on controller-runtime.
    Controller(ControllerArgs),
    /// Run the operator that `controller` measures.
    #[command(hide = true)]
    Operator(OperatorArgs),
    /// Measure syncs of a growing number of small Pods, each in its own process.
    Scale(ScaleArgs),
    /// Measure the memory of a relist where nothing changed, and where everything did.
    Relist(RelistArgs),
    /// Measure the embedded API server: start time, memory, write rate and watch fan-out.
    Apiserver(ApiserverArgs),
    /// Measure the cluster in the box: start time, memory, and many Deployments until all are available.
    Cluster(ClusterArgs),
    /// Search for the large request to the embedded API server that delays small requests longest.
    Worst(WorstArgs),
    /// Measure the first sync of many Pods from a real API server, beside client-go.
    Sync(SyncArgs),
    /// Measure take-overs by a standby with a large cache: from winning the Lease to the first reconcile.
    TakeOver(TakeOverArgs),
    /// Run the sample controller on a real control plane where something fails every few seconds.
    Weather(WeatherArgs),
    /// Measure the simulator: CPU time per fault schedule and per request.
    Sim(SimArgs),
}

fn main() {
    let outcome: Result<(), Box<dyn std::error::Error + Send + Sync>> = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args).map_err(Into::into),
        Command::Informer(args) => informer::run(&args),
        Command::Queue(args) => queue::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Idle(args) => idle::run(&args),
        Command::Behind(args) => behind::run(&args),
        Command::Foos(args) => foos::run(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Operator(args) => controller::operate(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Relist(args) => relist::run(&args),
        Command::Apiserver(args) => apiserver::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Worst(args) => worst::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::TakeOver(args) => takeover::run(&args),
        Command::Weather(args) => weather::run(&args),
        Command::Sim(args) => sim::run(&args),
    };
    if let Err(error) = outcome {
        clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit();
    }
}
