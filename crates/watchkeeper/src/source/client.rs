//! The client of a process: lists and watches for informers, and all other requests.

use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use kube_client::Config;

use super::api::Api;
use super::connection::{Route, connect};
use super::credentials::{CredentialStatus, Credentials, Machine, Outside};
use super::gate::WriteGate;
use super::requests::Requests;
use super::user_agent::UserAgent;
use crate::env::Env;
use crate::object::Kind;

/// The client of a process. Clones share its connections.
///
/// Informers list and watch through it, and retry by themselves. All other requests go through its [`Requests`], each
/// with a deadline.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # use watchkeeper::{Client, ObjectName};
/// # async fn read(client: Client) -> Result<(), watchkeeper::wire::ApiError> {
/// let pod = client.api::<Pod>().get(&ObjectName::namespaced("default", "web")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    requests: Requests,
    env: Env,
}

/// The error of a configuration from which no client can be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a client for {server}: {source}")]
pub struct ClientError {
    /// The API server's address, without a password.
    pub server: String,
    /// The reason.
    #[source]
    pub source: kube_client::Error,
}

/// Returns a URL that is safe to show: the part before the host may be a password.
pub(crate) fn without_userinfo(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let host = url[start..].rfind('@').map_or(start, |at| start + at + 1);
    format!("{}{}", &url[..start], &url[host..])
}

impl Client {
    /// Returns a client for the server of a configuration; must be called on a tokio runtime. Blocks while a credential
    /// plugin runs.
    ///
    /// Credentials are read again while the client is used: files every 30 s; tokens and certificates of plugins, and
    /// ID tokens with a refresh token, before they expire; all of them once after the server has refused them or TLS
    /// has failed, and then the request is sent once more. Open watches of informers end after a change and continue
    /// with the new credentials.
    pub fn from_config(config: Config, env: &Env) -> Result<Self, ClientError> {
        Self::with(config, env, Arc::new(Machine(env.clock.clone())), None)
    }

    /// Returns a client as [`Client::from_config`] does, with the credentials and the network of a test.
    #[cfg(test)]
    pub(crate) fn simulated(
        config: Config,
        env: &Env,
        outside: Arc<dyn Outside>,
        route: Arc<dyn Route>,
    ) -> Result<Self, ClientError> {
        Self::with(config, env, outside, Some(route))
    }

    fn with(
        mut config: Config,
        env: &Env,
        outside: Arc<dyn Outside>,
        route: Option<Arc<dyn Route>>,
    ) -> Result<Self, ClientError> {
        let given = config.headers.iter().position(|(name, _)| *name == USER_AGENT);
        let agent = given.map(|at| UserAgent::from(config.headers.remove(at).1)).unwrap_or_default();
        config.connect_timeout = config.connect_timeout.or(Some(Duration::from_secs(10)));
        let server = || without_userinfo(&config.cluster_url.to_string());
        let failed = |source| ClientError { server: server(), source };
        let credentials = Credentials::new(&config, &env.clock, outside).map_err(failed)?;
        let kube = connect(&config, &env.clock, &agent, &credentials, route).map_err(failed)?;
        let requests = Requests::new(kube, env, agent).with_credentials(credentials);
        Ok(Self { requests, env: env.clone() })
    }

    /// Returns a client that sends its requests through one of kube's.
    pub fn from_kube(kube: kube_client::Client, env: &Env) -> Self {
        Self { requests: Requests::new(kube, env, UserAgent::default()), env: env.clone() }
    }

    /// Sets the program's name in the `User-Agent` of its requests, which all clones share: `name/version (os/arch)
    /// watchkeeper/version`. The default is the name of the executable, or the header of the configuration. The server
    /// uses the name as the field manager of writes that have none.
    #[must_use]
    pub fn program(self, name: &str, version: &str) -> Self {
        self.requests.agent().set(name, version);
        self
    }

    /// Returns the same client, whose writes are sent only while `gate` is open.
    pub(crate) fn gated(&self, gate: &WriteGate) -> Self {
        Self { requests: self.requests.clone().gated(gate), env: self.env.clone() }
    }

    /// Returns requests about objects of kind `K`, known at compile time.
    pub fn api<K: Kind<DynamicType: Default>>(&self) -> Api<'_, K> {
        self.requests.api()
    }

    /// Returns requests about objects of a kind known at run time.
    pub fn api_of<K: Kind>(&self, kind: K::DynamicType) -> Api<'_, K> {
        self.requests.api_of(kind)
    }

    /// Returns kube's client that the requests go through, for everything that this one does not offer.
    pub fn kube(&self) -> &kube_client::Client {
        self.requests.kube()
    }

    /// Returns the state of the credentials; `None` for a client made from kube's, which has its own.
    pub fn credentials(&self) -> Option<CredentialStatus> {
        self.requests.credentials().map(Credentials::status)
    }

    /// Returns the clock, generator and reporter of the client, and of everything built on it.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the sender of all requests except the lists and watches of informers.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns the head of the request, in lower case.
    async fn head(stream: &mut TcpStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap().to_lowercase()
    }

    #[tokio::test]
    async fn a_proxy_and_the_server_behind_it_receive_the_user_agent() {
        for (given, sent) in [(None, "my-program/2.0 ("), (Some("own/1"), "own/1\r\n")] {
            let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut config = Config::new("http://api.invalid:8080".parse().unwrap());
            config.proxy_url = Some(format!("http://{}", proxy.local_addr().unwrap()).parse().unwrap());
            config.headers.extend(given.map(|agent| (USER_AGENT, HeaderValue::from_static(agent))));
            let mut client = Client::from_config(config, &Env::simulated(1)).unwrap();
            if given.is_none() {
                client = client.program("my-program", "2.0");
            }
            let serve = async {
                let (mut stream, _) = proxy.accept().await.unwrap();
                let connect = head(&mut stream).await;
                assert_eq!(connect.matches("user-agent: ").count(), 1, "{connect}");
                assert!(connect.contains(&format!("user-agent: {sent}")), "{connect}");
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let request = head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
                assert_eq!(request.matches("user-agent: ").count(), 1, "{request}");
                assert!(request.contains(&format!("user-agent: {sent}")), "{request}");
            };
            // This includes the requests of kube's own client.
            let request = http::Request::get("/hello").body(Vec::new()).unwrap();
            let (answer, ()) = tokio::join!(client.kube().request_text(request), serve);
            assert_eq!(answer.unwrap(), "hi");
        }
    }
}
