//! Opens streams to an API server: TCP, through a proxy or not, and TLS.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderMap, Uri};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use kube_client::{Config, Error};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service, ServiceExt};

use super::super::user_agent::UserAgent;
use super::read_ahead::ReadAhead;
use crate::clock::Clock;

/// The idle time after which a connection is probed.
const IDLE: Duration = Duration::from_secs(15);
/// The interval of further probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// The number of unanswered probes after which a connection is closed.
const PROBES: u32 = 3;
/// The time after which a connection with unacknowledged data is closed.
#[cfg(target_os = "linux")]
const UNANSWERED: Duration = Duration::from_secs(45);

/// Both directions of a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A stream to the server; TLS is set up.
pub(crate) type Socket = Box<dyn Duplex>;

/// TLS, as it is to be set up on a new connection.
pub(crate) type Tls = Option<Arc<ClientConfig>>;

/// Opens streams to one server.
pub(super) struct Dialer {
    route: Arc<dyn Route>,
    /// The name in the server's certificate; `None` over plain HTTP.
    name: Option<ServerName<'static>>,
    timeout: Option<Duration>,
    clock: Clock,
}

/// The way to a server, without TLS. Tests have their own.
pub(crate) trait Route: Send + Sync + 'static {
    /// Opens a stream. `tls` is for a proxy.
    fn reach(&self, tls: &Tls) -> BoxFuture<'static, Result<Socket, BoxError>>;
}

/// The way over TCP, through a proxy if there is one.
struct Network {
    server: Uri,
    proxy: Option<Intercept>,
    agent: UserAgent,
}

/// The error of a connection that did not come about in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
struct TooSlow(Duration);

impl Dialer {
    pub(super) fn new(config: &Config, clock: &Clock, agent: &UserAgent) -> Result<Self, Error> {
        let server = with_port(&config.cluster_url);
        let proxy = config.proxy_url.as_ref().map(|url| proxy_of(url, &server)).transpose()?;
        Self::over(Arc::new(Network { server, proxy, agent: agent.clone() }), config, clock)
    }

    /// Returns a dialer of the server of `config`, which is reached by `route`.
    pub(super) fn over(route: Arc<dyn Route>, config: &Config, clock: &Clock) -> Result<Self, Error> {
        let is_secure = config.cluster_url.scheme_str() == Some("https");
        let name = match &config.tls_server_name {
            _ if !is_secure => None,
            Some(name) => {
                Some(ServerName::try_from(name.clone()).map_err(|error| Error::Service(error.into()))?)
            }
            None => Some(server_name(&config.cluster_url).map_err(Error::Service)?),
        };
        Ok(Self { route, name, timeout: config.connect_timeout, clock: clock.clone() })
    }

    /// Opens a stream, with `tls` if the server is secure. Cancel-safe.
    pub(super) fn dial(&self, tls: Tls) -> BoxFuture<'_, Result<Socket, BoxError>> {
        Box::pin(async move {
            let Some(timeout) = self.timeout else { return self.connect(tls).await };
            let late = |_| TooSlow(timeout);
            self.clock.timeout(timeout, self.connect(tls)).await.map_err(late)?
        })
    }

    async fn connect(&self, tls: Tls) -> Result<Socket, BoxError> {
        let stream = self.route.reach(&tls).await?;
        match &self.name {
            Some(name) => secure(stream, tls, name.clone()).await,
            None => Ok(stream),
        }
    }
}

impl Route for Network {
    fn reach(&self, tls: &Tls) -> BoxFuture<'static, Result<Socket, BoxError>> {
        let Some(proxy) = &self.proxy else { return through(tcp(), self.server.clone()) };
        match (proxy.uri().scheme_str(), proxy.raw_auth()) {
            (Some("socks5" | "socks5h"), auth) => {
                let socks = SocksV5::new(proxy.uri().clone(), tcp());
                let socks = match auth {
                    Some((user, password)) => socks.with_auth(user.into(), password.into()),
                    None => socks,
                };
                through(socks, self.server.clone())
            }
            (Some("https"), _) => {
                let tls = tls.clone();
                let secured = tower::service_fn(move |proxy| to_secure_proxy(tls.clone(), proxy));
                through(self.tunnel(proxy, secured), self.server.clone())
            }
            _ => through(self.tunnel(proxy, tcp()), self.server.clone()),
        }
    }
}

