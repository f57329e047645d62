//! How are connections to an API server made? So that a dead peer is noticed within a minute, also where nothing is said for long.

use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_client::client::{Body, ConfigExt};
use kube_client::{Client, Config, Error};
use tower::ServiceBuilder;
use tower::timeout::TimeoutLayer;

/// A connection on which nothing comes is probed after this time...
const IDLE: Duration = Duration::from_secs(15);
/// ...this often...
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// ...and given up when so many probes, or...
const PROBES: u32 = 3;
/// ...anything sent were not acknowledged for this time.
#[cfg(target_os = "linux")]
const UNANSWERED: Duration = Duration::from_secs(45);

/// A client whose connections are kept alive. It retries nothing and asks for no compression.
///
/// kube's own client does without keep-alive: where a peer vanishes without a word, a watch would wait for its whole time-out, and a request for
/// its deadline. Through a proxy, whose connection is the one that would have to be kept alive, it is kube's client.
pub(super) fn client(config: Config) -> Result<Client, Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let connector = ServiceBuilder::new()
        .map_future(Box::pin)
        .option_layer(config.connect_timeout.map(TimeoutLayer::new))
        .service(config.rustls_https_connector_with_connector(tcp())?);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
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
    use tower::ServiceExt;

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
