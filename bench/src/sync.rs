//! The first sync of an informer from a real API server over TLS, beside client-go's: CPU time, one side after the other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use watchkeeper::clock::Generator;
use watchkeeper::process::ClientArgs;
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Client, Env};

use crate::informer::Failure;
use crate::measure::{print, rounded};
use crate::serve::World;

/// How many Pods are written at once.
const AT_ONCE: usize = 32;

/// Measure the first sync of many Pods from a real API server.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Kubeconfig of the server, which is filled with Pods unless it has them
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Number of Pods
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    objects: u32,
    /// client-go's side: the program `sync` that reference/build prints
    #[arg(long, value_name = "FILE")]
    client_go: Option<PathBuf>,
    /// Number of runs of each, one side after the other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Numbers of threads of our side
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<u16>,
    /// Only fill the server
    #[arg(long)]
    fill_only: bool,
}

/// One way to sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Way {
    side: &'static str,
    list: &'static str,
    transport: &'static str,
    /// Zero for as many as there are cores.
    threads: u16,
}

/// The line that both sides print.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Synced {
    wall_s: f64,
    cpu_s: f64,
    rss_mb: f64,
    peak_mb: f64,
}

#[derive(Debug, Serialize)]
struct Run<'a> {
    phase: &'static str,
    #[serde(flatten)]
    way: &'a Way,
    #[serde(flatten)]
    synced: &'a Synced,
}

/// The median CPU time of a way, and what part it is of client-go's with the same list.
#[derive(Debug, Serialize)]
struct Median<'a> {
    phase: &'static str,
    #[serde(flatten)]
    way: &'a Way,
    cpu_s: f64,
    of_client_go: Option<f64>,
}

/// Runs the benchmark and prints its lines.
pub fn run(args: &SyncArgs) -> Result<(), Failure> {
    tokio::runtime::Runtime::new()?.block_on(fill(args))?;
    if args.fill_only {
        return Ok(());
    }
    let ways = ways(args);
    let mut runs = Vec::new();
    for _ in 0..args.runs {
        for way in &ways {
            let synced = sync(args, way)?;
            print(&Run { phase: "sync", way, synced: &synced })?;
            runs.push((way, synced.cpu_s));
        }
    }
    let median = |way: &Way| {
        let mut costs: Vec<_> = runs.iter().filter(|(of, _)| *of == way).map(|(_, cpu)| *cpu).collect();
        costs.sort_by(f64::total_cmp);
        costs.get(costs.len() / 2).copied()
    };
    for way in &ways {
        let Some(cpu_s) = median(way) else { continue };
        let theirs = ways.iter().find(|other| other.side == "client-go" && other.list == way.list);
        let of_client_go = theirs.and_then(median).map(|theirs| rounded(cpu_s / theirs, 3));
        print(&Median { phase: "median", way, cpu_s, of_client_go })?;
    }
    Ok(())
}

fn ways(args: &SyncArgs) -> Vec<Way> {
    let mut ways = Vec::new();
    let transports: &[_] = if cfg!(feature = "http2") { &["http1", "http2"] } else { &["http1"] };
    for list in ["stream", "paged"] {
        for transport in transports {
            let ours =
                args.threads.iter().map(|&threads| Way { side: "watchkeeper", list, transport, threads });
            ways.extend(ours);
        }
        if args.client_go.is_some() {
            ways.push(Way { side: "client-go", list, transport: "http2", threads: 0 });
            ways.push(Way { side: "client-go", list, transport: "http2", threads: 1 });
        }
    }
    ways
}

/// Lets a process of its own sync once.
fn sync(args: &SyncArgs, way: &Way) -> Result<Synced, Failure> {
    let mut command = match &args.client_go {
        Some(program) if way.side == "client-go" => {
            let mut command = Command::new(program);
            command.env("KUBE_FEATURE_WatchListClient", (way.list == "stream").to_string());
            if way.threads > 0 {
                command.env("GOMAXPROCS", way.threads.to_string());
            }
            command
        }
        _ => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["informer", "--list", way.list, "--threads", &way.threads.to_string()]);
            command.args((way.transport == "http2").then_some("--http2"));
            command
        }
    };
    command.arg("--kubeconfig").arg(&args.kubeconfig).args(["--objects", &args.objects.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{way:?} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Creates the Pods that are missing, each with its status.
async fn fill(args: &SyncArgs) -> Result<(), Failure> {
    let env = Env::system();
    let flags = ClientArgs { kubeconfig: Some(args.kubeconfig.clone()), ..ClientArgs::default() };
    let client = flags.connect(&env).await?;
    let world = World::synthetic(args.objects, 0, &Generator::seeded(1));
    let pods = (0..world.len()).map(|index| pod(&world, index)).collect::<Result<Vec<_>, _>>()?;
    let namespaces: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.namespace.clone()).collect();
    for name in namespaces {
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        unless_there(client.api().create(&Namespace { metadata, ..Namespace::default() }).await)?;
    }
    stream::iter(pods).map(|pod| create(&client, pod)).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

/// Returns a Pod as a user would create it, and its status.
fn pod(world: &World, index: usize) -> Result<Pod, Failure> {
    let mut json = Vec::new();
    world.write_first(&mut json, index);
    let mut pod: Value = serde_json::from_slice(&json)?;
    let metadata = pod["metadata"].as_object_mut().ok_or("a Pod without metadata")?;
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        metadata.remove(field);
    }
    Ok(serde_json::from_value(pod)?)
}

async fn create(client: &Client, pod: Pod) -> Result<(), Failure> {
    if let Some(mut created) = unless_there(client.api().create(&pod).await)? {
        created.status = pod.status;
        client.api().replace_status(&created).await?;
    }
    Ok(())
}

/// Returns nothing if the object exists already.
fn unless_there<K>(created: Result<K, ApiError>) -> Result<Option<K>, ApiError> {
    match created {
        Ok(created) => Ok(Some(created)),
        Err(error) if error.class() == Class::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}