impl Network {
    /// Returns connections through `proxy`, to which each sends the current `User-Agent`.
    fn tunnel<C>(&self, proxy: &Intercept, connector: C) -> Tunnel<C> {
        let headers = HeaderMap::from_iter([(USER_AGENT, self.agent.value())]);
        let tunnel = Tunnel::new(proxy.uri().clone(), connector).with_headers(headers);
        match proxy.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        }
    }
}

/// Sets up TLS on `stream`.
async fn secure(stream: Socket, tls: Tls, name: ServerName<'static>) -> Result<Socket, BoxError> {
    let Some(config) = tls else { return Err("TLS is not set up".into()) };
    let stream = TlsConnector::from(config).connect(name, ReadAhead::new(stream)).await?;
    Ok(Box::new(stream))
}

/// Returns the stream that `connector` opens to `server`.
fn through<C>(connector: C, server: Uri) -> BoxFuture<'static, Result<Socket, BoxError>>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send> + Send + 'static,
    C::Response: Read + Write + Send + Unpin + 'static,
{
    Box::pin(async move {
        let stream = connector.oneshot(server).await.map_err(Into::into)?;
        Ok(Box::new(TokioIo::new(stream)) as Socket)
    })
}

/// Opens a stream to a proxy over TLS.
fn to_secure_proxy(tls: Tls, proxy: Uri) -> BoxFuture<'static, Result<TokioIo<Socket>, BoxError>> {
    Box::pin(async move {
        let (name, stream) = (server_name(&proxy)?, through(tcp(), proxy).await?);
        secure(stream, tls, name).await.map(TokioIo::new)
    })
}

/// Returns the name of the server of a URL, as its certificate has it.
fn server_name(url: &Uri) -> Result<ServerName<'static>, BoxError> {
    let host = url.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok(ServerName::try_from(bare.to_owned())?)
}

/// Returns the proxy at `url`, if its protocol is known.
fn proxy_of(url: &Uri, server: &Uri) -> Result<Intercept, Error> {
    let proxy = Matcher::builder().all(url.to_string()).build().intercept(server);
    let known =
        |proxy: &Intercept| matches!(proxy.uri().scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
    // The rest of the URL may contain a password.
    proxy.filter(known).ok_or_else(|| Error::ProxyProtocolUnsupported { proxy_url: Box::default() })
}

/// Returns `server` with its port, unless that is 443, which a client of a proxy uses as the default port.
fn with_port(server: &Uri) -> Uri {
    let is_plain = server.scheme_str() == Some("http") && server.port().is_none();
    let Some(authority) = server.authority().filter(|_| is_plain) else { return server.clone() };
    let (port, mut parts) = (format!("{authority}:80"), server.clone().into_parts());
    parts.authority = port.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| server.clone())
}

/// Returns connections on which a dead peer is noticed.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(IDLE));
    connector.set_keepalive_interval(Some(PROBE_EVERY));
    connector.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNANSWERED));
    connector
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::sockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_silent_connection_is_given_up_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stream = tcp().oneshot(address).await.unwrap();
        let socket = stream.inner();
        assert!(sockopt::socket_keepalive(socket).unwrap());
        let probed = sockopt::tcp_keepintvl(socket).unwrap() * sockopt::tcp_keepcnt(socket).unwrap();
        let minute = Duration::from_secs(60);
        assert!(sockopt::tcp_keepidle(socket).unwrap() + probed <= minute);
        let unanswered = sockopt::tcp_user_timeout(socket).unwrap();
        assert!(unanswered > 0 && Duration::from_millis(unanswered.into()) <= minute);
    }
}
