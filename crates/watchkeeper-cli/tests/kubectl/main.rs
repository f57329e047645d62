//! kubectl prints the same on our server as on a real one: the steps of the transcripts, with the kubectl that `WATCHKEEPER_TEST_KUBECTL` names.
//!
//! Each transcript runs on `watchkeeper serve` and, where its variable names one, on a fresh real cluster: `transcript.txt` on one that has the
//! garbage collector and the namespace controller and no other (`WATCHKEEPER_TEST_KUBECONFIG`), `workloads.txt` on one with all controllers
//! and our fake nodes (`WATCHKEEPER_TEST_KUBECONFIG_NODES`). `WATCHKEEPER_TEST_RECORD=1` takes the answers of that cluster for the expected
//! ones, and without a cluster those of our server for what is expected of it where it is known to differ.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod mask;
mod transcript;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use mask::Masks;
use tempfile::TempDir;
use transcript::{Outcome, Step};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");

/// A transcript, and where it runs.
struct Suite {
    file: &'static str,
    /// The variable that names the kubeconfig of a real cluster.
    cluster: &'static str,
    /// The number of fake nodes of ours.
    nodes: &'static str,
}

const SUITES: [Suite; 2] = [
    Suite { file: "transcript.txt", cluster: "WATCHKEEPER_TEST_KUBECONFIG", nodes: "0" },
    Suite { file: "workloads.txt", cluster: "WATCHKEEPER_TEST_KUBECONFIG_NODES", nodes: "1" },
];

/// A user with a home, a folder with manifests, a kubectl and a kubeconfig.
struct User {
    home: TempDir,
    kubectl: PathBuf,
    masks: Masks,
}

impl User {
    fn new(kubectl: &Path, kubeconfig: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(Path::new(FOLDER).join("files")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), home.path().join(file.file_name())).unwrap();
        }
        // A copy: its user chooses a namespace.
        std::fs::copy(kubeconfig, home.path().join("kubeconfig")).unwrap();
        Self { home, kubectl: kubectl.into(), masks: Masks::new() }
    }

    fn run(&self, command: &str) -> Outcome {
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{inherited}", self.kubectl.parent().unwrap().display());
        let output = Command::new("timeout")
            .args(["60", "sh", "-c", &format!("exec 2>&1; {command}")])
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().map(|line| self.masks.apply(line)).collect();
        Outcome { code: output.status.code().unwrap_or(-1), lines }
    }
}

/// `watchkeeper serve`; killed in the end.
struct Server(Child);

impl Server {
    fn start(kubeconfig: &Path, nodes: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_watchkeeper"))
            .args(["serve", "--nodes", nodes, "--kubeconfig-out", kubeconfig.to_str().unwrap()])
            // As on the real cluster, which is started without this plugin.
            .args(["--admission", "*,-ServiceAccount"])
            .env_remove("RUST_LOG")
            .env_remove("CLICOLOR_FORCE")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("ready ")), "the server does not start");
        // Nobody else reads what it says next.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// What was got instead of what was expected, line by line.
fn complain(server: &str, step: &Step, expected: &Outcome, got: &Outcome) {
    println!("{server}: $ {}", step.command);
    if expected.code != got.code {
        println!("  exit code {} instead of {}", got.code, expected.code);
    }
    let shared = expected.lines.iter().zip(&got.lines).take_while(|(one, other)| one == other).count();
    for line in expected.lines.iter().skip(shared) {
        println!("  - {line}");
    }
    for line in got.lines.iter().skip(shared) {
        println!("  + {line}");
    }
}

fn on_the_real_one(steps: &mut [Step], user: &User, record: bool) -> usize {
    let mut failed = 0;
    for step in steps {
        let got = user.run(&step.command);
        if record {
            step.real = got;
        } else if got != step.real {
            complain("a real cluster", step, &step.real, &got);
            failed += 1;
        }
    }
    failed
}

fn on_ours(steps: &mut [Step], user: &User, record: bool) -> usize {
    let mut failed = 0;
    for step in steps {
        let got = user.run(&step.command);
        if record && let Some(difference) = &mut step.difference {
            difference.ours = got;
            continue;
        }
        let expected = step.difference.as_ref().map_or(&step.real, |difference| &difference.ours);
        if got != *expected {
            complain("our server", step, expected, &got);
            failed += 1;
        } else if step.difference.is_some() && *expected == step.real {
            println!("our server: $ {}\n  no longer differs: take the lines from ~ on out", step.command);
            failed += 1;
        }
    }
    failed
}

fn main() -> ExitCode {
    let Some(kubectl) = std::env::var_os("WATCHKEEPER_TEST_KUBECTL").map(PathBuf::from) else {
        println!(
            "skipped: WATCHKEEPER_TEST_KUBECTL names no kubectl (docs/reference.md says how to have one)"
        );
        return ExitCode::SUCCESS;
    };
    let record = std::env::var_os("WATCHKEEPER_TEST_RECORD").is_some();
    let failed: usize = SUITES.iter().map(|suite| play(suite, &kubectl, record)).sum();
    println!("{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the steps of a transcript; returns how many went wrong.
fn play(suite: &Suite, kubectl: &Path, record: bool) -> usize {
    println!("{}:", suite.file);
    let file = Path::new(FOLDER).join(suite.file);
    let mut steps = transcript::read(&std::fs::read_to_string(&file).unwrap());
    let mut failed = 0;
    let cluster = std::env::var_os(suite.cluster).map(PathBuf::from);
    if let Some(kubeconfig) = &cluster {
        failed += on_the_real_one(&mut steps, &User::new(kubectl, kubeconfig), record);
        println!("{} steps on a real cluster", steps.len());
    } else {
        println!("not on a real cluster: {} names none", suite.cluster);
    }
    if !record || cluster.is_none() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let _server = Server::start(&kubeconfig, suite.nodes);
        failed += on_ours(&mut steps, &User::new(kubectl, &kubeconfig), record);
        println!("{} steps on our server", steps.len());
    }
    if record {
        std::fs::write(&file, transcript::write(&steps)).unwrap();
    }
    failed
}
