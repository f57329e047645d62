//! An operator process: ours, or another program that takes the same flags and commands.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use watchkeeper::clock::Clock;

use crate::informer::Failure;
use crate::measure::{Memory, cpu_time_of, memory_of};

/// How long reconciles may take before the run fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whose operator is measured.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Ours,
    /// The program in this file, on controller-runtime.
    Theirs(PathBuf),
}

/// An operator that runs; dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Operator {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    clock: Clock,
}

impl Side {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours => "watchkeeper",
            Self::Theirs(_) => "controller-runtime",
        }
    }

    /// How a reconcile finds that there is nothing to do.
    pub(crate) fn skip(&self) -> &'static str {
        match self {
            Self::Ours => "hashes of the last apply and its answer, of the desired and the cached child",
            Self::Theirs(_) => "DeepDerivative of the desired and the cached child",
        }
    }

    fn command(&self) -> Result<Command, Failure> {
        Ok(match self {
            Self::Ours => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("operator");
                command
            }
            Self::Theirs(program) => Command::new(program),
        })
    }

    fn program(&self) -> &Path {
        match self {
            Self::Ours => Path::new("bench operator"),
            Self::Theirs(program) => program,
        }
    }
}

impl Operator {
    pub(crate) fn start(
        side: &Side,
        server: &str,
        workers: usize,
        always: bool,
        clock: &Clock,
    ) -> Result<Self, Failure> {
        let mut command = side.command()?;
        command.args(["--server", server, "--workers", &workers.to_string()]);
        command.args(always.then_some("--always")).env_remove("RUST_LOG");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.map_err(|error| format!("cannot start {}: {error}", side.program().display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err("an operator without input or output".into());
        };
        Ok(Self { child, input, output: BufReader::new(output), clock: clock.clone() })
    }

    /// How many reconciles have ended.
    pub(crate) fn reconciles(&mut self) -> Result<u64, Failure> {
        self.input.write_all(b"count\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().map_err(|_| format!("an operator counts {line:?} reconciles").into())
    }

    /// Enqueues objects, without an event of theirs.
    pub(crate) fn enqueue(&mut self, keys: &[String]) -> Result<(), Failure> {
        let mut commands = String::new();
        for key in keys {
            let _ = writeln!(commands, "enqueue {key}");
        }
        Ok(self.input.write_all(commands.as_bytes())?)
    }

    /// Waits until so many reconciles have ended.
    pub(crate) async fn wait_for(&mut self, reconciles: u64) -> Result<(), Failure> {
        let started = self.clock.now();
        loop {
            let ended = self.reconciles()?;
            if ended >= reconciles {
                return Ok(());
            }
            if self.clock.now() - started > PATIENCE {
                return Err(format!("{ended} reconciles have ended, and not {reconciles}").into());
            }
            self.clock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until at least so many reconciles have ended, and none for a second. Returns their number.
    pub(crate) async fn settle(&mut self, reconciles: u64) -> Result<u64, Failure> {
        self.wait_for(reconciles).await?;
        loop {
            let before = self.reconciles()?;
            self.clock.sleep(Duration::from_secs(1)).await;
            if self.reconciles()? == before {
                return Ok(before);
            }
        }
    }

    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        Ok(cpu_time_of(self.child.id())?)
    }

    pub(crate) fn memory(&self) -> Result<Memory, Failure> {
        Ok(memory_of(self.child.id())?)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // Either may fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
