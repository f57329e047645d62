//! Peak memory of a relist: once where nothing changed, and once where everything did.

use std::sync::Arc;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Config;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::{Client, Env, ResourceVersion, SharedInformerFactory};

use crate::child::Server;
use crate::informer::{Counter, Failure, List, get};
use crate::measure::{Cost, Line as SyncLine, Phase, megabytes, print, rounded};

/// Expire the version that an informer watches, twice: first with the same Pods, then with all of them changed.
#[derive(Debug, Args)]
pub struct RelistArgs {
    /// Number of Pods
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    objects: u32,
    /// How to list: in pages, or as a streamed list
    #[arg(long, value_enum, default_value_t = List::Stream)]
    list: List,
}

#[derive(Debug, PartialEq, Serialize)]
struct Line {
    phase: &'static str,
    world: &'static str,
    objects: u64,
    /// Updates that the handler received.
    updates: u64,
    wall_s: f64,
    cpu_s: f64,
    rss_mb: f64,
    peak_mb: f64,
    /// The peak, as a multiple of the memory after the initial sync.
    peak_to_synced: f64,
}

/// Runs the benchmark and prints a line for the sync and for each relist.
pub fn run(args: &RelistArgs) -> Result<(), Failure> {
    let server = Server::start(&["--objects", &args.objects.to_string(), "--events", "0"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(args, server.url().clone()))
}

async fn measure(args: &RelistArgs, server: http::Uri) -> Result<(), Failure> {
    let (env, stop) = (Env::system(), CancellationToken::new());
    let client = Client::from_config(Config::new(server), &env)?;
    let factory = SharedInformerFactory::builder(&client).list_mode(args.list.into()).build();
    let (pods, updates) = (factory.informer::<Pod>(), Arc::new(Counter::default()));
    let updated = updates.clone();
    let registration = pods.add_handler(on_change(move |change: Change<'_, Pod>| {
        if matches!(change, Change::Updated { .. }) && !change.is_resync() {
            updated.tick();
        }
    }))?;
    let phase = Phase::start(&env.clock)?;
    factory.start(&stop);
    registration.wait_until_synced().await;
    let synced = phase.cost()?;
    SyncLine::sync(pods.indexer().snapshot().len(), &synced).print()?;

    let all = u64::from(args.objects);
    for (world, path, expected) in [("unchanged", "/expire", 0), ("changed", "/change", all)] {
        let phase = Phase::start(&env.clock)?;
        let version: u64 = get(client.kube(), path).await?.parse()?;
        pods.indexer().wait_until_fresh(&ResourceVersion::from(version)).await;
        updates.until(expected).await;
        let cost = phase.cost()?;
        let (cached, told) = (pods.indexer().snapshot().len() as u64, updates.count());
        if (cached, told) != (all, expected) {
            let told = format!("{cached} of {all} objects cached, {told} of {expected} updates told");
            return Err(format!("the relist of the {world} world went wrong: {told}").into());
        }
        print(&Line::new(world, cached, told, &cost, &synced))?;
    }
    let lists = pods.health().lists;
    if lists != 3 {
        return Err(format!("a list and two relists were to be made, not {lists}").into());
    }
    stop.cancel();
    factory.join().await?;
    Ok(())
}

impl Line {
    fn new(world: &'static str, objects: u64, updates: u64, cost: &Cost, synced: &Cost) -> Self {
        Self {
            phase: "relist",
            world,
            objects,
            updates,
            wall_s: rounded(cost.wall.as_secs_f64(), 3),
            cpu_s: rounded(cost.cpu.as_secs_f64(), 3),
            rss_mb: megabytes(cost.memory.resident),
            peak_mb: megabytes(cost.memory.peak),
            peak_to_synced: rounded(cost.memory.peak as f64 / synced.memory.resident as f64, 2),
        }
    }
}
