//! Starting and stopping the control plane, and writing the kubeconfig that leads clients to it.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::{
    ApiServer, Credentials, CredentialsError, DataDirError, ListenOptions, Listening, ServeError,
};
use watchkeeper_sim::FaultLayerError;

use crate::args::ServeArgs;
use crate::controllers::Running;
use crate::front;
use crate::install::{InstallError, install};
use crate::manifests::{self, Manifest, ManifestError};

/// A listening control plane and its kubeconfig.
pub(crate) struct Plane {
    pub(crate) server: ApiServer,
    listening: Listening,
    kubeconfig: PathBuf,
    /// What was written to the kubeconfig; `None` with a data directory, where the kubeconfig stays after the stop.
    contents: Option<String>,
    /// Locks the kubeconfig against other instances.
    _held: Held,
    controllers: Running,
}

/// The kubeconfig that is written by default.
pub(crate) const KUBECONFIG: &str = "watchkeeper.kubeconfig";

/// The first words of every kubeconfig that this command writes; any other file is not overwritten.
const MARK: &str = "# written by watchkeeper";

/// Why the control plane did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaneError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Faults(#[from] FaultLayerError),
    #[error("{file} was not written by watchkeeper and is not overwritten: choose another --kubeconfig-out")]
    Foreign { file: String },
    #[error("{file} is not a regular file: choose another --kubeconfig-out")]
    NotFile { file: String },
    #[error("{file} is in use by another watchkeeper: choose another --kubeconfig-out")]
    InUse { file: String },
    #[error("cannot write the kubeconfig {file}")]
    Kubeconfig {
        file: String,
        #[source]
        source: io::Error,
    },
}

impl Plane {
    /// Installs the manifests, listens, writes the kubeconfig, and then prints that it is ready.
    pub(crate) async fn start(
        args: &ServeArgs,
        manifests: &[Manifest],
        env: &Env,
    ) -> Result<Self, PlaneError> {
        let kubeconfig = args.kubeconfig_out.clone().unwrap_or_else(|| KUBECONFIG.into());
        let file = kubeconfig.display().to_string();
        match std::fs::metadata(&kubeconfig) {
            // Opening a pipe would block until somebody writes to it.
            Ok(found) if !found.is_file() => return Err(PlaneError::NotFile { file }),
            Ok(_) if !is_ours(&kubeconfig) => return Err(PlaneError::Foreign { file }),
            _ => {}
        }
        let settings =
            ApiServer::builder(env).authorization(args.authorization.into()).admission(args.admission());
        let settings = settings.priority_and_fairness(true);
        let server = match &args.data_dir {
            Some(folder) => settings.open(folder)?,
            None => settings.build(),
        };
        let options = ListenOptions {
            address: args.listen.unwrap_or(([127, 0, 0, 1], 0).into()),
            insecure_http: args.insecure_http,
            credentials: credentials(args)?,
        };
        let client = Client::from_kube(server.client(), env);
        // Before the manifests, whose Pods need service accounts.
        let authority = options.credentials.as_ref().map(Credentials::ca_pem).unwrap_or_default();
        let controllers = args.start_controllers(&client, authority);
        if !manifests.is_empty() {
            install(manifests, &client).await?;
        }
        let listening = match args.faults.layer(&server, &env.clock)? {
            Some(faults) => server.listen_through(options, &faults).await?,
            None => server.listen(options).await?,
        };
        let how_long = if args.data_dir.is_some() { "at each start" } else { "for one run" };
        let contents = format!("{MARK} {how_long}\n{}", listening.kubeconfig());
        let held = write_private(&kubeconfig, &contents).map_err(|source| match source.kind() {
            ErrorKind::WouldBlock => PlaneError::InUse { file },
            _ => PlaneError::Kubeconfig { file, source },
        })?;
        front::ready(&listening.url(), &kubeconfig, args.data_dir.as_deref());
        front::installed(manifests);
        front::faults(&args.faults);
        let contents = args.data_dir.is_none().then_some(contents);
        Ok(Self { server, listening, kubeconfig, contents, _held: held, controllers })
    }

    /// The kubectl command with the flags that select this control plane.
    pub(crate) fn kubectl(&self) -> String {
        let client = ClientArgs { kubeconfig: Some(self.kubeconfig.clone()), ..ClientArgs::default() };
        front::kubectl(&client, "default")
    }

    /// The setting of `KUBECONFIG` that leads a program to this control plane, from any folder.
    pub(crate) fn environment(&self) -> String {
        front::environment(&self.kubeconfig)
    }

    /// Closes every connection, and removes the kubeconfig unless there is a data directory to restart from.
    pub(crate) async fn stop(self) {
        self.controllers.stop().await;
        self.listening.stop().await;
        // The file may have been replaced meanwhile.
        if self.contents.as_deref().is_some_and(|contents| holds(&self.kubeconfig, contents).unwrap_or(false))
        {
            let _gone_already = std::fs::remove_file(&self.kubeconfig);
        }
    }
}

/// The CA, token and certificate for these arguments; `None` for plain HTTP.
fn credentials(args: &ServeArgs) -> Result<Option<Credentials>, CredentialsError> {
    if args.insecure_http {
        return Ok(None);
    }
    let credentials = match &args.data_dir {
        Some(folder) => Credentials::kept_in(folder)?,
        None => Credentials::generate()?,
    };
    Ok(Some(match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => credentials.with_certificate(certificate, key)?,
        _ => credentials,
    }))
}

/// Whether this command wrote the file; assumed if it cannot be read.
fn is_ours(file: &Path) -> bool {
    let mut begin = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut begin));
    read.is_err() || begin == MARK.as_bytes()
}

/// Whether the file exists with these contents.
fn holds(file: &Path, contents: &str) -> io::Result<bool> {
    Ok(std::fs::metadata(file)?.is_file() && std::fs::read_to_string(file)? == contents)
}

/// Locks on the written file and on the one it replaced, which another instance may have opened already.
struct Held {
    _old: Option<File>,
    _new: File,
}

/// Atomically writes a file that only its owner can read. Fails with `WouldBlock` while another process holds the [`Held`] of that file.
fn write_private(file: &Path, contents: &str) -> io::Result<Held> {
    let old = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        opened => Some(opened?),
    };
    old.as_ref().map_or(Ok(()), lock)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A temporary file has mode 0600. Its name would only confuse in an error.
    let mut temporary = NamedTempFile::new_in(folder).map_err(|error| {
        let text = error.to_string();
        io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
    })?;
    lock(temporary.as_file())?;
    temporary.write_all(contents.as_bytes())?;
    let new = match old {
        Some(_) => temporary.persist(file),
        None => temporary.persist_noclobber(file),
    };
    Ok(Held { _old: old, _new: new? })
}

/// Locks a file; not on Windows, where the lock would prevent reading it.
fn lock(file: &File) -> io::Result<()> {
    if cfg!(unix) && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// `watchkeeper serve`: only the control plane.
pub(crate) async fn serve(args: &ServeArgs, env: &Env, stop: &CancellationToken) -> Result<(), PlaneError> {
    let manifests = manifests::read(&args.crds)?;
    let plane = Plane::start(args, &manifests, env).await?;
    let operator = (!manifests.is_empty()).then(|| format!("{} cargo run", plane.environment()));
    front::hint(operator.into_iter().chain([format!("{} get namespaces", plane.kubectl())]));
    stop.cancelled().await;
    plane.stop().await;
    Ok(())
}
