//! The listener: HTTP/1.1 on a socket, with TLS and a bearer token.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::layer::util::Identity;
use tower::{Layer, Service, ServiceExt};
use watchkeeper::clock::Clock;
use watchkeeper::process::Unstalled;

use crate::access::authenticate::Authenticator;
use crate::http::reply::{self, ReplyBody};
use crate::http::shared::Shared;
use crate::listen::credentials::{Credentials, CredentialsError, insecure_kubeconfig};
use crate::listen::reset::Resettable;
use crate::server::{ApiServer, ApiService};

/// The timeout of a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// The timeout for the head of a request. It also closes idle connections.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// The maximum size of a request head including the URL, and the maximum number of headers. Larger heads are answered
/// with 431.
const HEAD_LIMIT: usize = 64 * 1024;
const HEADERS_LIMIT: usize = 100;

/// The time after which a connection whose client reads nothing is closed. A stalled watch holds a connection and the
/// snapshot it started with.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// The time that connections have to finish after a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Where and how to listen.
///
/// The default is a free port of 127.0.0.1, with TLS and new credentials.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// The address; port 0 picks a free port.
    pub address: SocketAddr,
    /// The CA and token to use; new ones are generated if none are given.
    pub credentials: Option<Credentials>,
    /// Serve plain HTTP without a token. Refused unless the address is a loopback address. To protect against web
    /// pages, the server then refuses requests with other hosts than loopback names, cross-origin requests, and a POST
    /// whose body has no `Content-Type`.
    pub insecure_http: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            credentials: None,
            insecure_http: false,
        }
    }
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Plain HTTP was requested on an address that is not loopback.
    #[error("plain HTTP is only served on a loopback address, not on {0}: unset `insecure_http`")]
    NotLoopback(SocketAddr),
    /// The address could not be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The credentials could not be created.
    #[error("cannot create the server's credentials")]
    Credentials(#[from] CredentialsError),
}

/// A listening server. Call [`Listening::stop`] for a graceful shutdown; dropping it closes the socket and all
/// connections.
pub struct Listening {
    address: SocketAddr,
    credentials: Option<Credentials>,
    stop: CancellationToken,
    acceptor: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Listens on a socket. Clients share their state with those of [`ApiServer::client`].
    ///
    /// After [`Listening::stop`] the server can listen again on the same address, with the same credentials.
    pub async fn listen(&self, options: ListenOptions) -> Result<Listening, ServeError> {
        self.listen_with(options, &Identity::new(), false).await
    }

    /// Listens as [`listen`](Self::listen) does, with `layer` between the socket and the server.
    ///
    /// The layer gets the requests that have passed access control. When its service, or the body of one of its
    /// responses, returns an error, the connection is reset.
    ///
    /// ```
    /// use http::Request;
    /// use hyper::body::Incoming;
    /// use tower::Service;
    /// use tower::layer::layer_fn;
    /// use watchkeeper::Env;
    /// use watchkeeper_apiserver::{ApiServer, ApiService, ListenOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let logged = layer_fn(|server: ApiService| {
    ///     tower::service_fn(move |request: Request<Incoming>| {
    ///         println!("{}", request.uri());
    ///         server.clone().call(request)
    ///     })
    /// });
    /// let listening = ApiServer::new(&Env::system()).listen_through(ListenOptions::default(), &logged).await?;
    /// listening.stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn listen_through<L, B>(
        &self,
        options: ListenOptions,
        layer: &L,
    ) -> Result<Listening, ServeError>
    where
        L: Layer<ApiService>,
        L::Service: Service<Request<Incoming>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
            + Clone
            + Send
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.listen_with(options, layer, true).await
    }

    async fn listen_with<L, B>(
        &self,
        options: ListenOptions,
        layer: &L,
        resets: bool,
    ) -> Result<Listening, ServeError>
    where
        L: Layer<ApiService>,
        L::Service: Service<Request<Incoming>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
            + Clone
            + Send
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let ListenOptions { address, credentials, insecure_http } = options;
        if insecure_http && !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(address));
        }
        let credentials = match (insecure_http, credentials) {
            (true, _) => None,
            (false, Some(credentials)) => Some(credentials),
            (false, None) => Some(Credentials::generate()?),
        };
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let tls = match &credentials {
            Some(credentials) => {
                Some(TlsAcceptor::from(credentials.server_config(address.ip(), &self.shared.clock)?))
            }
            None => None,
        };
        if let Some(credentials) = &credentials {
            self.shared.tokens.trust(credentials.token());
        }
        self.shared.run(|core| core.publish_address(reachable(address)));
        let stop = CancellationToken::new();
        let server = Server {
            service: layer.layer(self.service_until(&stop)),
            clock: self.shared.clock.clone(),
            shared: self.shared.clone(),
            credentials: credentials.clone(),
            stop: stop.clone(),
            resets,
        };
        let acceptor = tokio::spawn(server.accept(listener, tls));
        Ok(Listening { address, credentials, stop, acceptor: Some(acceptor) })
    }
}

