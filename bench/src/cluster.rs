//! Start, memory and speed of the cluster in the box: many Deployments until all are available.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Clock;
use watchkeeper::informer::on_apply;
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformerFactory};

use crate::apiserver::process::{self, Process};
use crate::informer::Failure;
use crate::latency::percentile;
use crate::measure::{cpu_time_of, megabytes, memory_of, print, rounded};

/// Start `watchkeeper serve` with everything that it runs by default, and let it roll out many Deployments.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// The `watchkeeper` binary to measure; by default the one next to this program
    #[arg(long, value_name = "FILE")]
    watchkeeper: Option<PathBuf>,
    /// Number of starts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Idle time before memory is read, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    idle: u64,
    /// Number of Deployments
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    deployments: u32,
    /// Number of Pods of each Deployment
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pods: u32,
    /// Number of concurrent creates
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    at_once: u32,
    /// Timeout in seconds
    #[arg(long, value_name = "S", default_value_t = 600)]
    patience: u64,
}

#[derive(Debug, Serialize)]
struct Ready {
    phase: &'static str,
    starts: u32,
    /// From the start of the process until the line `ready`.
    p50_ms: f64,
    max_ms: f64,
}

#[derive(Debug, Serialize)]
struct Idle {
    phase: &'static str,
    rss_mb: f64,
}

#[derive(Debug, Serialize)]
struct Rollout {
    phase: &'static str,
    deployments: u32,
    pods: u32,
    /// From the first create until a watch has shown the last Deployment available.
    seconds: f64,
    /// CPU time of the server with its controllers.
    cpu_s: f64,
    rss_mb: f64,
    peak_mb: f64,
}

/// Runs the benchmark and prints its lines.
pub fn run(args: &ClusterArgs) -> Result<(), Failure> {
    let program = match &args.watchkeeper {
        Some(program) => program.clone(),
        None => process::beside_this()?,
    };
    time_starts(&Clock::system(), &program, args.starts)?;
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(measure(args, &program))
}

fn time_starts(clock: &Clock, program: &Path, starts: u32) -> Result<(), Failure> {
    let mut taken = Vec::new();
    for _ in 0..starts {
        let began = clock.now();
        let _server = Process::start(program, &[])?;
        taken.push(clock.now() - began);
    }
    taken.sort();
    let ms = |percent| rounded(percentile(&taken, percent).as_secs_f64() * 1e3, 1);
    print(&Ready { phase: "ready", starts, p50_ms: ms(50), max_ms: ms(100) })?;
    Ok(())
}

async fn measure(args: &ClusterArgs, program: &Path) -> Result<(), Failure> {
    let env = Env::system();
    // Without TLS, so that the figures are those of the cluster.
    let server = Process::start(program, &["--insecure-http"])?;
    let master = Some(format!("http://{}", server.address()?));
    let client = ClientArgs { master, ..ClientArgs::default() }.connect(&env).await?;
    env.clock.sleep(Duration::from_millis(args.idle)).await;
    print(&Idle { phase: "idle", rss_mb: megabytes(memory_of(server.id())?.resident) })?;
    // It is there as soon as the controllers have started.
    client.api::<Node>().get(&ObjectName::cluster("node-1")).await?;

    let (seen, stop) =
        (Arc::new((Mutex::<BTreeSet<String>>::default(), Notify::new())), CancellationToken::new());
    let factory = SharedInformerFactory::builder(&client).namespace("default").build();
    let (theirs, pods) = (seen.clone(), args.pods);
    factory.informer::<Deployment>().add_handler(on_apply(move |deployment: &Object<Deployment>| {
        let available = deployment.get().ok().and_then(|it| it.status.as_ref()?.available_replicas);
        if available.and_then(|count| u32::try_from(count).ok()) == Some(pods) {
            theirs.0.lock().insert(deployment.name().to_owned());
            theirs.1.notify_waiters();
        }
    }))?;
    factory.start(&stop);
    factory.wait_for_sync(&stop).await?;

    let (cpu, began) = (cpu_time_of(server.id())?, env.clock.now());
    create(&client, args).await?;
    let all = async {
        loop {
            let changed = seen.1.notified();
            if seen.0.lock().len() == args.deployments as usize {
                return;
            }
            changed.await;
        }
    };
    if env.clock.timeout(Duration::from_secs(args.patience), all).await.is_err() {
        let count = seen.0.lock().len();
        return Err(format!(
            "after {} s, {count} of {} Deployments are available",
            args.patience, args.deployments
        )
        .into());
    }
    let seconds = (env.clock.now() - began).as_secs_f64();
    let cpu = cpu_time_of(server.id())?.saturating_sub(cpu).as_secs_f64();
    let memory = memory_of(server.id())?;
    stop.cancel();
    factory.join().await?;
    print(&Rollout {
        phase: "rollout",
        deployments: args.deployments,
        pods: args.pods,
        seconds: rounded(seconds, 3),
        cpu_s: rounded(cpu, 2),
        rss_mb: megabytes(memory.resident),
        peak_mb: megabytes(memory.peak),
    })?;
    Ok(())
}

async fn create(client: &Client, args: &ClusterArgs) -> Result<(), Failure> {
    let creates = stream::iter(0..args.deployments).map(|number| async move {
        let deployment: Deployment = serde_json::from_value(deployment(number, args.pods))?;
        client.api::<Deployment>().create(&deployment).await?;
        Ok::<(), Failure>(())
    });
    creates.buffer_unordered(args.at_once as usize).try_collect().await
}

fn deployment(number: u32, pods: u32) -> serde_json::Value {
    let name = format!("web-{number:05}");
    let labels = json!({ "app": name });
    let containers = json!([{"name": "main", "image": "nginx:1.27", "ports": [{"containerPort": 80}]}]);
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_selects_its_own_pods_alone() {
        let of = |number| serde_json::from_value::<Deployment>(deployment(number, 3)).unwrap().spec.unwrap();
        assert_eq!(of(1).replicas, Some(3));
        assert_eq!(of(1).selector.match_labels, of(1).template.metadata.unwrap().labels);
        assert_ne!(of(1).selector, of(2).selector);
    }
}
