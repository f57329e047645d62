//! Asking a running program for what it explains: where it is, and one request.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Request, StatusCode, Uri};
use kube_client::Config;
use kube_client::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use watchkeeper::Env;
use watchkeeper::process::{AdminAddress, ClientArgs, ConnectError};

use crate::args::AskArgs;
use crate::holder::{self, Holder};

/// How long a program may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What follows the name of a kubeconfig in the name of the file with the address of the pages.
const SUFFIX: &str = ".admin";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("{0:?} is not an address: use one such as 127.0.0.1:8080 or https://127.0.0.1:8443")]
    Address(String),
    #[error("cannot ask {address}")]
    Request {
        address: String,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    #[error("{address} did not answer within {PATIENCE:?}")]
    Silent { address: String },
    #[error("{address} does not know: {text}")]
    Refused { address: String, text: String },
    #[error(
        "{address} may only be read with permission: run `kubectl auth can-i get /debug/explain`, and ask for a \
         ClusterRole with the nonResourceURLs /debug/*"
    )]
    Forbidden { address: String },
    #[error("{address} is not the admin server of a program that explains itself: {text}")]
    NotOurs { address: String, text: String },
    #[error(
        "no program was found: start `watchkeeper` here, or name the admin address of yours with --address{}",
        found(.0)
    )]
    Nowhere(Vec<Holder>),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

fn found(holders: &[Holder]) -> String {
    let mut text = String::new();
    for holder in holders {
        text += &format!(
            "\n\n{} leads by the Lease {}. To ask it, run in another terminal\n  {}\nand then this command with\n  \
             --address {}",
            holder.pod,
            holder.lease,
            holder.forward(),
            holder.address()
        );
    }
    text
}

/// The body of an answer that is a refusal.
#[derive(Deserialize)]
struct Problem {
    error: String,
}

/// A program that answers.
pub(crate) struct Program {
    address: Uri,
    client: kube_client::Client,
    env: Env,
}

impl Program {
    /// Finds the program: at `--address`, at the address that `watchkeeper up` has written, or at the default one. If none
    /// answers, the error says which pods could be asked.
    pub(crate) async fn find(args: &AskArgs, env: &Env) -> Result<Self, AskError> {
        if let Some(address) = &args.address {
            return Self::at(address, args, env).await;
        }
        let default = match AdminAddress::default() {
            AdminAddress::At(address) => Some(address.to_string()),
            AdminAddress::Off => None,
        };
        for address in written(&args.client).into_iter().chain(default) {
            let program = Self::at(&address, args, env).await?;
            if program.get::<serde_json::Value>("/debug/informers").await.is_ok() {
                return Ok(program);
            }
        }
        Err(AskError::Nowhere(holder::find(&args.client, env).await))
    }

    async fn at(address: &str, args: &AskArgs, env: &Env) -> Result<Self, AskError> {
        let bad = || AskError::Address(address.to_owned());
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| bad())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let is_local = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        let mut config = match uri.scheme_str() {
            // A protected program wants the token of the user of the cluster.
            Some("https") => {
                let mut config = args.client.config().await?;
                config.root_cert = None;
                // What `kubectl port-forward` leads to has a certificate for another name, if not a self-signed one.
                config.accept_invalid_certs = is_local;
                config
            }
            Some("http") => Config::new(uri.clone()),
            _ => return Err(bad()),
        };
        config.cluster_url = uri.clone();
        (config.connect_timeout, config.read_timeout) = (Some(PATIENCE), Some(PATIENCE));
        let failed =
            |source: kube_client::Error| AskError::Request { address: url.clone(), source: source.into() };
        let client = kube_client::Client::try_from(config).map_err(failed)?;
        Ok(Self { address: uri, client, env: env.clone() })
    }

    /// Reads a page.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        let address = self.address.to_string().trim_end_matches('/').to_owned();
        let failed =
            |source: Box<dyn StdError + Send + Sync>| AskError::Request { address: address.clone(), source };
        let request = Request::get(path).body(Body::empty()).map_err(|error| failed(error.into()))?;
        let answer = async {
            let response = self.client.send(request).await.map_err(|error| failed(error.into()))?;
            let status = response.status();
            let body = response.into_body().collect_bytes().await.map_err(|error| failed(error.into()))?;
            Ok::<_, AskError>((status, body))
        };
        let (status, body) = self
            .env
            .clock
            .timeout(PATIENCE, answer)
            .await
            .map_err(|_| AskError::Silent { address: address.clone() })??;
        let text = || String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        match status {
            StatusCode::OK => {
                serde_json::from_slice(&body).map_err(|_| AskError::NotOurs { address, text: text() })
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(AskError::Forbidden { address }),
            _ => match serde_json::from_slice::<Problem>(&body) {
                Ok(problem) => Err(AskError::Refused { address, text: problem.error }),
                Err(_) => Err(AskError::NotOurs { address, text: text() }),
            },
        }
    }
}

/// The addresses that a control plane has written beside its kubeconfig: in this folder, or where KUBECONFIG is.
fn written(client: &ClientArgs) -> Option<String> {
    let named = client.kubeconfig.clone();
    let set = || std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let kubeconfig = named.or_else(set).unwrap_or_else(|| crate::plane::KUBECONFIG.into());
    let text = std::fs::read_to_string(beside(&kubeconfig)).ok()?;
    text.trim().parse::<SocketAddr>().ok().map(|address| address.to_string())
}

fn beside(kubeconfig: &Path) -> PathBuf {
    let mut file = kubeconfig.as_os_str().to_owned();
    file.push(SUFFIX);
    file.into()
}

/// The file with the address of the pages, which is removed when this is dropped.
pub(crate) struct Announced(PathBuf);

impl Announced {
    /// Writes where the pages of the program beside `kubeconfig` are.
    pub(crate) fn write(kubeconfig: &Path, address: SocketAddr) -> io::Result<Self> {
        let file = beside(kubeconfig);
        std::fs::write(&file, format!("{address}\n"))?;
        Ok(Self(file))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0);
    }
}
