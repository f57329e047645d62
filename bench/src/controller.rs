//! Reconciles that change nothing, through our `Controller` and on controller-runtime: CPU time, requests and memory.

mod operator;
mod process;
// The operator of the tests; children.go of the controller-runtime peer has the same children.
#[path = "../../crates/watchkeeper-test/tests/operator/kind.rs"]
mod website;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde_json::json;
use watchkeeper::kube_core::CustomResourceExt;
use watchkeeper::kube_core::params::Patch;
use watchkeeper::{Client, Env, ObjectName};
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening};

use crate::informer::Failure;
use crate::measure::{megabytes, print, rounded};
use crate::requests::counters;
pub use operator::{OperatorArgs, run as operate};
use process::{Operator, Side};
use website::{Website, WebsiteSpec};

/// Measure reconciles that change nothing.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The operator on controller-runtime to measure beside ours: the program of that name that reference/build prints
    #[arg(long, value_name = "FILE")]
    controller_runtime: Option<PathBuf>,
    /// Number of Websites, each with a Deployment, a Service and a ConfigMap
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    websites: u32,
    /// How often each Website is reconciled
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How often each is reconciled before
    #[arg(long, value_name = "N", default_value_t = 2)]
    warm_up: u32,
    /// Number of Websites to reconcile at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Number of Websites whose memory is measured; 0 for none
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    many: u32,
    /// Idle time before memory is read, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    idle: u64,
    /// How often everything is measured, one side after the other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// What makes a Website be reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Trigger {
    /// A change of an annotation, which the operator's watch shows.
    Event,
    /// The operator itself, which adds the key to its queue.
    Queue,
}

/// What a reconcile does about its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Children {
    /// Finds that nothing has changed.
    Skipped,
    /// Applies all of them.
    Applied,
}

#[derive(Clone, Debug, Serialize)]
struct Reconciles {
    phase: &'static str,
    side: &'static str,
    children: Children,
    trigger: Trigger,
    /// How it knows that nothing has changed.
    skip: &'static str,
    websites: u32,
    workers: u32,
    reconciles: u64,
    /// User and kernel, of all threads.
    cpu_us_per_reconcile: f64,
    requests_per_reconcile: f64,
    wall_s: f64,
}

#[derive(Debug, Serialize)]
struct Weight {
    phase: &'static str,
    side: &'static str,
    websites: u32,
    /// In its caches.
    objects: u32,
    rss_mb: f64,
    peak_mb: f64,
    /// From the start until everything is reconciled once.
    cpu_s: f64,
}

/// Our cost divided by theirs, of the medians.
#[derive(Debug, Serialize)]
struct Ratio {
    phase: &'static str,
    children: Children,
    trigger: Trigger,
    ours_us: f64,
    theirs_us: f64,
    ratio: f64,
}

const MEASURED: [(Children, Trigger); 3] = [
    (Children::Skipped, Trigger::Event),
    (Children::Skipped, Trigger::Queue),
    (Children::Applied, Trigger::Event),
];

/// Runs the benchmark and prints its lines.
pub fn run(args: &ControllerArgs) -> Result<(), Failure> {
    tokio::runtime::Runtime::new()?.block_on(measure(args))
}

async fn measure(args: &ControllerArgs) -> Result<(), Failure> {
    let sides: Vec<_> =
        [Side::Ours].into_iter().chain(args.controller_runtime.clone().map(Side::Theirs)).collect();
    let mut lines = Vec::new();
    for _ in 0..args.runs {
        for (children, trigger) in MEASURED {
            for side in &sides {
                let line = reconcile(args, side, children, trigger).await?;
                print(&line)?;
                lines.push(line);
            }
        }
    }
    for (children, trigger) in MEASURED {
        if let Some(ratio) = Ratio::of(&lines, children, trigger) {
            print(&ratio)?;
        }
    }
    for side in sides.iter().filter(|_| args.many > 0) {
        print(&weigh(args, side).await?)?;
    }
    Ok(())
}

/// Measures the reconciles of one side, on a server of their own.
async fn reconcile(
    args: &ControllerArgs,
    side: &Side,
    children: Children,
    trigger: Trigger,
) -> Result<Reconciles, Failure> {
    let cluster = Cluster::start(args.websites).await?;
    let always = children == Children::Applied;
    let (server, clock) = (cluster.listening.url(), &cluster.env.clock);
    let mut operator = Operator::start(side, &server, args.workers as usize, always, clock)?;
    let mut ended = operator.settle(args.websites.into()).await?;
    for round in 0..args.warm_up {
        cluster.trigger(trigger, &mut operator, round).await?;
        ended += u64::from(args.websites);
        operator.wait_for(ended).await?;
    }
    let (cpu, requests, started) = (operator.cpu()?, cluster.requests().await?, clock.now());
    for round in args.warm_up..args.warm_up + args.rounds {
        cluster.trigger(trigger, &mut operator, round).await?;
        ended += u64::from(args.websites);
        operator.wait_for(ended).await?;
    }
    let (cpu, wall) = (operator.cpu()?.saturating_sub(cpu), clock.now() - started);
    let requests = cluster.requests().await? - requests;
    let settled = operator.settle(ended).await?;
    if settled != ended {
        return Err(format!("{} reconciles more than were triggered", settled - ended).into());
    }
    let reconciles = u64::from(args.websites) * u64::from(args.rounds);
    let per_reconcile = |whole: f64, digits| rounded(whole / reconciles as f64, digits);
    Ok(Reconciles {
        phase: "reconcile",
        side: side.name(),
        children,
        trigger,
        skip: if always { "nothing" } else { side.skip() },
        websites: args.websites,
        workers: args.workers,
        reconciles,
        cpu_us_per_reconcile: per_reconcile(cpu.as_secs_f64() * 1e6, 2),
        requests_per_reconcile: per_reconcile(requests as f64, 4),
        wall_s: rounded(wall.as_secs_f64(), 3),
    })
}

