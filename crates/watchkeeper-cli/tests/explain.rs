//! `watchkeeper explain` and `watchkeeper status`, on the sample controller of `watchkeeper up`.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use crate::program::{Program, folder};

#[allow(dead_code, reason = "it has more than is needed here")]
mod program;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    command.args(arguments).env_remove("KUBECONFIG").env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
    command
}

fn ask(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The answer to a GET of a URL such as `http://127.0.0.1:8080/`.
fn get(url: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_sample_controller_is_found_by_its_kubeconfig_and_explains_itself() {
    let (folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let mut up = Program::start(&["up", "--kubeconfig-out", file]);
    let line = up.until(&["explains", "http://127.0.0.1:"]);
    up.until(&["Synced"]);

    let page = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let shown = get(page);
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("<h1>Overview</h1>"), "{shown}");
    let address = page.trim_start_matches("http://").trim_end_matches('/');

    let explained = ask(&["explain", "foo", "example-foo", "--kubeconfig", file]);
    let lines = text(&explained.stdout);
    assert!(explained.status.success(), "{}", text(&explained.stderr));
    assert!(lines.starts_with("Foo default/example-foo\n"), "{lines}");
    assert!(lines.contains("controller    foos") && !lines.contains('\u{1b}'), "plain when piped: {lines}");

    let named = ask(&["explain", "Foo", "default/example-foo", "--address", address]);
    assert!(text(&named.stdout).starts_with("Foo default/example-foo\n"), "{}", text(&named.stderr));
    let coloured = command(&["explain", "foo", "example-foo", "--address", address])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    let coloured = text(&coloured.stdout);
    assert!(coloured.starts_with("\u{1b}[1mFoo default/example-foo\u{1b}[0m\n"), "{coloured:?}");

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

#[test]
fn a_program_that_may_not_be_read_says_which_permission_is_missing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4_096];
            assert!(stream.read(&mut request).unwrap() > 0);
            let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\nConnection: close\r\n\r\nforbidden";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    for arguments in [&["explain", "foo", "a"][..], &["status"]] {
        let refused = ask(&[arguments, &["--address", &address]].concat());
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{said}");
        assert!(
            said.contains(&address)
                && said.contains("may only be read with permission")
                && said.contains("nonResourceURLs /debug/*"),
            "{said}"
        );
    }
}
