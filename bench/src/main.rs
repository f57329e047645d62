//! What does the `bench` command do? It reads the command line and hands over.

use bench::informer::{self, InformerArgs};
use bench::queue::{self, QueueArgs};
use bench::serve::{self, ServeArgs};
use bench::store::{self, StoreArgs};
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
}

fn main() {
    let outcome: Result<(), Box<dyn std::error::Error + Send + Sync>> = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args).map_err(Into::into),
        Command::Informer(args) => informer::run(&args),
        Command::Queue(args) => queue::run(&args),
        Command::Store(args) => store::run(&args),
    };
    if let Err(error) = outcome {
        clap::Error::raw(ErrorKind::Io, format!("{error}\n")).exit();
    }
}
