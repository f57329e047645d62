//! A `watchkeeper` process under test: its lines, its signals and its exit.

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env};

/// Longer than any test takes, on a machine that is busy with builds.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running command; killed when the test ends without it, and after ten minutes, so that a test that waits for a line
/// that never comes fails and shows what it has seen.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) seen: Vec<String>,
    _watched: Sender<()>,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
        command.args(arguments);
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.env_remove("RUST_LOG").stderr(Stdio::piped());
        Self::run(command)
    }

    /// With the log level and the standard error of `command`.
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("CLICOLOR_FORCE")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (watched, over) = mpsc::channel();
        let id = child.id().to_string();
        thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                Command::new("kill").args(["-s", "KILL", &id]).status().unwrap();
            }
        });
        Self { child, lines, seen: Vec::new(), _watched: watched }
    }

    /// The first line that has all of `words`, seen already or still to come: lines of different kinds have no fixed order.
    pub(crate) fn until(&mut self, words: &[&str]) -> String {
        let fits = |line: &String| words.iter().all(|word| line.contains(word));
        if let Some(line) = self.seen.iter().find(|line| fits(line)) {
            return line.clone();
        }
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            self.seen.push(line.clone());
            if fits(&line) {
                return line;
            }
        }
        let errors = self.errors();
        panic!("it ended without a line of {words:?}; it said {:#?} and {errors}", self.seen);
    }

    pub(crate) fn signal(&self, name: &str) {
        self.signals(&[name]);
    }

    /// One right after the other.
    pub(crate) fn signals(&self, names: &[&str]) {
        let kills: String = names.iter().map(|name| format!("kill -s {name} {};", self.child.id())).collect();
        assert!(Command::new("sh").args(["-ec", &kills]).status().unwrap().success(), "{kills}");
    }

    pub(crate) fn exit(mut self) -> (ExitStatus, String) {
        // A full pipe would keep it from ending.
        self.lines.by_ref().for_each(drop);
        (self.child.wait().unwrap(), self.errors())
    }

    pub(crate) fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut text).unwrap();
        }
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    (folder, kubeconfig)
}

pub(crate) async fn connect(kubeconfig: &Path) -> Client {
    let args = ClientArgs { kubeconfig: Some(kubeconfig.to_owned()), ..ClientArgs::default() };
    args.connect(&Env::system()).await.unwrap()
}
