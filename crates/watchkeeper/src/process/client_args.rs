//! Which cluster is meant? Flags, then the environment, then the cluster around the process, then the user's own file.

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

/// Flags that say which cluster to talk to, for `#[command(flatten)]`.
///
/// Looked for in this order: `--kubeconfig`, the files that `KUBECONFIG` lists (the first that says something wins), the service account of
/// a pod where it can be used, `~/.kube/config`. With `--master` another server is talked to, with the credentials of the files; a pod's own are for its own
/// cluster only. Over plain HTTP no credentials are sent; a server without a scheme is https where a certificate, an authority or
/// `insecure-skip-tls-verify` is given.
///
/// Connections go through the `proxy-url` of the cluster, else through `HTTPS_PROXY`, or `HTTP_PROXY` for a server of plain HTTP, where it is not
/// on this machine and not named by `NO_PROXY`. A proxy may be of http, https or socks5.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
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

/// Why there is no cluster to talk to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A kubeconfig file that cannot be read.
    #[error("cannot read the kubeconfig {file}")]
    Unreadable {
        /// Which file.
        file: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A kubeconfig file that makes no sense.
    #[error("cannot use the kubeconfig {file}: {field} {problem}")]
    Field {
        /// Which file, or files.
        file: String,
        /// Which field in it, such as `contexts[dev].context.cluster`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// None of the files in `KUBECONFIG` exists.
    #[error("KUBECONFIG names no file that exists: {0}")]
    NoFile(String),
    /// The process is in a pod whose service account cannot be used.
    #[error("cannot use the service account of the pod: {0}")]
    InCluster(String),
    /// `--master` is no URL.
    #[error("--master {0:?} is not a URL such as https://127.0.0.1:6443")]
    Master(String),
    /// `HTTPS_PROXY` or `HTTP_PROXY` is no proxy that can be used.
    #[error("{0}")]
    Proxy(String),
    /// Neither flag, nor variable, nor pod, nor file.
    #[error("no cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or run in a pod")]
    Nothing,
    /// The configuration gives no client.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// What there is around the process.
struct Surroundings {
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    in_cluster: fn() -> Result<Option<Config>, String>,
    proxies: Proxies,
}

/// The configuration of the cluster around this process, if there is one.
fn around_process() -> Result<Option<Config>, String> {
    pod::in_cluster(|name| env::var(name).ok(), Path::new(pod::FOLDER))
}

impl ClientArgs {
    /// The clients of the cluster that is meant; nothing is sent yet. Must be called on a tokio runtime.
    pub async fn connect(&self, env: &Env) -> Result<Client, ConnectError> {
        Ok(Client::from_config(self.config().await?, env)?)
    }

    /// The configuration of the cluster that is meant.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        let around = Surroundings {
            kubeconfig: env::var_os("KUBECONFIG"),
            home: env::home_dir(),
            in_cluster: around_process,
            proxies: Proxies::of_process(),
        };
        self.config_in(&around)
    }

    /// Whether this process is in a pod whose service account can be used: where the flags are silent, and `KUBECONFIG`, that cluster is meant.
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
        // A context is one of a file.
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

    /// The files that the flag or the variable names; of the variable's those that exist.
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
