//! Take-over of large caches: from winning the Lease to the first reconcile, on the embedded server over TLS.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::core::ObjectMeta;
use kube_client::core::params::Patch;
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Instant;
use watchkeeper::controller::{Action, Controller, Manager, ManagerError};
use watchkeeper::leader::{LeaderElection, LeaderStatus};
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env, ObjectName};
use watchkeeper_apiserver::{ApiServer, ListenOptions};

use crate::informer::Failure;
use crate::measure::{print, rounded};

/// Let a standby with a large cache take over from a leader that stops, several times.
#[derive(Debug, Args)]
pub struct TakeOverArgs {
    /// Number of ConfigMaps, each with 1 KB of data
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// Changes per second, before, during and after each take-over
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1000))]
    writes: u64,
    /// Seconds between the start of a standby and the stop of its leader
    #[arg(long, value_name = "S", default_value_t = 5)]
    rest: u64,
    /// Number of take-overs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
}

#[derive(Debug, Serialize)]
struct Line {
    objects: u64,
    writes_per_second: u64,
    /// From the stop of the leader until the standby has the Lease.
    won_after_ms: f64,
    /// From then until its first reconcile begins.
    first_reconcile_ms: f64,
}

/// One replica. Dropping it ends it.
struct Replica {
    status: LeaderStatus,
    stop: CancellationToken,
    run: JoinHandle<Result<(), ManagerError>>,
    /// When each reconcile has begun.
    begun: UnboundedReceiver<Instant>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.run.abort();
    }
}

/// Runs the benchmark and prints a line for each take-over.
pub fn run(args: &TakeOverArgs) -> Result<(), Failure> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(args))
}

async fn measure(args: &TakeOverArgs) -> Result<(), Failure> {
    let (env, folder) = (Env::system(), tempfile::tempdir()?);
    let server = ApiServer::new(&env);
    let listening = server.listen(ListenOptions::default()).await?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, listening.kubeconfig())?;
    let user = Client::from_kube(server.client(), &env);
    create(&user, args.objects).await?;
    let changing = tokio::spawn(change(user, env.clone(), args.objects, args.writes));

    let mut leader = start(&kubeconfig, &env).await?;
    leader.begun.recv().await.ok_or("the first leader has ended")?;
    for _ in 0..args.runs {
        let mut standby = start(&kubeconfig, &env).await?;
        // The leader may still be reconciling what it has found at its start.
        env.clock.sleep(Duration::from_secs(args.rest)).await;
        let stopped = env.clock.now();
        leader.stop.cancel();
        let mut leaders = pin!(standby.status.leaders());
        while leaders.next().await.is_some_and(|leader| leader != standby.status.identity()) {}
        let won = env.clock.now();
        let begun = standby.begun.recv().await.ok_or("the standby has ended")?;
        let milliseconds = |time: Duration| rounded(time.as_secs_f64() * 1000.0, 1);
        print(&Line {
            objects: args.objects,
            writes_per_second: args.writes,
            won_after_ms: milliseconds(won - stopped),
            first_reconcile_ms: milliseconds(begun.saturating_duration_since(won)),
        })?;
        (&mut leader.run).await??;
        leader = standby;
    }
    changing.abort();
    leader.stop.cancel();
    (&mut leader.run).await??;
    listening.stop().await;
    Ok(())
}

/// Starts a replica, and waits until its cache is filled.
async fn start(kubeconfig: &Path, env: &Env) -> Result<Replica, Failure> {
    let args = ClientArgs { kubeconfig: Some(kubeconfig.to_owned()), ..ClientArgs::default() };
    let client = args.connect(env).await?;
    let election = LeaderElection::builder(&client, "default", "take-over").build()?;
    let status = election.status().clone();
    let mut manager = Manager::builder("take-over", &client).leader_election(election).build();
    let (clock, (begins, begun)) = (env.clock.clone(), mpsc::unbounded_channel());
    Controller::<ConfigMap>::new(&mut manager).reconcile(move |_, _| {
        let _ended = begins.send(clock.now());
        async { Ok(Action::done()) }
    })?;
    let (stop, cache) = (CancellationToken::new(), manager.factory().informer::<ConfigMap>());
    let run = tokio::spawn(manager.run(stop.clone()));
    cache.wait_until_synced().await;
    Ok(Replica { status, stop, run, begun })
}

fn name(number: u64) -> String {
    format!("map-{number:06}")
}

async fn create(user: &Client, objects: u64) -> Result<(), Failure> {
    let creates = stream::iter(0..objects).map(|number| async move {
        let metadata = ObjectMeta {
            name: Some(name(number)),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        };
        let data = BTreeMap::from([("data".to_owned(), "x".repeat(1000))]);
        let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        user.api::<ConfigMap>().create(&map).await.map(drop)
    });
    Ok(creates.buffer_unordered(32).try_collect().await?)
}

/// Changes ConfigMaps at random, until it is aborted.
async fn change(user: Client, env: Env, objects: u64, rate: u64) {
    let Some(pause) = 1_000_000_u64.checked_div(rate) else { return };
    for count in 0_u64.. {
        let key = ObjectName::namespaced("default", &name(env.generator.below(objects)));
        let patch = Patch::Merge(json!({"data": {"count": count.to_string()}}));
        // A change more or less does not matter.
        let _refused = user.api::<ConfigMap>().patch(&key, &patch).await;
        env.clock.sleep(Duration::from_micros(pause)).await;
    }
}
