//! How is the control plane started, and how do clients find it?

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening, ServeError};

use crate::args::ServeArgs;
use crate::front;

/// A control plane that listens, and the kubeconfig that leads to it.
pub(crate) struct Plane {
    pub(crate) server: ApiServer,
    listening: Listening,
    kubeconfig: PathBuf,
}

/// Why the control plane did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaneError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot write the kubeconfig {file}")]
    Kubeconfig {
        file: String,
        #[source]
        source: io::Error,
    },
}

impl Plane {
    /// Listens, writes the kubeconfig, and then says that it is ready.
    pub(crate) async fn start(args: &ServeArgs, env: &Env) -> Result<Self, PlaneError> {
        let server = ApiServer::new(env);
        let options = ListenOptions {
            address: args.listen,
            insecure_http: args.insecure_http,
            ..ListenOptions::default()
        };
        let listening = server.listen(options).await?;
        let kubeconfig = args.kubeconfig_out.clone();
        write_private(&kubeconfig, &listening.kubeconfig())
            .map_err(|source| PlaneError::Kubeconfig { file: kubeconfig.display().to_string(), source })?;
        front::ready(&listening.url(), &kubeconfig);
        Ok(Self { server, listening, kubeconfig })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Ends every connection; the kubeconfig leads nowhere then, and goes.
    pub(crate) async fn stop(self) {
        self.listening.stop().await;
        let _gone_already = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Writes a file that only its owner can read, whole or not at all.
fn write_private(file: &Path, contents: &str) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A temporary file is made with mode 0600.
    let mut temporary = NamedTempFile::new_in(folder)?;
    temporary.write_all(contents.as_bytes())?;
    temporary.persist(file)?;
    Ok(())
}

/// `watchkeeper serve`: the control plane alone.
pub(crate) async fn serve(args: &ServeArgs, env: &Env, stop: &CancellationToken) -> Result<(), PlaneError> {
    let plane = Plane::start(args, env).await?;
    front::hint(&["get namespaces"], plane.kubeconfig());
    stop.cancelled().await;
    plane.stop().await;
    Ok(())
}
