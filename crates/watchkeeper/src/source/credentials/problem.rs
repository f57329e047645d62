//! Why credentials cannot be read, or not be used.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use kube_client::Error;
use tower::BoxError;

/// Why credentials cannot be used. Never contains any.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Problem {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("cannot use the client certificate: {0}")]
    Pair(&'static str),
    #[error("the token is what no header may hold")]
    NoHeader,
    #[error("cannot start the program")]
    Start(#[source] io::Error),
    #[error("the program failed: {0}")]
    Failed(ExitStatus),
    #[error("the program has not ended after {0:?}, and was killed")]
    Hung(Duration),
    #[error("the program asks for a terminal, and there is none")]
    NoTerminal,
    #[error("{0}")]
    Printed(&'static str),
    #[error("the renewal was interrupted")]
    Interrupted,
    #[error("cannot reach the identity provider")]
    Unanswered(#[source] BoxError),
    #[error("cannot use the identity provider: {0}")]
    Provider(&'static str),
    #[error("cannot set up TLS")]
    Tls(#[source] Error),
}
