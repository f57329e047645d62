//! The HTTP server of the admin pages, whose connections end with it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
#[cfg(feature = "prometheus")]
use prometheus_client::encoding::text::encode;
#[cfg(feature = "prometheus")]
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::AdminAddress;
use super::checks::Checks;
use crate::env::Env;
use crate::process::Unstalled;

/// The maximum number of connections. One more closes the one whose last request is the oldest, so that a probe is
/// always answered.
const CONNECTIONS: usize = 64;
/// The time that a client has to send a request, and to accept any part of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size of the head of a request.
const HEAD_LIMIT: usize = 16 * 1024;
/// The time that connections have to finish after the stop.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
#[cfg(feature = "prometheus")]
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The page with metrics, if it is enabled.
const METRICS_INDEX: &str = if cfg!(feature = "prometheus") { "/metrics\n" } else { "" };
const CHECKS_INDEX: &str =
    "/healthz  /healthz/NAME  ?verbose  ?exclude=NAME\n/readyz   /readyz/NAME   ?verbose  ?exclude=NAME\n";

/// The contents of the admin pages.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Pages {
    /// `/metrics`, in the text format of OpenMetrics. Needs feature `prometheus`.
    #[cfg(feature = "prometheus")]
    pub metrics: Registry,
    /// `/healthz`: a program that fails these checks should be restarted.
    pub live: Checks,
    /// `/readyz`: a program that fails these checks should get no traffic.
    pub ready: Checks,
}

/// The reason why the admin pages are not served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve the admin pages at {address}: choose another --admin-address, or off")]
pub struct AdminError {
    /// The address of the pages.
    pub address: SocketAddr,
    /// The reason.
    #[source]
    pub source: io::Error,
}

/// Serves the admin pages.
///
/// ```
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::Env;
/// use watchkeeper::process::{AdminAddress, AdminServer, Pages};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pages = Pages::default();
/// pages.ready.gate("caches").open();
/// let server = AdminServer::bind(AdminAddress::At("127.0.0.1:0".parse()?), pages, &Env::system()).await?;
/// println!("serving http://{}/readyz", server.address().unwrap());
/// let stop = CancellationToken::new();
/// stop.cancel();
/// server.run(stop).await;
/// # Ok(()) }
/// ```
pub struct AdminServer {
    listener: Option<TcpListener>,
    pages: Arc<Pages>,
    env: Env,
}

impl AdminServer {
    /// Listens at `address`; clients wait until [`AdminServer::run`].
    pub async fn bind(address: AdminAddress, pages: Pages, env: &Env) -> Result<Self, AdminError> {
        let listener = match address {
            AdminAddress::Off => None,
            AdminAddress::At(address) => {
                Some(TcpListener::bind(address).await.map_err(|source| AdminError { address, source })?)
            }
        };
        Ok(Self { listener, pages: Arc::new(pages), env: env.clone() })
    }

    /// Returns the address, unless the pages are disabled.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Serves until `stop`, and returns when every connection has ended. Dropping the future closes them.
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, pages, env } = self;
        let Some(listener) = listener else { return stop.cancelled().await };
        let mut connections = Connections::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_ended) = connections.tasks.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => connections.open(|turn| serve(stream, pages.clone(), env.clone(), stop.clone(), turn)),
                    Err(error) => {
                        // Usually too many open files: a pause lets some connections end.
                        env.reporter.error("admin", "accept", &error);
                        env.clock.sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        let Connections { mut tasks, .. } = connections;
        let finished = async { while tasks.join_next().await.is_some() {} };
        if env.clock.timeout(LAST_PATIENCE, finished).await.is_err() {
            tasks.shutdown().await;
        }
    }
}

/// The open connections, with the turn of the last request of each.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: Vec<(Arc<AtomicU64>, AbortHandle)>,
    turns: Arc<AtomicU64>,
}

/// Numbers requests: the higher the number, the later the last one of this connection.
struct Turn {
    last: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
}

impl Turn {
    fn take(&self) {
        self.last.store(self.turns.fetch_add(1, Relaxed), Relaxed);
    }
}

impl Connections {
    /// Serves one more connection, replacing another if there are too many.
    fn open<F: Future<Output = ()> + Send + 'static>(&mut self, serve: impl FnOnce(Turn) -> F) {
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= CONNECTIONS
            && let Some(oldest) = (0..self.open.len()).min_by_key(|at| self.open[*at].0.load(Relaxed))
        {
            self.open.swap_remove(oldest).1.abort();
        }
        let turn = Turn { last: Arc::default(), turns: self.turns.clone() };
        turn.take();
        let last = turn.last.clone();
        self.open.push((last, self.tasks.spawn(serve(turn))));
    }
}

impl fmt::Debug for AdminServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

async fn serve(stream: TcpStream, pages: Arc<Pages>, env: Env, stop: CancellationToken, turn: Turn) {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        turn.take();
        let uri = request.uri();
        // A collector may be user code.
        let answer = env
            .reporter
            .guard("admin", uri.path(), || answer(&pages, request.method(), uri.path(), uri.query()));
        let failed = || text(StatusCode::INTERNAL_SERVER_ERROR, "this page cannot be made\n".to_owned());
        std::future::ready(Ok::<_, Infallible>(answer.unwrap_or_else(failed)))
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_header_size(HEAD_LIMIT);
    let stream = Unstalled::new(stream, env.clock.clone(), PATIENCE);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the admin pages ended");
    }
}

fn answer(pages: &Pages, method: &Method, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, http::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let query = query.unwrap_or_default();
    // A request may name a host instead of a path.
    let path = path.strip_prefix('/').unwrap_or(path);
    let (page, name) = match path.split_once('/') {
        Some((page, name)) => (page, Some(name).filter(|name| !name.is_empty())),
        None => (path, None),
    };
    match (page, name) {
        ("", None) => text(StatusCode::OK, index()),
        #[cfg(feature = "prometheus")]
        ("metrics", None) => metrics(pages),
        ("healthz", name) => checked(pages.live.answer(page, name, query)),
        ("readyz", name) => checked(pages.ready.answer(page, name, query)),
        _ => text(StatusCode::NOT_FOUND, format!("there is no such page; these are:\n{}", index())),
    }
}

fn index() -> String {
    format!("{METRICS_INDEX}{CHECKS_INDEX}")
}

#[cfg(feature = "prometheus")]
fn metrics(pages: &Pages) -> Response<Full<Bytes>> {
    let mut body = String::new();
    match encode(&mut body, &pages.metrics) {
        Ok(()) => respond(StatusCode::OK, OPEN_METRICS, body),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be collected\n".to_owned()),
    }
}

fn checked((status, body): (StatusCode, String)) -> Response<Full<Bytes>> {
    text(status, body)
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, TEXT, body)
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
