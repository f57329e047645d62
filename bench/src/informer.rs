//! Cost of an informer: it syncs from a server of Pods and then applies its events.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, ValueEnum};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Config;
use kube_client::client::Body;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::process::ClientArgs;
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::ListMode;
use watchkeeper::{Client, Env, SharedInformerFactory};

use crate::measure::{Line, Phase};

/// Sync an informer from a server, then apply its events.
#[derive(Debug, Args)]
pub struct InformerArgs {
    /// URL of the server, such as http://127.0.0.1:8001
    #[arg(long, value_name = "URL", required_unless_present = "kubeconfig", conflicts_with = "kubeconfig")]
    server: Option<http::Uri>,
    /// Kubeconfig of the server
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Number of threads; with one, everything runs on the main thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Speak HTTP/2, by a prototype, instead of HTTP/1.1
    #[cfg(feature = "http2")]
    #[arg(long, requires = "kubeconfig")]
    http2: bool,
    /// Resource to list and watch
    #[arg(long, value_enum, default_value_t = Resource::Pods)]
    resource: Resource,
    /// Number of objects that the server has
    #[arg(long, value_name = "N")]
    objects: usize,
    /// Number of events after `GET URL/start`; 0 stops after the sync
    #[arg(long, value_name = "M", default_value_t = 0)]
    events: u64,
    /// How to read the initial state: in pages, or as a streamed list
    #[arg(long, value_enum, default_value_t = List::Stream)]
    list: List,
    /// Queue between watch and cache
    #[arg(long, value_enum, default_value_t = Queue::Ordered)]
    queue: Queue,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Resource {
    Pods,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum List {
    Paged,
    Stream,
}

impl From<List> for ListMode {
    fn from(list: List) -> Self {
        match list {
            List::Paged => Self::Paged,
            List::Stream => Self::Stream,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Queue {
    Ordered,
    Delta,
}

/// Why the benchmark failed.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A handler that counts notifications.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    count: AtomicU64,
    target: AtomicU64,
    reached: Notify,
}

impl Counter {
    pub(crate) fn tick(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.target.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// The number of notifications so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for `target` notifications.
    pub(crate) async fn until(&self, target: u64) {
        self.target.store(target, Ordering::Relaxed);
        while self.count() < target {
            self.reached.notified().await;
        }
    }
}

/// Runs the benchmark and prints a line for each phase.
pub fn run(args: &InformerArgs) -> Result<(), Failure> {
    let Resource::Pods = args.resource;
    let runtime = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads.into()).enable_all().build()?
        }
    };
    runtime.block_on(measure(args))
}

async fn connect(args: &InformerArgs, env: &Env) -> Result<Client, Failure> {
    #[cfg(feature = "http2")]
    if let Some(kubeconfig) = args.kubeconfig.as_ref().filter(|_| args.http2) {
        return Ok(Client::from_kube(crate::http2::connect(kubeconfig).await?, env));
    }
    Ok(match &args.server {
        Some(server) => Client::from_config(Config::new(server.clone()), env)?,
        None => {
            let flags = ClientArgs { kubeconfig: args.kubeconfig.clone(), ..ClientArgs::default() };
            flags.connect(env).await?
        }
    })
}

async fn measure(args: &InformerArgs) -> Result<(), Failure> {
    let env = Env::system();
    let client = connect(args, &env).await?;
    let queue = match args.queue {
        Queue::Ordered => QueueKind::Ordered,
        Queue::Delta => QueueKind::Delta,
    };
    let factory = SharedInformerFactory::builder(&client).queue(queue).list_mode(args.list.into()).build();
    let pods = factory.informer::<Pod>();
    let (initial, counter) = (Arc::new(AtomicU64::new(0)), Arc::new(Counter::default()));
    let (listed, changed) = (initial.clone(), counter.clone());
    let registration = pods.add_handler(on_change(move |change: Change<'_, Pod>| match change {
        Change::Added { in_initial_list: true, .. } => {
            listed.fetch_add(1, Ordering::Relaxed);
        }
        _ => changed.tick(),
    }))?;

    let stop = CancellationToken::new();
    let phase = Phase::start(&env.clock)?;
    factory.start(&stop);
    registration.wait_until_synced().await;
    let cost = phase.cost()?;
    let cached = pods.indexer().snapshot().len();
    if cached != args.objects || initial.load(Ordering::Relaxed) != args.objects as u64 {
        return Err(format!("the server was to have {} objects, the cache has {cached}", args.objects).into());
    }
    Line::sync(cached, &cost).print()?;

    if args.events > 0 {
        let phase = Phase::start(&env.clock)?;
        get(client.kube(), "/start").await?;
        counter.until(args.events).await;
        Line::watch(args.events, &phase.cost()?).print()?;
    }
    stop.cancel();
    factory.join().await?;
    Ok(())
}

/// Calls the benchmark server's own API, such as `/start`.
pub(crate) async fn get(client: &kube_client::Client, path: &str) -> Result<String, Failure> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if status.is_success() {
        Ok(String::from_utf8_lossy(&body).into_owned())
    } else {
        Err(format!("GET {path} was answered with {status}").into())
    }
}
