//! How is the control plane started, and how do clients find it?

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::ClientArgs;
use watchkeeper::{Clients, Env};
use watchkeeper_apiserver::{
    ApiServer, Credentials, CredentialsError, DataDirError, ListenOptions, Listening, ServeError,
};
use watchkeeper_controllers::garbage_collector;

use crate::args::ServeArgs;
use crate::front;

/// A control plane that listens, and the kubeconfig that leads to it.
pub(crate) struct Plane {
    pub(crate) server: ApiServer,
    listening: Listening,
    kubeconfig: PathBuf,
    /// What the kubeconfig says, as long as it is ours; none where it stays, with the data it leads to.
    contents: Option<String>,
    /// Keeps others from taking the name meanwhile.
    _held: Held,
    /// The garbage collector, and what stops it.
    collector: JoinHandle<()>,
    stop: CancellationToken,
}

/// How every kubeconfig of ours begins: any other file is somebody's own.
const MARK: &str = "# written by watchkeeper";

/// Why the control plane did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaneError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{file} was not written by watchkeeper, and is left as it is: choose another --kubeconfig-out")]
    Foreign { file: String },
    #[error("{file} is not a file: choose another --kubeconfig-out")]
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
    /// Listens, writes the kubeconfig, and then says that it is ready.
    pub(crate) async fn start(args: &ServeArgs, env: &Env) -> Result<Self, PlaneError> {
        let kubeconfig = args.kubeconfig_out.clone().unwrap_or_else(|| "watchkeeper.kubeconfig".into());
        let file = kubeconfig.display().to_string();
        match std::fs::metadata(&kubeconfig) {
            // Of a pipe nobody may ever write the other end.
            Ok(found) if !found.is_file() => return Err(PlaneError::NotFile { file }),
            Ok(_) if !is_ours(&kubeconfig) => return Err(PlaneError::Foreign { file }),
            _ => {}
        }
        let server = match &args.data_dir {
            Some(folder) => ApiServer::builder(env).open(folder)?,
            None => ApiServer::new(env),
        };
        let options = ListenOptions {
            address: args.listen.unwrap_or(([127, 0, 0, 1], 0).into()),
            insecure_http: args.insecure_http,
            credentials: credentials(args)?,
        };
        let listening = server.listen(options).await?;
        let how_long = if args.data_dir.is_some() { "anew at each start" } else { "for one run" };
        let contents = format!("{MARK} {how_long}\n{}", listening.kubeconfig());
        let held = write_private(&kubeconfig, &contents).map_err(|source| match source.kind() {
            ErrorKind::WouldBlock => PlaneError::InUse { file },
            _ => PlaneError::Kubeconfig { file, source },
        })?;
        let (clients, stop) = (Clients::from_client(server.client(), env), CancellationToken::new());
        let token = stop.clone();
        let collector = tokio::spawn(async move { garbage_collector::run(&clients, token).await });
        front::ready(&listening.url(), &kubeconfig, args.data_dir.as_deref());
        let contents = args.data_dir.is_none().then_some(contents);
        Ok(Self { server, listening, kubeconfig, contents, _held: held, collector, stop })
    }

    /// How kubectl finds it.
    pub(crate) fn kubectl(&self) -> String {
        let client = ClientArgs { kubeconfig: Some(self.kubeconfig.clone()), ..ClientArgs::default() };
        front::kubectl(&client, "default")
    }

    /// Ends every connection. The kubeconfig leads nowhere then, and goes, unless the server can come back with its data.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.collector.await {
            tracing::error!(%error, "the garbage collector failed");
        }
        self.listening.stop().await;
        // Somebody may have put another file in its place.
        if self.contents.as_deref().is_some_and(|contents| holds(&self.kubeconfig, contents).unwrap_or(false))
        {
            let _gone_already = std::fs::remove_file(&self.kubeconfig);
        }
    }
}

/// The CA, the token and the certificate that the arguments ask for; none for plain HTTP.
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

/// Whether a file is a kubeconfig that this command wrote; one that cannot be read is not known to be another's.
fn is_ours(file: &Path) -> bool {
    let mut begin = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut begin));
    read.is_err() || begin == MARK.as_bytes()
}

/// Whether a path is a file with these contents.
fn holds(file: &Path, contents: &str) -> io::Result<bool> {
    Ok(std::fs::metadata(file)?.is_file() && std::fs::read_to_string(file)? == contents)
}

/// The locks on a file that was written and, if there was one, on the file before it: whoever has opened that one finds it taken, too.
struct Held {
    _old: Option<File>,
    _new: File,
}

/// Writes a file that only its owner can read, whole or not at all; it would block as long as what another process got from this lives.
fn write_private(file: &Path, contents: &str) -> io::Result<Held> {
    let old = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        opened => Some(opened?),
    };
    old.as_ref().map_or(Ok(()), lock)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A temporary file is made with mode 0600. Its name, which an error would tell, is of no use to anybody.
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

/// Locks a file; not on Windows, where nobody could read it then.
fn lock(file: &File) -> io::Result<()> {
    if cfg!(unix) && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// `watchkeeper serve`: the control plane alone.
pub(crate) async fn serve(args: &ServeArgs, env: &Env, stop: &CancellationToken) -> Result<(), PlaneError> {
    let plane = Plane::start(args, env).await?;
    front::hint([format!("{} get namespaces", plane.kubectl())]);
    stop.cancelled().await;
    plane.stop().await;
    Ok(())
}
