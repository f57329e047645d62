//! Connections to an API server, on which a dead peer is noticed within a minute even if they are idle.
//!
//! kube's own client has no keep-alive: if a peer vanishes silently, a watch would wait for its whole timeout, and a
//! request for its deadline. It also drives each connection in a task of its own, so every piece of an answer would
//! pass from one task to another, and often to another thread.

mod dial;
mod pool;
mod read_ahead;
mod signed;

use std::sync::Arc;

use futures::FutureExt;
use http::{Request, Response};
use kube_client::client::{Body, ConfigExt};
use kube_client::{Client, Config, Error};
use tower::{BoxError, ServiceBuilder};

use self::dial::Dialer;
pub(crate) use self::dial::Route;
#[cfg(test)]
pub(crate) use self::dial::{Socket, Tls};
use self::pool::{Answer, Pool};
pub(super) use self::signed::SentWith;
use self::signed::Signed;
use super::credentials::{Credentials, Machine};
use super::user_agent::UserAgent;
use crate::clock::Clock;

/// Returns a client of the server of `config`, which is reached by `route`, or else over the network. It does not ask
/// for compression, and retries nothing except once what was refused for its credentials.
pub(super) fn connect(
    config: &Config,
    clock: &Clock,
    agent: &UserAgent,
    credentials: &Credentials,
    route: Option<Arc<dyn Route>>,
) -> Result<Client, Error> {
    let dialer = match route {
        Some(route) => Dialer::over(route, config, clock)?,
        None => Dialer::new(config, clock, agent)?,
    };
    let signed = Signed { pool: Pool::new(dialer, clock), credentials: credentials.clone() };
    let http = tower::service_fn(move |request| signed.clone().send(request).boxed());
    let agent = agent.clone();
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .map_request(move |request| agent.sign(request))
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Sends one request to the server of `config`, which is not an API server.
pub(super) async fn ask_once(
    config: &Config,
    clock: &Clock,
    request: Request<Body>,
) -> Result<Response<Answer>, BoxError> {
    let dialer = Dialer::new(config, clock, &UserAgent::default())?;
    let credentials = Credentials::new(config, clock, Arc::new(Machine(clock.clone())))?;
    Pool::new(dialer, clock).send(request, &credentials.current()).await
}
