//! Which cluster is meant? Flags, then the environment, then the cluster around the process, then the user's own file.

use std::env;
use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};

use crate::env::Env;
use crate::source::{ClientError, Clients};

/// Flags that say which cluster to talk to, for `#[command(flatten)]`.
///
/// Looked for in this order: `--kubeconfig`, `KUBECONFIG`, the service account of a pod, `~/.kube/config`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientArgs {
    /// The kubeconfig file to use
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig file to use, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The address of the API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
}

/// Why there is no cluster to talk to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A kubeconfig file that cannot be used.
    #[error("cannot use the kubeconfig {file}")]
    Kubeconfig {
        /// Which file, or files.
        file: String,
        /// What is wrong with it.
        #[source]
        source: kube_client::config::KubeconfigError,
    },
    /// `--master` is no URL.
    #[error("--master {0:?} is not a URL such as https://127.0.0.1:6443")]
    Master(String),
    /// Neither flag, nor variable, nor pod, nor file.
    #[error("no cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or run in a pod")]
    Nothing,
    /// The configuration gives no client.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl ClientArgs {
    /// The clients of the cluster that is meant; nothing is sent yet.
    pub async fn connect(&self, environment: &Env) -> Result<Clients, ConnectError> {
        let mut config = self.config().await?;
        if let Some(master) = &self.master {
            config.cluster_url = master.parse().map_err(|_| ConnectError::Master(master.clone()))?;
        }
        Ok(Clients::from_config(config, environment)?)
    }

    async fn config(&self) -> Result<Config, ConnectError> {
        if let Some(file) = &self.kubeconfig {
            return self.read(file).await;
        }
        if let Some(files) = env::var("KUBECONFIG").ok().filter(|files| !files.is_empty()) {
            let bad = |source| ConnectError::Kubeconfig { file: files.clone(), source };
            if let Some(kubeconfig) = Kubeconfig::from_env().map_err(bad)? {
                return Config::from_custom_kubeconfig(kubeconfig, &self.options()).await.map_err(bad);
            }
        }
        // A context is one of a file.
        if self.context.is_none()
            && let Ok(config) = Config::incluster()
        {
            return Ok(config);
        }
        let home = env::home_dir().map(|home| home.join(".kube/config")).filter(|file| file.exists());
        match (home, &self.master) {
            (Some(file), _) => self.read(&file).await,
            (None, Some(master)) => {
                Ok(Config::new(master.parse().map_err(|_| ConnectError::Master(master.clone()))?))
            }
            (None, None) => Err(ConnectError::Nothing),
        }
    }

    async fn read(&self, file: &Path) -> Result<Config, ConnectError> {
        let bad = |source| ConnectError::Kubeconfig { file: file.display().to_string(), source };
        let kubeconfig = Kubeconfig::read_from(file).map_err(bad)?;
        Config::from_custom_kubeconfig(kubeconfig, &self.options()).await.map_err(bad)
    }

    fn options(&self) -> KubeConfigOptions {
        KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_named() {
        let args = ClientArgs { kubeconfig: Some("/nonexistent/kube.conf".into()), ..ClientArgs::default() };
        let error = args.connect(&Env::simulated(1)).await.unwrap_err();
        assert!(error.to_string().contains("/nonexistent/kube.conf") && error.source().is_some(), "{error}");
    }
}
