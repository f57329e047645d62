//! Start time, memory, write rate and watch fan-out of the embedded API server.

mod fanout;
mod http;
pub(crate) mod process;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use watchkeeper::clock::Clock;

use crate::informer::Failure;
use crate::latency::percentile;
use crate::measure::{cpu_time_of, megabytes, memory_of, print, rounded};
use http::{Connection, request};
use process::Process;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Start the embedded API server as users do, and measure it.
#[derive(Debug, Args)]
pub struct ApiserverArgs {
    /// The `watchkeeper` binary to measure; by default the one next to this program
    #[arg(long, value_name = "FILE")]
    watchkeeper: Option<PathBuf>,
    /// Number of starts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Idle time before memory is read, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    idle: u64,
    /// Number of ConfigMaps of 1 KB to create
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..))]
    creates: u32,
    /// Number of concurrent connections
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Number of watchers of one object
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    watchers: u32,
    /// Number of changes to that object
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// Parent of the data directories; by default the system directory for temporary files
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Start {
    phase: &'static str,
    /// `tls`: until the line `ready`. `http`: until /readyz answers. `kept`: the same, with the created objects in the data directory.
    mode: &'static str,
    starts: u32,
    p50_ms: f64,
    max_ms: f64,
}

#[derive(Debug, Serialize)]
struct Idle {
    phase: &'static str,
    rss_mb: f64,
}

#[derive(Debug, Serialize)]
struct Creates {
    phase: &'static str,
    /// `memory`, or `disk` with a data directory.
    kept: &'static str,
    creates: u32,
    connections: u32,
    wall_s: f64,
    creates_per_s: f64,
    /// CPU time of the server.
    cpu_us_per_create: f64,
    rss_mb: f64,
}

/// Runs the benchmark and prints its lines.
pub fn run(args: &ApiserverArgs) -> Result<(), Failure> {
    let program = match &args.watchkeeper {
        Some(program) => program.clone(),
        None => process::beside_this()?,
    };
    let clock = Clock::system();
    time_starts(&clock, &program, "tls", args.starts, &[])?;
    time_starts(&clock, &program, "http", args.starts, &["--insecure-http"])?;
    weigh(args, &clock, &program)?;
    create(args, &clock, &program, "memory", &["--insecure-http"])?;
    let disk = match &args.disk {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let data = disk.path().join("data");
    let kept = ["--insecure-http", "--data-dir", data.to_str().ok_or("a folder with an odd name")?];
    create(args, &clock, &program, "disk", &kept)?;
    time_starts(&clock, &program, "kept", args.starts, &kept)?;
    fanout::run(args.watchers as usize, args.changes as usize)
}

fn time_starts(
    clock: &Clock,
    program: &Path,
    mode: &'static str,
    starts: u32,
    flags: &[&str],
) -> Result<(), Failure> {
    let mut taken = Vec::new();
    for _ in 0..starts {
        let began = clock.now();
        let server = Process::start(program, flags)?;
        if mode != "tls" {
            Connection::open(server.address()?)?.send(&request("GET", "/readyz", "text/plain", ""))?;
        }
        taken.push(clock.now() - began);
    }
    taken.sort();
    let ms = |percent| rounded(percentile(&taken, percent).as_secs_f64() * 1e3, 1);
    print(&Start { phase: "ready", mode, starts, p50_ms: ms(50), max_ms: ms(100) })?;
    Ok(())
}

fn weigh(args: &ApiserverArgs, clock: &Clock, program: &Path) -> Result<(), Failure> {
    let server = Process::start(program, &[])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(clock.sleep(Duration::from_millis(args.idle)));
    print(&Idle { phase: "idle", rss_mb: megabytes(memory_of(server.id())?.resident) })?;
    Ok(())
}

/// A ConfigMap with this size as JSON.
fn config_map(name: &str, size: usize) -> String {
    let text = |filler: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"key":"{filler}"}}}}"#
        )
    };
    text(&"x".repeat(size.saturating_sub(text("").len())))
}

fn create(
    args: &ApiserverArgs,
    clock: &Clock,
    program: &Path,
    kept: &'static str,
    flags: &[&str],
) -> Result<(), Failure> {
    let server = Process::start_on_one_core(program, flags)?;
    let address = server.address()?;
    let (cpu, began) = (cpu_time_of(server.id())?, clock.now());
    let (creates, connections) = (args.creates, args.connections);
    let workers: Vec<_> = (0..connections)
        .map(|first| thread::spawn(move || create_some(address, first, creates, connections)))
        .collect();
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked")??;
    }
    let wall = (clock.now() - began).as_secs_f64();
    let cpu = cpu_time_of(server.id())?.saturating_sub(cpu).as_secs_f64();
    print(&Creates {
        phase: "creates",
        kept,
        creates,
        connections,
        wall_s: rounded(wall, 3),
        creates_per_s: rounded(f64::from(creates) / wall, 0),
        cpu_us_per_create: rounded(cpu * 1e6 / f64::from(creates), 1),
        rss_mb: megabytes(memory_of(server.id())?.resident),
    })?;
    Ok(())
}

/// Creates every n-th object, one after another.
fn create_some(address: SocketAddr, first: u32, creates: u32, step: u32) -> Result<(), Failure> {
    let mut connection = Connection::open(address)?;
    for number in (first..creates).step_by(step as usize) {
        let body = config_map(&format!("map-{number:08}"), 1024);
        connection.send(&request("POST", MAPS, "application/json", &body))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_has_the_size_that_is_asked_for() {
        let text = config_map("map-00000001", 1024);
        assert_eq!(text.len(), 1024);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
