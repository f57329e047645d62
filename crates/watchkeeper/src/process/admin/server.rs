//! The HTTP server of the admin pages, whose connections end with it.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::future::{join, join_all};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::AdminAddress;
use super::access::Access;
use super::actions::{self, Actions};
use super::certificate::Certificate;
use super::page::{Body, Page, whole};
use super::pages::{Pages, answer, is_for_machines, is_public, text};
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
/// The name of a user where nobody is asked for one.
const LOCAL: &str = "local";
/// The first byte of a TLS connection: the type of a record of its handshake.
const HANDSHAKE: u8 = 22;

/// The reason why the admin pages are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is not available.
    #[error(
        "cannot serve the admin pages at {address}: choose another --metrics-bind-address or \
         --health-probe-bind-address, or 0"
    )]
    Bind {
        /// The address of the pages.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// There is no usable certificate for TLS.
    #[error("cannot serve the metrics over TLS: check --metrics-cert-path, or use --metrics-secure=false")]
    Certificate(#[source] Box<dyn Error + Send + Sync>),
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
    doors: Vec<Door>,
    env: Env,
}

/// An address with what is served there.
struct Door {
    listener: TcpListener,
    desk: Arc<Desk>,
}

/// What answers the requests of one address.
struct Desk {
    pages: Pages,
    page: Option<Arc<Page>>,
    security: Option<Security>,
    /// Whether only programs on this host, and browsers that run there, can reach the address.
    is_local: bool,
    actions: Actions,
    env: Env,
}

/// TLS, and who may read the pages.
pub(super) struct Security {
    pub(super) certificate: Certificate,
    pub(super) access: Access,
}

impl AdminServer {
    /// Listens at `address`, over plain HTTP and for everybody; clients wait until [`AdminServer::run`].
    /// [`AdminArgs::bind`](super::AdminArgs::bind) protects the pages.
    pub async fn bind(address: AdminAddress, pages: Pages, env: &Env) -> Result<Self, AdminError> {
        let mut server = Self { doors: Vec::new(), env: env.clone() };
        server.open(address, pages, None).await?;
        Ok(server)
    }

    /// Listens at one more address.
    pub(super) async fn open(
        &mut self,
        address: AdminAddress,
        pages: Pages,
        security: Option<Security>,
    ) -> Result<(), AdminError> {
        if let AdminAddress::At(address) = address {
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|source| AdminError::Bind { address, source })?;
            let actions = Actions::at(address, &pages, security.is_some());
            let source = pages.explain.clone();
            let page = source.map(|source| Page::new(source, actions != Actions::Off, &self.env));
            let is_local = security.is_none() && address.ip().to_canonical().is_loopback();
            let desk = Arc::new(Desk { pages, page, security, is_local, actions, env: self.env.clone() });
            self.doors.push(Door { listener, desk });
        }
        Ok(())
    }

    /// Returns the address, the one of the metrics if there are two; none if the pages are disabled.
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses().next()
    }

    /// Returns all addresses: that of the metrics, and that of the probes if they have their own.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.doors.iter().filter_map(|door| door.listener.local_addr().ok())
    }

    /// Serves until `stop`, and returns when every connection has ended. Dropping the future closes them.
    pub async fn run(self, stop: CancellationToken) {
        let pages: Vec<_> = self.doors.iter().filter_map(|door| door.desk.page.clone()).collect();
        let sampled = stop.run_until_cancelled(join_all(pages.iter().map(|page| page.sample())));
        join(sampled, join_all(self.doors.into_iter().map(|door| door.run(&stop)))).await;
        stop.cancelled().await;
    }
}

