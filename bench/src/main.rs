//! What does the `bench` command do? It reads the command line and hands over.

use bench::apiserver::{self, ApiserverArgs};
use bench::behind::{self, BehindArgs};
use bench::foos::{self, FoosArgs};
use bench::idle::{self, IdleArgs};
use bench::informer::{self, InformerArgs};
use bench::latency::{self, LatencyArgs};
use bench::queue::{self, QueueArgs};
use bench::relist::{self, RelistArgs};
use bench::scale::{self, ScaleArgs};
use bench::serve::{self, ServeArgs};
use bench::store::{self, StoreArgs};
use bench::worst::{self, WorstArgs};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

// glibc's allocator keeps the pages of a burst for good, so that the resident set would show the worst moment instead of what is held.
// jemalloc gives them back, and is what a controller with a large cache would be shipped with.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Benchmarks of watchkeeper and of its peers.
#[derive(Parser)]
#[command(name = "bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve many Pods and events over plain HTTP on the loopback interface, for any client to be measured against.
    Serve(ServeArgs),
    /// Sync an informer from a server of Pods, apply its events, and print what both cost.
    Informer(InformerArgs),
    /// Time a work queue, and weigh a million keys that wait in it.
    Queue(QueueArgs),
    /// Read and write the store, and what else it could be made of, and print how long that takes and waits.
    Store(StoreArgs),
    /// Print how long events take from the server's write to a handler, seldom ones and many.
    Latency(LatencyArgs),
    /// Print what many informers cost while nothing happens but bookmarks.
    Idle(IdleArgs),
    /// Print the memory while one handler sleeps and another is told of every event, which is checked.
    Behind(BehindArgs),
    /// Create many Foos on a cluster where the sample-controller runs, and print how long it takes and how often it writes.
    Foos(FoosArgs),
    /// Print what syncs of ever more small Pods cost, each in a process of its own.
    Scale(ScaleArgs),
    /// Print the memory of relists of an unchanged and of an entirely changed world.
    Relist(RelistArgs),
    /// Start the embedded API server, and print how soon it is ready, what it weighs, and how fast it writes and tells.
    Apiserver(ApiserverArgs),
    /// Send the embedded API server large requests of many kinds, and print how long they hold up the small requests of others.
    Worst(WorstArgs),
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
        Command::Scale(args) => scale::run(&args),
        Command::Relist(args) => relist::run(&args),
        Command::Apiserver(args) => apiserver::run(&args),
        Command::Worst(args) => worst::run(&args),
    };
    if let Err(error) = outcome {
        clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit();
    }
}
