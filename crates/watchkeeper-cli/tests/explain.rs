//! `watchkeeper explain` and `watchkeeper status`, on the sample controller of `watchkeeper up`.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::{Command, Output};

use crate::program::{Program, folder};

#[allow(dead_code, reason = "it has more than is needed here")]
mod program;

fn ask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_watchkeeper")).args(arguments).env_remove("KUBECONFIG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_sample_controller_is_found_by_its_kubeconfig_and_explains_itself() {
    let (folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let mut up = Program::start(&["up", "--kubeconfig-out", file]);
    up.until(&["explains", "http://127.0.0.1:"]);
    up.until(&["Synced"]);

    let explained = ask(&["explain", "foo", "example-foo", "--kubeconfig", file]);
    let lines = text(&explained.stdout);
    assert!(explained.status.success(), "{}", text(&explained.stderr));
    assert!(lines.starts_with("Foo default/example-foo\n"), "{lines}");
    assert!(lines.contains("controller    foos") && !lines.contains('\u{1b}'), "plain when piped: {lines}");

    let json =
        ask(&["explain", "deployments.apps", "default/example-foo", "--kubeconfig", file, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["views"][0]["mapsTo"][0], "default/example-foo");

    let status = text(&ask(&["status", "--kubeconfig", file]).stdout);
    assert!(
        status.contains("sample-controller  running") && status.contains("deployments  watching"),
        "{status}"
    );

    let wrong = ask(&["explain", "fooo", "x", "--kubeconfig", file]);
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("did you mean Foo?"), "{}", text(&wrong.stderr));

    up.signal("INT");
    assert!(up.exit().0.success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
