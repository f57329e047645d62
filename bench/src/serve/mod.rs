//! A server that clients are measured against; its answers are prepared, so that the client is the bottleneck.

mod list;
mod manifests;
mod options;
mod pod;
mod service;
mod synthetic;
mod tls;
mod watch;
mod world;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use watchkeeper::clock::{Clock, Generator};

pub use manifests::ManifestError;
pub(crate) use pod::Version;
pub use service::{Body, Service};
pub(crate) use synthetic::small_pod;
pub use watch::{Pace, Sent};
pub use world::World;

/// What to serve.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Number of Pods.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(0..=5_000_000))]
    pub objects: u32,
    /// Number of events after `GET /start`.
    #[arg(long, default_value_t = 50_000)]
    pub events: u32,
    /// Port on 127.0.0.1; 0 selects a free one.
    #[arg(long, default_value_t = 8090)]
    pub port: u16,
    /// Seed of the Pods and events; the same seed gives the same bytes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Serve Pods of about 1,000 bytes, without managedFields, instead of realistic ones.
    #[arg(long, conflicts_with = "manifests")]
    pub small: bool,
    /// Use the Pods and Pod templates in the JSON and YAML files of this directory, repeated as needed.
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Refuse streamed lists (watches with sendInitialEvents=true), as an API server without support does.
    #[arg(long)]
    pub no_streaming: bool,
    /// Serve over TLS, and write a kubeconfig to this file.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The manifests cannot be used.
    #[error(transparent)]
    Manifests(#[from] ManifestError),
    /// The port is in use or not permitted.
    #[error("cannot listen on 127.0.0.1:{port}: {source}; --port 0 takes a free one")]
    Listen {
        /// The port asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// TLS cannot be set up, or its kubeconfig not be written.
    #[error("cannot serve over TLS: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The process lacks what any server needs.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] io::Error),
}

impl World {
    /// `objects` Pods and `events` events that follow from the generator's seed.
    pub fn synthetic(objects: u32, events: u32, generator: &Generator) -> Self {
        Self::new(synthetic::pods(objects, generator), events, generator)
    }

    /// `objects` Pods of about 1,000 bytes each, and `events` events.
    pub fn small(objects: u32, events: u32, generator: &Generator) -> Self {
        Self::new(synthetic::small_pods(objects, generator), events, generator)
    }

    /// `objects` Pods made of the manifests in `directory`, and `events` events.
    pub fn from_manifests(
        directory: &std::path::Path,
        objects: u32,
        events: u32,
        generator: &Generator,
    ) -> Result<Self, ManifestError> {
        Ok(Self::new(manifests::pods(directory, objects, generator)?, events, generator))
    }
}

/// Serves until it is interrupted; prints one line of JSON when it is ready.
pub fn run(args: &ServeArgs) -> Result<(), ServeError> {
    let generator = Generator::seeded(args.seed);
    let world = match &args.manifests {
        Some(directory) => World::from_manifests(directory, args.objects, args.events, &generator)?,
        None if args.small => World::small(args.objects, args.events, &generator),
        None => World::synthetic(args.objects, args.events, &generator),
    };
    // One thread: of two cores, the other one is the client's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let service = Service::new(world, Clock::system()).streaming(!args.no_streaming);
    runtime.block_on(serve(service, args))
}

async fn serve(service: Service, args: &ServeArgs) -> Result<(), ServeError> {
    let port = args.port;
    let listen = |source| ServeError::Listen { port, source };
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(listen)?;
    // From here on an interrupt ends the loop below: whoever reads the line may send one at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let address = listener.local_addr().map_err(listen)?;
    let tls = args.kubeconfig_out.as_ref().map(|file| tls::acceptor(address, file));
    let tls = tls.transpose().map_err(ServeError::Tls)?;
    let url = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
    let world = service.world();
    let json_mb = (world.json_bytes() as f64 / 1e5).round() / 10.0;
    println!(r#"{{"ready":true,"url":"{url}","objects":{},"json_mb":{json_mb}}}"#, world.len());
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        () = answer_over(listener, service, tls) => Ok(()),
    }
}

/// Answers on every connection, until it is dropped.
pub async fn answer(listener: TcpListener, service: Service) {
    answer_over(listener, service, None).await;
}

async fn answer_over(listener: TcpListener, service: Service, tls: Option<TlsAcceptor>) {
    let service = Arc::new(service);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            // A connection that failed before it was accepted is its client's business.
            accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                connections.spawn(connection(socket, service.clone(), tls.clone()));
            },
        }
    }
}

async fn connection(socket: TcpStream, service: Arc<Service>, tls: Option<TlsAcceptor>) {
    // Without it, the last lines of a burst wait for the client's acknowledgement. A socket that refuses still works.
    let _ = socket.set_nodelay(true);
    match tls {
        None => speak(socket, service).await,
        // A client that does not trust the certificate says so itself.
        Some(tls) => {
            if let Ok(stream) = tls.accept(socket).await {
                speak(stream, service).await;
            }
        }
    }
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin>(socket: S, service: Arc<Service>) {
    let answer = service_fn(async |request| Ok::<_, std::convert::Infallible>(service.handle(&request)));
    // A client that goes away in the middle of a body is how most watches end: there is nobody to tell.
    let _ =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), answer).await;
}
