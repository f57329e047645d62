//! No secret reaches an output: not the log at TRACE, nor an error, a report, an event or a page.
//!
//! Each test runs this program again, as a child with the log of a real program at TRACE, and lets it use marked Secrets and
//! credentials. Whatever the child prints, including panics and what it gets from its own admin pages, must have none of the marks.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod credentials;
mod faults;
mod informers;
mod marks;
mod operator;

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use watchkeeper::process::LogArgs;
use watchkeeper::report::WithCauses;

/// Set for the child, to what it does.
const ROLE: &str = "WATCHKEEPER_CANARY";

/// Set for the child, to a folder with a client certificate and its key.
const PAIR: &str = "WATCHKEEPER_CANARY_PAIR";

/// Logged by the child, to show that its output is seen.
const CONTROL: &str = "this line is seen";

/// Runs a child that does `role`, and returns its output and the lines of it with a mark.
fn output_of(role: &str) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(["canary".to_owned()]).unwrap();
    let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let printed = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": key},
    });
    for (file, text) in
        [("client.crt", &certificate), ("client.key", &key), ("printed", &printed.to_string())]
    {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(ROLE, role)
        .env(PAIR, folder.path())
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "1")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut output = child.stdout;
    output.extend_from_slice(&child.stderr);
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(child.status.success(), "{output}");
    let own = marks::of_key(&key, &pair.signing_key.serialize_der());
    let leaks = output.lines().filter_map(|line| marks::leak_of(line, &own)).collect();
    (output, leaks)
}

/// Checks the output of a child that does `role`, and that it got as far as each of `steps`.
#[track_caller]
fn assert_silent(role: &str, steps: &[&str]) {
    let (output, leaks) = output_of(role);
    assert!(output.contains(CONTROL) && output.contains("TRACE"), "nothing is logged:\n{output}");
    for step in steps {
        assert!(output.contains(step), "{step:?} is not in\n{output}");
    }
    assert!(leaks.is_empty(), "{} lines have secrets:\n{}", leaks.len(), leaks.join("\n"));
}

/// What the child does; nothing if this is not one.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    LogArgs::default().install("trace").unwrap();
    tracing::trace!("{CONTROL}");
    if role == "faults" {
        return faults::run();
    }
    // There is no socket where sources are scripted: time need not pass.
    let mut runtime = match &*role {
        "informers" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().start_paused(role == "informers").build().unwrap();
    runtime.block_on(async {
        match &*role {
            "operator" => operator::run().await,
            "informers" => informers::run().await,
            "credentials" => credentials::run().await,
            "leak" => tracing::trace!("a leak: {}", marks::encoded(marks::SECRET)),
            "leak of a key" => {
                let key = std::fs::read_to_string(credentials::pair().join("client.key")).unwrap();
                tracing::trace!("a leak: {}", marks::encoded(&key));
                key.lines().for_each(|line| tracing::trace!("another: {line}"));
            }
            other => panic!("{other}"),
        }
    });
}

/// Prints an error in every form that a program may.
fn show(what: &str, error: &(dyn Error + 'static)) {
    println!("{what}: {} / {error:?} / {error:#?}", WithCauses(error));
}

#[test]
fn a_leak_is_found() {
    let (_, leaks) = output_of("leak");
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    let (_, leaks) = output_of("leak of a key");
    // All in one line, and each line between those that begin and end it.
    assert!(leaks.len() > 3, "{leaks:?}");
}

#[test]
fn an_operator_with_secrets_keeps_them() {
    let steps = [
        "good was reconciled",
        "refused was reconciled",
        "immutable was reconciled",
        "large was reconciled",
        "stale was reconciled",
        "panicked: as planned",
        "# EOF",
        "event ",
        "TokenReview",
    ];
    assert_silent("operator", &steps);
}

#[test]
fn informers_keep_what_they_cannot_read() {
    assert_silent("informers", &["unreadable: ", "report: ", "refused by a proxy", "cut off"]);
}

#[test]
fn credentials_are_kept() {
    let users = credentials::users(Path::new(""));
    let steps: Vec<String> = users.iter().map(|(name, _)| format!("user {name}: ")).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    assert_silent("credentials", &steps);
}

#[test]
fn secrets_are_kept_through_faults() {
    assert_silent("faults", &["all schedules have passed"]);
}
