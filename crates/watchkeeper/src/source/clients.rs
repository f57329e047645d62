//! Which clients does a process have? What lists and watches, and what sends all other requests: two ways to use one.

use std::time::Duration;

use kube_client::{Client, Config};

use super::connection::client;
use super::requests::Requests;
use crate::env::Env;

/// The clients of a process: one for list and watch, which the reflectors retry themselves, and the same behind the seam for requests,
/// each of which has a deadline.
#[derive(Clone)]
pub struct Clients {
    requests: Requests,
    env: Env,
}

/// The configuration gives no client.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a client for {server}: {source}")]
pub struct ClientError {
    /// The API server's address, without a password.
    pub server: String,
    /// What is wrong with it.
    #[source]
    pub source: kube_client::Error,
}

/// A URL as it may be shown: what stands before the host may be a password.
pub fn without_userinfo(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let host = url[start..].rfind('@').map_or(start, |at| start + at + 1);
    format!("{}{}", &url[..start], &url[host..])
}

impl Clients {
    /// Both roles on the client of a configuration; must be called on a tokio runtime.
    pub fn from_config(mut config: Config, env: &Env) -> Result<Self, ClientError> {
        config.connect_timeout = config.connect_timeout.or(Some(Duration::from_secs(10)));
        let server = || without_userinfo(&config.cluster_url.to_string());
        let client =
            client(&config, &env.clock).map_err(|source| ClientError { server: server(), source })?;
        Ok(Self::from_client(client, env))
    }

    /// Both roles on one client of the caller's making.
    pub fn from_client(client: Client, env: &Env) -> Self {
        Self { requests: Requests::new(client, env), env: env.clone() }
    }

    /// The client that lists and watches.
    pub fn watch(&self) -> &Client {
        self.requests.client()
    }

    /// The clock, generator and reporter that came with the clients, and go on to what is built on them.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The seam through which all other requests go.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
