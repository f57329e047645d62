//! A `watchkeeper serve` process to measure, pinned to one core if wanted.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use crate::informer::Failure;

/// A `watchkeeper serve` process; dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Its address, if without TLS.
    address: Option<SocketAddr>,
    _folder: TempDir,
}

impl Process {
    /// Starts it and waits for the line `ready`.
    pub(crate) fn start(program: &Path, args: &[&str]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(program);
        command.arg("serve").args(args).arg("--kubeconfig-out").arg(folder.path().join("kubeconfig"));
        let child = command
            .env_remove("RUST_LOG")
            .env_remove("CLICOLOR_FORCE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        // From here on, an early return ends it.
        let mut process = Self { child, address: None, _folder: folder };
        let mut line = String::new();
        let output = process.child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        if !line.starts_with("ready ") {
            return Err(format!("the server is not ready: {line:?}").into());
        }
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        process.address = url.map(str::parse).transpose()?;
        Ok(process)
    }

    /// Starts it pinned to the first core that this thread may use, and moves this thread to the other cores, if any.
    pub(crate) fn start_on_one_core(program: &Path, args: &[&str]) -> Result<Self, Failure> {
        let all = sched_getaffinity(None)?;
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).ok_or("no processor")?;
        let (mut one, mut others) = (CpuSet::new(), all);
        one.set(first);
        others.unset(first);
        // A process inherits where its parent may run.
        sched_setaffinity(None, &one)?;
        let process = Self::start(program, args);
        sched_setaffinity(None, if others.count() > 0 { &others } else { &all })?;
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        self.address.ok_or_else(|| "it has no plain address".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either may fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The `watchkeeper` binary next to this program.
pub(crate) fn beside_this() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?.with_file_name("watchkeeper");
    if program.exists() {
        return Ok(program);
    }
    let how = "build it with the same profile (cargo build --profile dist -p watchkeeper-cli), or name another with --watchkeeper";
    Err(format!("{} is not there: {how}", program.display()).into())
}
