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
use tokio::io::AsyncReadExt;
use tower::BoxError;

use super::super::connection;
use crate::clock::Clock;

/// No answer of an identity provider, nor what a program prints, is larger.
const ANSWER_CAP: usize = 1 << 20;

/// What credentials are read from. Tests have their own.
pub(crate) trait Outside: Send + Sync + 'static {
    /// Returns the contents of a file.
    fn read(&self, file: &Path) -> io::Result<Vec<u8>>;

    /// Runs a program to its end. Dropped, it kills the program, and its process group if it has one of its own.
    fn run(&self, program: Command) -> BoxFuture<'static, io::Result<Output>>;

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

    fn run(&self, program: Command) -> BoxFuture<'static, io::Result<Output>> {
        Box::pin(output(program))
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

/// Runs a program, and returns what it has printed.
async fn output(program: Command) -> io::Result<Output> {
    let mut child = tokio::process::Command::from(program).kill_on_drop(true).spawn()?;
    let group = Group(child.id());
    let mut stdout = Vec::new();
    if let Some(printed) = child.stdout.take() {
        printed.take(ANSWER_CAP as u64).read_to_end(&mut stdout).await?;
    }
    // Last, so that until then the number of the group is not given to another.
    let status = child.wait().await;
    group.ended();
    Ok(Output { status: status?, stdout, stderr: Vec::new() })
}

/// The process group of a program, which is killed when this is dropped.
struct Group(Option<u32>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.0.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            // There is none if the program stayed in ours.
            let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).process_group(0);
        command
    }

    #[tokio::test]
    async fn a_program_runs_to_its_end() {
        let machine = Machine(Clock::system());
        let output = machine.run(shell("echo one; exit 3")).await.unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"one\n"[..]));
        assert!(machine.run(Command::new("/no/such/program")).await.is_err());
    }

    #[tokio::test]
    async fn a_program_that_is_given_up_is_killed_with_all_that_it_has_started() {
        // The pipe is open as long as one of them runs.
        let (reader, writer) = io::pipe().unwrap();
        let mut command = shell("sleep 3600 & echo up >&2; wait");
        command.stderr(writer);
        let run = tokio::spawn(Machine(Clock::system()).run(command));
        let mut reader = BufReader::new(reader);
        let (mut reader, line) = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            (reader, line)
        })
        .await
        .unwrap();
        assert_eq!(line, "up\n");
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        let read = move || reader.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(tokio::task::spawn_blocking(read).await.unwrap(), 0);
    }
}