impl Door {
    async fn run(self, stop: &CancellationToken) {
        let Self { listener, desk } = self;
        let env = &desk.env;
        let mut connections = Connections::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_ended) = connections.tasks.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => connections.open(|turn| serve(stream, desk.clone(), stop.clone(), turn)),
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

/// Numbers requests, and what is sent on streams: the higher the number, the later the last one of this connection.
#[derive(Clone)]
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

/// Serves one connection.
async fn serve(stream: TcpStream, desk: Arc<Desk>, stop: CancellationToken, turn: Turn) {
    let clock = &desk.env.clock;
    let Some(security) = &desk.security else {
        let stream = Unstalled::new(stream, clock.clone(), PATIENCE);
        return speak(stream, Some(&desk), &stop, &turn).await;
    };
    let handshake = async {
        let mut first = [0];
        stream.peek(&mut first).await?;
        let is_tls = first == [HANDSHAKE];
        let stream = Unstalled::new(stream, clock.clone(), PATIENCE);
        if is_tls {
            TlsAcceptor::from(security.certificate.config()).accept(stream).await.map(Ok)
        } else {
            Ok(Err(stream))
        }
    };
    match stop.run_until_cancelled(clock.timeout(PATIENCE, handshake)).await {
        Some(Ok(Ok(Ok(stream)))) => speak(stream, Some(&desk), &stop, &turn).await,
        Some(Ok(Ok(Err(plain)))) => speak(plain, None, &stop, &turn).await,
        Some(Ok(Err(error))) => tracing::debug!(%error, "a connection to the admin pages failed"),
        Some(Err(_)) => tracing::debug!("a connection to the admin pages did not begin in time"),
        None => {}
    }
}

/// The answer to plain HTTP where TLS is spoken.
fn plain() -> Response<Body> {
    let mut answer = text(StatusCode::BAD_REQUEST, "this port speaks HTTPS only\n".to_owned());
    answer.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    whole(answer)
}

/// Answers the requests of one connection until it ends or the stop; without a desk, it was to be TLS.
async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    desk: Option<&Desk>,
    stop: &CancellationToken,
    turn: &Turn,
) {
    let service = service_fn(|request: Request<Incoming>| {
        turn.take();
        async move {
            Ok::<_, Infallible>(match desk {
                Some(desk) => desk.answer(&request, stop, turn).await,
                None => plain(),
            })
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_header_size(HEAD_LIMIT);
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

impl Desk {
    /// Returns the page that is asked for, if the client may read it.
    async fn answer(
        &self,
        request: &Request<Incoming>,
        stop: &CancellationToken,
        turn: &Turn,
    ) -> Response<Body> {
        let uri = request.uri();
        let verb = if request.method() == Method::POST { "post" } else { "get" };
        let mut user = LOCAL.to_owned();
        if let Some(security) = self.security.as_ref().filter(|_| !is_public(uri.path())) {
            match security.access.check(request.headers(), verb, uri.path()).await {
                Ok(name) => user = name,
                Err(refusal) => return whole(refusal.answer()),
            }
        }
        let is_guarded = self.is_local && self.pages.explain.is_some() && !is_for_machines(uri.path());
        if is_guarded && !actions::names_loopback(request.headers()) {
            let text_of =
                "the Host of this request is not a loopback address: ask for localhost or 127.0.0.1\n";
            return whole(text(StatusCode::FORBIDDEN, text_of.to_owned()));
        }
        // A collector may be user code.
        let made = self.env.reporter.guard("admin", uri.path(), || {
            self.done(request, &user)
                .or_else(|| self.shown(request, stop, turn))
                .unwrap_or_else(|| whole(answer(&self.pages, request.method(), uri.path(), uri.query())))
        });
        made.unwrap_or_else(|| {
            whole(text(StatusCode::INTERNAL_SERVER_ERROR, "this page cannot be made\n".to_owned()))
        })
    }

    /// Does what is asked for in the name of `user`, if it is something to be done.
    fn done(&self, request: &Request<Incoming>, user: &str) -> Option<Response<Body>> {
        let source = self.pages.explain.as_ref().filter(|_| request.method() == Method::POST)?;
        let uri = request.uri();
        let controller = actions::controller(uri.path())?;
        let asked = (controller.as_str(), uri.query().unwrap_or_default());
        Some(whole(actions::reconcile(&**source, asked, request.headers(), self.actions, user)))
    }

    /// Returns a view of the page for people, if it is asked for.
    fn shown(
        &self,
        request: &Request<Incoming>,
        stop: &CancellationToken,
        turn: &Turn,
    ) -> Option<Response<Body>> {
        let turn = turn.clone();
        self.page.as_ref()?.answer(request, stop, move || turn.take())
    }
}
