//! Connections to an API server, on which a dead peer is noticed within a minute even if they are idle.
//!
//! kube's own client has no keep-alive: if a peer vanishes silently, a watch would wait for its whole timeout, and a
//! request for its deadline. It also drives each connection in a task of its own, so every piece of an answer would
//! pass from one task to another, and often to another thread.

mod dial;
mod pool;
mod read_ahead;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use kube_client::client::middleware::AuthLayer;
use kube_client::client::{AuthError, ConfigExt};
use kube_client::{Client, Config, Error};
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder};

use self::dial::Dialer;
use self::pool::Pool;
use super::token_file::{noting, token_file, with_token};
use super::user_agent::UserAgent;
use crate::clock::Clock;

/// Returns a client of the server of `config`. It retries nothing and does not ask for compression.
pub(super) fn connect(config: &Config, clock: &Clock, agent: &UserAgent) -> Result<Client, Error> {
    let pool = Pool::new(Dialer::new(config, clock, agent)?, clock);
    let http = tower::service_fn(move |request| pool.clone().send(request).boxed());
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
