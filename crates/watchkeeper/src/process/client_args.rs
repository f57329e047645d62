//! Flags that select a cluster: flags first, then the environment, the pod of the process, and the user's own file.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::AuthInfo;

use super::kubeconfig::{Kubeconfigs, master_url};
use super::pod;
use super::proxy::Proxies;
use crate::env::Env;
use crate::report::WithCauses;
use crate::source::{Client, ClientError};

/// Flags that select the cluster, for `#[command(flatten)]`.
///
/// The configuration is looked up in this order: `--kubeconfig`, the files in `KUBECONFIG` (the first that sets a value
/// wins), the service account of a pod if it is usable, `~/.kube/config`. `--master` selects another server, with the
/// credentials of the files; those of a pod are for its own cluster only. Over plain HTTP no credentials are sent. A
/// server without a scheme is https if a certificate, an authority or `insecure-skip-tls-verify` is set.
///
/// Connections go through the `proxy-url` of the cluster, otherwise through `HTTPS_PROXY`, or `HTTP_PROXY` for a server
/// of plain HTTP, unless the server is on this machine or in `NO_PROXY`. A proxy may be http, https or socks5.
///
/// ```no_run
/// use watchkeeper::Env;
/// use watchkeeper::process::ClientArgs;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ClientArgs::default().connect(&Env::system()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
// Else this text would be the description of a program that has none.
#[cfg_attr(feature = "clap", command(about = None, long_about = None))]
pub struct ClientArgs {
    /// Kubeconfig file to use
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use, instead of its current context
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub context: Option<String>,
    /// URL of the API server, instead of the kubeconfig's
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL"))]
    pub master: Option<String>,
}

/// The reason why no cluster was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A kubeconfig file that cannot be read.
    #[error("cannot read the kubeconfig {file}")]
    Unreadable {
        /// The file.
        file: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A kubeconfig file that is invalid.
    #[error("cannot use the kubeconfig {file}: {field} {problem}")]
    Field {
        /// The file, or files.
        file: String,
        /// The field, such as `contexts[dev].context.cluster`.
        field: String,
        /// The problem.
        problem: String,
    },
    /// None of the files in `KUBECONFIG` exists.
    #[error("KUBECONFIG names no file that exists: {0}")]
    NoFile(String),
    /// The process is in a pod whose service account is unusable.
    #[error("cannot use the service account of the pod: {0}")]
    InCluster(String),
    /// `--master` is not a URL.
    #[error("--master {0:?} is not a URL such as https://127.0.0.1:6443")]
    Master(String),
    /// `HTTPS_PROXY` or `HTTP_PROXY` is not a usable proxy.
    #[error("{0}")]
    Proxy(String),
    /// There is no flag, no variable, no pod and no file.
    #[error("no cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or run in a pod")]
    Nothing,
    /// No client can be made from the configuration.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// The environment of the process.
struct Surroundings {
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    in_cluster: fn() -> Result<Option<Config>, String>,
    proxies: Proxies,
}

/// Returns the configuration of the cluster that this process runs in, if there is one.
fn around_process() -> Result<Option<Config>, String> {
    pod::in_cluster(|name| env::var(name).ok(), Path::new(pod::FOLDER))
}

impl ClientArgs {
    /// Returns a client of the selected cluster; nothing is sent yet. Must be called on a tokio runtime.
    pub async fn connect(&self, env: &Env) -> Result<Client, ConnectError> {
        Ok(Client::from_config(self.config().await?, env)?)
    }

    /// Returns the configuration of the selected cluster.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        let around = Surroundings {
            kubeconfig: env::var_os("KUBECONFIG"),
            home: env::home_dir(),
            in_cluster: around_process,
            proxies: Proxies::of_process(),
        };
        self.config_in(&around)
    }

    /// Returns whether this process is in a pod whose service account is usable. Without flags and `KUBECONFIG`, that
    /// cluster is selected.
    pub fn is_in_cluster() -> bool {
        matches!(around_process(), Ok(Some(_)))
    }

    fn config_in(&self, around: &Surroundings) -> Result<Config, ConnectError> {
        let mut config = self.found_in(around)?;
        if config.cluster_url.scheme_str() == Some("http") {
            config.auth_info = AuthInfo::default();
        }
        if config.proxy_url.is_none() {
            config.proxy_url = around.proxies.of(&config.cluster_url).map_err(ConnectError::Proxy)?;
        }
        Ok(config)
    }

    fn found_in(&self, around: &Surroundings) -> Result<Config, ConnectError> {
        let (context, master) = (self.context.as_deref(), self.master.as_deref());
        if let Some(files) = self.files(around)? {
            return Kubeconfigs::read(&files)?.config(context, master);
        }
        let mut unusable = None;
        // A context is always one of a file.
        if context.is_none() && master.is_none() {
            match (around.in_cluster)() {
                Err(problem) => unusable = Some(ConnectError::InCluster(problem)),
                Ok(Some(config)) => return Ok(config),
                Ok(None) => {}
            }
        }
        let home = around.home.as_ref().map(|home| home.join(".kube/config")).filter(|file| file.exists());
        match (home, master) {
            (Some(file), _) => {
                if let Some(error) = &unusable {
                    tracing::warn!(error = %WithCauses(error), file = %file.display(), "using a kubeconfig instead");
                }
                Kubeconfigs::read(&[file])?.config(context, master)
            }
            (None, Some(master)) => Ok(Config::new(master_url(master, false)?)),
            (None, None) => Err(unusable.unwrap_or(ConnectError::Nothing)),
        }
    }

    /// Returns the files of the flag or the variable; for the variable, only those that exist.
    fn files(&self, around: &Surroundings) -> Result<Option<Vec<PathBuf>>, ConnectError> {
        if let Some(file) = &self.kubeconfig {
            return Ok(Some(vec![file.clone()]));
        }
        let listed = around.kubeconfig.clone().unwrap_or_default();
        let mut files: Vec<PathBuf> = Vec::new();
        for file in env::split_paths(&listed).filter(|file| !file.as_os_str().is_empty()) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
        if files.is_empty() {
            return Ok(None);
        }
        files.retain(|file| file.exists());
        if files.is_empty() {
            Err(ConnectError::NoFile(listed.display().to_string()))
        } else {
            Ok(Some(files))
        }
    }
}

#[cfg(test)]
mod tests;
