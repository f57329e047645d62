//! Child processes of a benchmark, whose time and memory do not count as its own.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::informer::Failure;

/// A `bench serve` child process; dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    url: http::Uri,
}

#[derive(Deserialize)]
struct Ready {
    url: String,
}

impl Server {
    /// Starts `bench serve` with these arguments, on a free port.
    pub(crate) fn start(args: &[&str]) -> Result<Self, Failure> {
        let mut command = this_program("serve", args)?;
        let child = command.args(["--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        // From here on, an early return ends it.
        let mut server = Self { child, url: http::Uri::default() };
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().ok_or("the server has no output")?).read_line(&mut line)?;
        let ready: Ready =
            serde_json::from_str(&line).map_err(|_| format!("the server is not ready: {line:?}"))?;
        server.url = ready.url.parse()?;
        Ok(server)
    }

    /// Its address.
    pub(crate) fn url(&self) -> &http::Uri {
        &self.url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either may fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs another benchmark to its end and returns the lines it prints.
pub(crate) fn run(benchmark: &str, args: &[&str]) -> Result<Vec<Value>, Failure> {
    let output = this_program(benchmark, args)?.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("bench {benchmark} {} failed: {}", args.join(" "), output.status).into());
    }
    let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    Ok(lines.collect::<Result<_, _>>()?)
}

fn this_program(benchmark: &str, args: &[impl AsRef<OsStr>]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(benchmark).args(args);
    Ok(command)
}