impl Listening {
    /// The address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.credentials.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", reachable(self.address))
    }

    /// The credentials in use; `None` with `insecure_http`.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// A kubeconfig for this server, with its CA and token. It is as secret as the token. Its only context is
    /// `watchkeeper`.
    pub fn kubeconfig(&self) -> String {
        match &self.credentials {
            Some(credentials) => credentials.kubeconfig(&self.url()),
            None => insecure_kubeconfig(&self.url()),
        }
    }

    /// Shuts down gracefully: ends watches, finishes requests and joins every task.
    ///
    /// If the future is dropped before it completes, connections are closed without finishing their requests.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(acceptor) = self.acceptor.take() {
            // An error is a panic of the accept loop, which has been reported already.
            let _joined = acceptor.await;
        }
    }
}

/// The address at which clients on this machine reach a socket.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.abort();
        }
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("url", &self.url()).finish_non_exhaustive()
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
struct Server<S> {
    service: S,
    clock: Clock,
    shared: Arc<Shared>,
    credentials: Option<Credentials>,
    stop: CancellationToken,
    /// A connection that fails is reset, not closed.
    resets: bool,
}

impl<S, B> Server<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    async fn accept(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(_ended) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        // Watch events are small and must not be delayed.
                        let _best_effort = stream.set_nodelay(true);
                        connections.spawn(self.clone().connection(stream, tls.clone()));
                    }
                    Err(error) => {
                        // Usually too many open files: wait for some to be closed.
                        tracing::warn!(%error, "cannot accept a connection");
                        self.clock.sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        let finished = async { while connections.join_next().await.is_some() {} };
        if self.clock.timeout(STOP_PATIENCE, finished).await.is_err() {
            connections.shutdown().await;
        }
    }

    async fn connection(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let stream = Resettable::new(stream, self.resets);
        let stream = Unstalled::new(stream, self.clock.clone(), WRITE_PATIENCE);
        let Some(tls) = tls else { return self.serve(stream).await };
        let handshake = self.clock.timeout(HANDSHAKE_PATIENCE, tls.accept(stream));
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            secured = handshake => match secured {
                Ok(Ok(stream)) => self.serve(stream).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_elapsed) => tracing::debug!("TLS handshake timed out"),
            },
        }
    }

    async fn serve<T>(self, stream: T)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stop = self.stop.clone();
        // Boxed, so that an idle connection does not hold the space of a request.
        let service = service_fn(move |request| Box::pin(self.clone().answer(request)));
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
        http.max_header_size(HEAD_LIMIT).max_headers(HEADERS_LIMIT);
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
            tracing::debug!(%error, "connection ended");
        }
    }

    async fn answer(
        self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Either<ReplyBody, B>>, BoxError> {
        match self.authenticator().user_of(&request) {
            Ok(Some(caller)) => drop(request.extensions_mut().insert(caller)),
            Ok(None) => {}
            Err(failure) => return Ok(reply::failure(&failure).map(Either::Left)),
        }
        let response = self.service.oneshot(request).await.map_err(Into::into)?;
        Ok(response.map(Either::Right))
    }

    fn authenticator(&self) -> Authenticator<'_> {
        let Shared { tokens, authorizer, core, .. } = &*self.shared;
        let token = self.credentials.as_ref().map(Credentials::token);
        Authenticator { token, tokens, authorizer, core }
    }
}
