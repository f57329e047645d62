//! A program explains why it cannot work.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// The program, with such a kubeconfig.
fn quotas(kubeconfig: &str) -> (TempDir, Command) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_quotas"));
    command
        .args(["--metrics-bind-address", "0"])
        .env("KUBECONFIG", file)
        .env("NO_COLOR", "1")
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped());
    (folder, command)
}

#[test]
fn an_error_is_reported_with_its_causes() {
    let (_folder, mut program) = quotas("clusters: 5");
    let output = program.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("ERROR") && told.contains("kubeconfig: clusters is not as it should be"), "{told}");
}

#[test]
fn a_server_that_does_not_answer_is_reported_while_it_is_waited_for() {
    // Nobody listens at port 1.
    let (_folder, mut program) = quotas(
        r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}"#,
    );
    let mut program = program.spawn().unwrap();
    let lines = BufReader::new(program.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (told, hear) = mpsc::channel();
    thread::spawn(move || lines.for_each(|line| drop(told.send(line))));
    let heard = std::iter::from_fn(|| hear.recv_timeout(Duration::from_secs(120)).ok());
    let reported = { heard }.find(|line| line.contains("cannot reach the API server"));
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(reported.is_some());
}
