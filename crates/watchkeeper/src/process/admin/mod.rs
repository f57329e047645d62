//! The admin pages of a program: `/metrics`, `/healthz`, `/readyz` and `/debug`.
//!
//! On a loopback address they are plain. Elsewhere the metrics are served over TLS (`certificate.rs`), to those whom the API server
//! permits to read them (`access.rs`).

mod access;
mod actions;
mod certificate;
mod checks;
mod debug;
mod page;
mod pages;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use self::access::Access;
use self::certificate::{Certificate, Files};
pub use self::checks::{Alarm, Checks, Gate};
pub use self::pages::Pages;
use self::server::Security;
pub use self::server::{AdminError, AdminServer};
use crate::source::Client;

/// Flags for the admin pages, for `#[command(flatten)]`. They have the names of kubebuilder.
///
/// The default is the loopback interface, which only processes of the machine or pod can reach, and plain HTTP. In a pod, use
/// `--metrics-bind-address=0.0.0.0:8443 --health-probe-bind-address=0.0.0.0:8081`. Elsewhere than on a loopback address,
///
/// - the pages at the address of the metrics are served over TLS, to clients with a bearer token of the cluster whose user may `get`
///   the path, by a `nonResourceURL` of a ClusterRole. The API server is asked by TokenReview and SubjectAccessReview, which the
///   program needs permission to `create`. `/healthz` and `/readyz` are answered without a token. Without a token, or with one that
///   is not valid, the answer is 401; 403 if the user may not; 503 if the API server cannot be asked. Answers of the API server are
///   remembered: a token for a minute, a permission for five, a refusal for 30 s;
/// - the probes at an address of their own are plain HTTP, for the kubelet.
///
/// With `--admin-actions`, a POST to `/controllers/NAME/reconcile?key=NAMESPACE/NAME` has an object reconciled. Elsewhere than on a
/// loopback address it needs permission to `post` to that path.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
// Else this text would be the description of a program that has none.
#[cfg_attr(feature = "clap", command(about = None, long_about = None))]
#[non_exhaustive]
pub struct AdminArgs {
    /// Address to serve /metrics on, and /healthz and /readyz; 0 disables it
    #[cfg_attr(
        feature = "clap",
        arg(long, alias = "admin-address", value_name = "ADDR:PORT", default_value_t)
    )]
    pub metrics_bind_address: AdminAddress,
    /// Address to serve /healthz and /readyz on, over plain HTTP; that of the metrics by default, 0 disables it
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDR:PORT"))]
    pub health_probe_bind_address: Option<AdminAddress>,
    /// Serve the metrics over TLS, to clients that the API server permits to read them; true unless their address is a
    /// loopback address and no certificate is given
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")
    )]
    pub metrics_secure: Option<bool>,
    /// Folder with the certificate and the key of the metrics, read again when they change; self-signed by default
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub metrics_cert_path: Option<PathBuf>,
    /// Let people have objects reconciled on the page; elsewhere than on a loopback address, those who may `post` to it
    #[cfg_attr(feature = "clap", arg(long))]
    pub admin_actions: bool,
    /// Name of the file with the certificate
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", default_value = CERTIFICATE))]
    pub metrics_cert_name: PathBuf,
    /// Name of the file with the key
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", default_value = KEY))]
    pub metrics_cert_key: PathBuf,
}

/// The names of the files in a Secret of the type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

impl Default for AdminArgs {
    fn default() -> Self {
        Self {
            metrics_bind_address: AdminAddress::default(),
            health_probe_bind_address: None,
            metrics_secure: None,
            metrics_cert_path: None,
            admin_actions: false,
            metrics_cert_name: CERTIFICATE.into(),
            metrics_cert_key: KEY.into(),
        }
    }
}

impl AdminArgs {
    /// Listens at the addresses; [`AdminServer::run`] serves `pages`. The API server of `client` is asked who may read them, so an
    /// election must not [guard](crate::leader::LeaderElection::guard) it.
    pub async fn bind(&self, mut pages: Pages, client: &Client) -> Result<AdminServer, AdminError> {
        pages.actions |= self.admin_actions;
        let (metrics, health) = (self.metrics_bind_address, self.health_probe_bind_address);
        let probes = health.filter(|health| *health != metrics).map(|health| (health, pages.probes()));
        let mut server = AdminServer::bind(AdminAddress::Off, Pages::default(), client.env()).await?;
        server.open(metrics, pages, self.security(client)?).await?;
        if let Some((health, probes)) = probes {
            server.open(health, probes, None).await?;
        }
        Ok(server)
    }

    /// Returns whether the metrics are served over TLS, to those who may read them.
    pub fn is_secure(&self) -> bool {
        match self.metrics_bind_address {
            AdminAddress::Off => false,
            AdminAddress::At(address) => {
                let is_local = address.ip().to_canonical().is_loopback();
                self.metrics_secure.unwrap_or(!is_local || self.metrics_cert_path.is_some())
            }
        }
    }

    fn security(&self, client: &Client) -> Result<Option<Security>, AdminError> {
        let AdminAddress::At(address) = self.metrics_bind_address else { return Ok(None) };
        if !self.is_secure() {
            if !address.ip().to_canonical().is_loopback() {
                tracing::warn!(%address, "the metrics are served in plain text, to everybody who reaches this address");
            }
            return Ok(None);
        }
        let certificate = match &self.metrics_cert_path {
            Some(folder) => {
                let certificate = folder.join(&self.metrics_cert_name);
                Certificate::from_files(
                    Files { certificate, key: folder.join(&self.metrics_cert_key) },
                    client.env(),
                )
            }
            None => Certificate::self_signed(address.ip(), client.env()),
        };
        let certificate = certificate.map_err(AdminError::Certificate)?;
        Ok(Some(Security { certificate, access: Access::new(client) }))
    }
}

/// The address of the admin pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// The pages are disabled.
    Off,
    /// An address; port 0 selects a free port.
    At(SocketAddr),
}

impl Default for AdminAddress {
    fn default() -> Self {
        Self::At(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            // The same values as in controller-runtime.
            "off" | "0" | "" => Ok(Self::Off),
            _ => text
                .parse()
                .map(Self::At)
                .map_err(|_| "expected an address such as 127.0.0.1:8080, or off".to_owned()),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}
