//! Where credentials come from: files, programs and identity providers.

use std::io;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Output};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use kube_client::Config;
use kube_client::client::Body;
use tower::BoxError;

use super::super::connection;
use crate::clock::Clock;

/// No answer of an identity provider is larger.
const ANSWER_CAP: usize = 1 << 20;

/// What credentials are read from. Tests have their own.
pub(crate) trait Outside: Send + Sync + 'static {
    /// Returns the contents of a file.
    fn read(&self, file: &Path) -> io::Result<Vec<u8>>;

    /// Runs a program to its end. Blocks.
    fn run(&self, program: Command) -> io::Result<Output>;

    /// Returns whether somebody can be asked for a password.
    fn has_terminal(&self) -> bool;

    /// Sends a request to the server of `provider`.
    fn ask(
        &self,
        provider: Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, BoxError>>;
}

/// The machine that the process runs on.
pub(crate) struct Machine(pub(crate) Clock);

impl Outside for Machine {
    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(file)
    }

    fn run(&self, mut program: Command) -> io::Result<Output> {
        program.output()
    }

    fn has_terminal(&self) -> bool {
        io::stdin().is_terminal()
    }

    fn ask(
        &self,
        provider: Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, BoxError>> {
        let clock = self.0.clone();
        Box::pin(async move {
            let answer = connection::ask_once(&provider, &clock, request).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_CAP).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        })
    }
}
