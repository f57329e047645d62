//! A child process of a test: reads its lines, writes to it, sends signals, and kills it at the end.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use watchkeeper::Env;

/// How long a line may take to come. Nothing takes this long; a test that fails should end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A running program; killed when the test ends before it.
pub(crate) struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: UnboundedReceiver<String>,
    seen: Vec<String>,
    env: Env,
}

impl Program {
    pub(crate) fn start<A: AsRef<std::ffi::OsStr> + Debug>(
        env: &Env,
        program: &Path,
        arguments: &[A],
    ) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        let (sender, lines) = unbounded_channel();
        read(child.stdout.take().unwrap(), sender.clone());
        read(child.stderr.take().unwrap(), sender);
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        Self { name, input: child.stdin.take(), child, lines, seen: Vec::new(), env: env.clone() }
    }

    /// The next line that has all of `words`, on standard output or standard error.
    pub(crate) async fn until(&mut self, words: &[&str]) -> String {
        let found = async {
            while let Some(line) = self.lines.recv().await {
                self.seen.push(line.clone());
                if words.iter().all(|word| line.contains(word)) {
                    return Some(line);
                }
            }
            None
        };
        match self.env.clock.timeout(PATIENCE, found).await {
            Ok(Some(line)) => line,
            ended => panic!("{} has no line of {words:?} ({ended:?}); it said {:#?}", self.name, self.seen),
        }
    }

    /// The lines that were read so far.
    pub(crate) fn said(&self) -> &[String] {
        &self.seen
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -s {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub(crate) async fn exit(mut self) -> (ExitStatus, Vec<String>) {
        drop(self.input.take());
        let ended = async {
            while let Some(line) = self.lines.recv().await {
                self.seen.push(line)
            }
        };
        let in_time = self.env.clock.timeout(PATIENCE, ended).await;
        assert!(in_time.is_ok(), "{} does not end; it said {:#?}", self.name, self.seen);
        (self.child.wait().unwrap(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn read(from: impl std::io::Read + Send + 'static, into: UnboundedSender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _nobody_listens = into.send(line);
        }
    });
}