/// Weighs an operator that was started when everything was there, and has reconciled everything twice.
async fn weigh(args: &ControllerArgs, side: &Side) -> Result<Weight, Failure> {
    let cluster = Cluster::start(args.many).await?;
    let (server, clock) = (cluster.listening.url(), &cluster.env.clock);
    let start = || Operator::start(side, &server, args.workers as usize, false, clock);
    start()?.settle(args.many.into()).await?;
    let mut operator = start()?;
    let ended = operator.settle(args.many.into()).await?;
    let cpu = operator.cpu()?;
    cluster.trigger(Trigger::Queue, &mut operator, 0).await?;
    operator.settle(ended + u64::from(args.many)).await?;
    clock.sleep(Duration::from_millis(args.idle)).await;
    let memory = operator.memory()?;
    Ok(Weight {
        phase: "memory",
        side: side.name(),
        websites: args.many,
        objects: args.many * 4,
        rss_mb: megabytes(memory.resident),
        peak_mb: megabytes(memory.peak),
        cpu_s: rounded(cpu.as_secs_f64(), 3),
    })
}

impl Ratio {
    fn of(lines: &[Reconciles], children: Children, trigger: Trigger) -> Option<Self> {
        let median = |side: &Side| {
            let of_side = lines.iter().filter(|line| {
                line.side == side.name() && line.children == children && line.trigger == trigger
            });
            let mut costs: Vec<_> = of_side.map(|line| line.cpu_us_per_reconcile).collect();
            costs.sort_by(f64::total_cmp);
            costs.get(costs.len() / 2).copied()
        };
        let (ours_us, theirs_us) = (median(&Side::Ours)?, median(&Side::Theirs(PathBuf::new()))?);
        let ratio = rounded(ours_us / theirs_us, 3);
        Some(Self { phase: "ratio", children, trigger, ours_us, theirs_us, ratio })
    }
}

/// An embedded server with Websites, reached over loopback by operators and in process by the benchmark.
struct Cluster {
    env: Env,
    client: Client,
    listening: Listening,
    names: Vec<String>,
}

const NAMESPACE: &str = "default";

impl Cluster {
    async fn start(websites: u32) -> Result<Self, Failure> {
        let env = Env::system();
        let server = ApiServer::new(&env);
        let options = ListenOptions { insecure_http: true, ..ListenOptions::default() };
        let listening = server.listen(options).await?;
        let client = Client::from_kube(server.client(), &env);
        client.api::<CustomResourceDefinition>().create(&Website::crd()).await?;
        let names: Vec<_> = (0..websites).map(|number| format!("site-{number:06}")).collect();
        let creates = stream::iter(&names).map(|name| {
            let spec = WebsiteSpec {
                image: "registry.example.dev/site:1.2.3".to_owned(),
                replicas: 2,
                secret: format!("{name}-environment"),
            };
            let mut site = Website::new(name, spec);
            site.metadata.namespace = Some(NAMESPACE.to_owned());
            let api = client.api::<Website>();
            async move { api.create(&site).await.map(drop) }
        });
        creates.buffer_unordered(16).try_collect::<()>().await?;
        Ok(Self { env, client, listening, names })
    }

    /// Makes every Website be reconciled once.
    async fn trigger(&self, trigger: Trigger, operator: &mut Operator, round: u32) -> Result<(), Failure> {
        if trigger == Trigger::Queue {
            let keys: Vec<_> = self.names.iter().map(|name| format!("{NAMESPACE}/{name}")).collect();
            return operator.enqueue(&keys);
        }
        let patch = json!({"metadata": {"annotations": {"example.dev/round": round.to_string()}}});
        for name in &self.names {
            let key = ObjectName::namespaced(NAMESPACE, name);
            self.client.api::<Website>().patch(&key, &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    /// The requests that the server has answered, but for those of [`trigger`](Self::trigger).
    async fn requests(&self) -> Result<u64, Failure> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let text = self.client.kube().request_text(request).await?;
        let is_ours = |resource, verb, subresource: &str| {
            (resource, verb) == ("websites", "PATCH") && subresource.is_empty()
        };
        let others = counters(&text).filter(|counter| {
            !is_ours(counter.label("resource"), counter.label("verb"), counter.label("subresource"))
        });
        Ok(others.map(|counter| counter.count).sum())
    }
}
