//! Connections to an API server, on which a dead peer is noticed within a minute even if they are idle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, Uri};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube_client::client::middleware::AuthLayer;
use kube_client::client::{AuthError, Body, ConfigExt};
use kube_client::{Client, Config, Error};
use tower::timeout::TimeoutLayer;
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::token_file::{noting, token_file, with_token};
use super::user_agent::UserAgent;
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

/// Returns a client whose connections, to the server or to its proxy, are kept alive. It retries nothing and does not
/// ask for compression.
///
/// kube's own client has no keep-alive: if a peer vanishes silently, a watch would wait for its whole timeout, and a
/// request for its deadline.
pub(super) fn connect(config: &Config, clock: &Clock, agent: &UserAgent) -> Result<Client, Error> {
    let Some(url) = &config.proxy_url else { return client_over(tcp(), config, clock, agent) };
    let mut config = config.clone();
    config.cluster_url = with_port(config.cluster_url);
    let proxy = Matcher::builder().all(url.to_string()).build().intercept(&config.cluster_url);
    match proxy.as_ref().map(|proxy| (proxy, proxy.uri().scheme_str())) {
        Some((proxy, Some("http"))) => client_over(tunnel(proxy, tcp(), agent), &config, clock, agent),
        Some((proxy, Some("https"))) => {
            let connector = config.rustls_https_connector_with_connector(tcp())?;
            client_over(tunnel(proxy, connector, agent), &config, clock, agent)
        }
        Some((proxy, Some("socks5" | "socks5h"))) => {
            let socks = SocksV5::new(proxy.uri().clone(), tcp());
            match proxy.raw_auth() {
                Some((user, password)) => {
                    client_over(socks.with_auth(user.into(), password.into()), &config, clock, agent)
                }
                None => client_over(socks, &config, clock, agent),
            }
        }
        // The rest of the URL may contain a password.
        _ => Err(Error::ProxyProtocolUnsupported { proxy_url: Box::default() }),
    }
}

/// Returns `server` with its port, unless that is 443, which a client of a proxy uses as the default port.
fn with_port(server: Uri) -> Uri {
    let is_plain = server.scheme_str() == Some("http") && server.port().is_none();
    let Some(authority) = server.authority().filter(|_| is_plain) else { return server };
    let (port, mut parts) = (format!("{authority}:80"), server.clone().into_parts());
    parts.authority = port.parse().ok();
    Uri::from_parts(parts).unwrap_or(server)
}

/// Returns connections through `proxy`; each sends it the current `User-Agent`.
fn tunnel<C>(
    proxy: &Intercept,
    connector: C,
    agent: &UserAgent,
) -> impl Service<Uri, Response = C::Response, Error: Into<BoxError>, Future: Send> + Clone + use<C>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
{
    let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
    if let Some(auth) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(auth.clone());
    }
    let agent = agent.clone();
    tower::service_fn(move |server| {
        let headers = HeaderMap::from_iter([(USER_AGENT, agent.value())]);
        tunnel.clone().with_headers(headers).oneshot(server)
    })
}

fn client_over<C>(connector: C, config: &Config, clock: &Clock, agent: &UserAgent) -> Result<Client, Error>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
{
    let connector = ServiceBuilder::new()
        .map_future(Box::pin)
        .option_layer(config.connect_timeout.map(TimeoutLayer::new))
        .service(config.rustls_https_connector_with_connector(connector)?);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let file = token_file(&config.auth_info);
    let refused = Arc::default();
    let from_file = file.map(|file| with_token(file, clock, &refused).map(MapRequestLayer::new)).transpose();
    let agent = agent.clone();
    let auth = if file.is_some() { Ok(None) } else { auth_layer(config) };
    let service = ServiceBuilder::new()
        .map_err(|error: BoxError| match error.downcast() {
            Ok(error) => without_output(*error).into(),
            Err(other) => other,
        })
        .layer(config.base_uri_layer())
        .option_layer(from_file.map_err(Error::Auth)?)
        .map_response(noting(refused))
        .option_layer(auth?)
        .layer(config.extra_headers_layer()?)
        .map_request(move |request| agent.sign(request))
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Returns kube's layer for credentials, which panics over a token that is not a valid header value.
fn auth_layer(config: &Config) -> Result<Option<AuthLayer>, Error> {
    let no_header =
        |_| Err(Error::Auth(AuthError::AuthExec("the token is what no header may hold".to_owned())));
    let layer = catch_unwind(AssertUnwindSafe(|| config.auth_layer())).unwrap_or_else(no_header);
    layer.map_err(|error| match error {
        Error::Auth(error) => Error::Auth(without_output(error)),
        other => other,
    })
}

/// Removes the output of a credential plugin from its error, as it may contain a secret even on failure.
fn without_output(error: AuthError) -> AuthError {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            AuthError::AuthExec(format!("the program failed: {}", out.status))
        }
        AuthError::AuthExecParse(_) => {
            AuthError::AuthExec("what the program printed is no ExecCredential".to_owned())
        }
        other => other,
    }
}

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
