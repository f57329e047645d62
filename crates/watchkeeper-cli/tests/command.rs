//! The `watchkeeper` command, with real processes, signals and sockets; every wait is for a line or an exit.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(unix)]

mod program;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::{ObjectName, SharedInformerFactory};

use program::{Program, connect, folder};

#[tokio::test]
async fn up_reconciles_the_example_and_stops_cleanly_on_sigint() {
    for queue in ["ordered", "delta"] {
        let (_folder, kubeconfig) = folder();
        let mut program =
            Program::start(&["--queue", queue, "--kubeconfig-out", kubeconfig.to_str().unwrap()]);
        let ready = program.until(&["ready", "https://127.0.0.1:"]);
        assert!(ready.starts_with("ready "), "{ready}");
        let mode = std::fs::metadata(&kubeconfig).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "written before the line, for its owner only");
        connect(&kubeconfig).await.kube().apiserver_version().await.unwrap();
        program.until(&["foo", "default/example-foo", "wants Deployment"]);
        program.until(&["deployment", "default/example-foo", "created with 1 replica"]);
        program.until(&["foo", "default/example-foo", "status written: 1 of 1 replica available"]);
        program.until(&["event", "default/example-foo", "Normal Synced: Foo synced successfully"]);
        program.until(&["queue", "foos", "0 waiting", "adds"]);
        assert!(
            !program.seen.iter().any(|line| line.contains('\x1b')),
            "not a terminal: {:#?}",
            program.seen
        );
        program.signal("INT");
        let (status, errors) = program.exit();
        assert!(status.success(), "{errors}");
        assert!(!kubeconfig.exists(), "it leads nowhere any more");
    }
}

#[tokio::test]
async fn the_sample_controller_runs_on_a_server_of_another_process() {
    let (_folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let mut server = Program::start(&["serve", "--kubeconfig-out", file]);
    server.until(&["ready"]);
    // The other `up` finds the server by its kubeconfig, and brings CRD, controller and example.
    let mut up = Program::start(&["up", "--kubeconfig", file]);
    up.until(&["deployment", "default/example-foo", "created"]);
    up.signal("TERM");
    assert!(up.exit().0.success());
    let controller =
        Program::start(&["sample-controller", "--kubeconfig", file, "--admin-address", "127.0.0.1:0"]);
    let client = connect(&kubeconfig).await;
    let (sender, mut added) = tokio::sync::mpsc::unbounded_channel();
    let factory = SharedInformerFactory::builder(&client).build();
    let handler = on_change(move |change: Change<'_, Deployment>| {
        if let Change::Added { object, .. } = change {
            sender.send(object.uid().to_owned()).unwrap();
        }
    });
    factory.informer::<Deployment>().add_handler(handler).unwrap();
    factory.start(&CancellationToken::new());
    let first = added.recv().await.unwrap();
    client.api::<Deployment>().delete(&ObjectName::namespaced("default", "example-foo")).await.unwrap();
    let second = added.recv().await.unwrap();
    assert_ne!(first, second);
    controller.signal("TERM");
    assert!(controller.exit().0.success());
    server.signal("TERM");
    assert!(server.exit().0.success());
}

#[test]
fn on_a_cluster_it_says_what_it_creates_there_and_at_the_end_how_to_remove_it() {
    let (folder, kubeconfig) = folder();
    let mut server = Program::start(&["serve", "--kubeconfig-out", kubeconfig.to_str().unwrap()]);
    let ready = server.until(&["ready"]);
    let url = ready.split_whitespace().find(|word| word.starts_with("https://")).unwrap();
    let contents = std::fs::read_to_string(&kubeconfig).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    std::fs::write(&elsewhere, contents.replace("namespace: default", "namespace: mine")).unwrap();
    let file = elsewhere.to_str().unwrap();

    let mut up = Program::start(&["up", "--kubeconfig", file]);
    up.until(&["deployment", "default/example-foo", "created"]);
    assert_eq!(up.seen[0], format!("on {url} (context watchkeeper)"));
    assert!(up.seen[1].contains("creates the Foo CRD and default/example-foo"), "{:#?}", up.seen);
    let kubectl = format!("kubectl --kubeconfig {file} -n default");
    up.until(&[&kubectl, "patch foo example-foo"]);
    up.signal("INT");
    up.until(&["created objects stay"]);
    up.until(&[&format!("{kubectl} delete crd foos.samplecontroller.k8s.io")]);
    assert!(
        up.seen.iter().filter(|line| line.ends_with("delete foo example-foo")).count() == 2,
        "{:#?}",
        up.seen
    );
    assert!(up.exit().0.success());

    let flags = ["--context", "watchkeeper", "--master", url, "--no-example"];
    let mut again = Program::start(&[&["up", "--kubeconfig", file][..], &flags].concat());
    again.until(&[&format!(
        "kubectl --kubeconfig {file} --context watchkeeper --server {url} -n default get foos"
    )]);
    again.until(&["queue", "foos", "0 waiting", "adds"]);
    again.signal("INT");
    again.lines.by_ref().map_while(Result::ok).for_each(|line| again.seen.push(line));
    assert!(
        !again.seen.iter().any(|line| line.contains("created objects stay")),
        "it created nothing: {:#?}",
        again.seen
    );
    assert!(again.exit().0.success());
}

#[tokio::test]
async fn what_was_there_before_was_not_created_and_what_no_foo_owns_is_left_out() {
    let (folder, kubeconfig) = folder();
    let (data, file) = (folder.path().join("data"), kubeconfig.to_str().unwrap());
    let start = || Program::start(&["up", "--data-dir", data.to_str().unwrap(), "--kubeconfig-out", file]);
    let mut first = start();
    first.until(&["deployment", "default/example-foo", "created with 1 replica"]);
    let mut foreign = sample_controller::new_deployment(&sample_controller::example());
    (foreign.metadata.name, foreign.metadata.owner_references) = (Some("foreign".to_owned()), None);
    connect(&kubeconfig).await.api::<Deployment>().create(&foreign).await.unwrap();
    first.signal("INT");
    assert!(first.exit().0.success());
    let mut second = start();
    second.until(&["deployment", "default/example-foo", "exists with 1 replica"]);
    second.until(&["queue", "foos", "0 waiting", "adds"]);
    second.signal("INT");
    second.lines.by_ref().map_while(Result::ok).for_each(|line| second.seen.push(line));
    let is_wrong = |line: &String| line.contains("created with") || line.contains("foreign");
    assert!(!second.seen.iter().any(is_wrong), "{:#?}", second.seen);
    assert!(second.exit().0.success());
}

/// `serve`, with SIGHUP as `how` says, whatever it is here.
#[cfg(target_os = "linux")]
fn serve_with_hangup(how: &str, kubeconfig: &Path) -> Program {
    let mut env = Command::new("env");
    env.args([&format!("--{how}-signal=HUP"), env!("CARGO_BIN_EXE_watchkeeper"), "serve"]);
    env.arg("--kubeconfig-out").arg(kubeconfig);
    let mut program = Program::spawn(env);
    program.until(&["ready"]);
    program
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_terminal_stops_it_cleanly_however_often_it_is_told() {
    let (_folder, kubeconfig) = folder();
    let program = serve_with_hangup("default", &kubeconfig);
    program.signal("HUP");
    program.signal("HUP");
    let (status, errors) = program.exit();
    assert!(status.success(), "{status} {errors}");
    assert!(!kubeconfig.exists(), "it leads nowhere any more");
}

#[test]
#[cfg(target_os = "linux")]
fn a_command_that_is_to_outlive_its_terminal_goes_on_ignoring_its_end() {
    let (_folder, kubeconfig) = folder();
    let program = serve_with_hangup("ignore", &kubeconfig);
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "{ignored}");
}

#[test]
fn plain_http_has_no_token_and_stays_on_loopback() {
    let (_folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let mut server = Program::start(&["serve", "--insecure-http", "--kubeconfig-out", file]);
    server.until(&["ready", "http://127.0.0.1:"]);
    let contents = std::fs::read_to_string(&kubeconfig).unwrap();
    assert!(!contents.contains("token:"), "{contents}");
    server.signal("INT");
    assert!(server.exit().0.success());
    let refused =
        Program::start(&["serve", "--insecure-http", "--listen", "0.0.0.0:0", "--kubeconfig-out", file]);
    let (status, errors) = refused.exit();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("loopback"), "{errors}");
}

#[tokio::test]
async fn a_server_with_a_data_directory_comes_back_as_it_was() {
    let (parent, kubeconfig) = folder();
    let data = parent.path().join("data");
    let (data, file) = (data.to_str().unwrap(), kubeconfig.to_str().unwrap());
    let start = |address: &str| {
        Program::start(&["serve", "--data-dir", data, "--listen", address, "--kubeconfig-out", file])
    };
    let mut server = start("127.0.0.1:0");
    let ready = server.until(&["ready", "https://"]);
    assert!(server.until(&["for development and tests"]).contains(data));
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix("https://")).unwrap();
    let client = connect(&kubeconfig).await;
    let deployment = sample_controller::new_deployment(&sample_controller::example());
    client.api::<Deployment>().create(&deployment).await.unwrap();
    // Another one cannot have the folder meanwhile.
    let (status, errors) = start("127.0.0.1:0").exit();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains(data) && errors.contains("in use by another server"), "{errors}");
    let told = std::fs::read_to_string(&kubeconfig).unwrap();
    server.signal("KILL");
    server.exit();
    let mut server = start(address);
    server.until(&["ready", address]);
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), told, "the same CA, token and port");
    let name = ObjectName::namespaced("default", "example-foo");
    // The same client; it may first find its old connection closed.
    let deployments = client.api::<Deployment>();
    let found = match deployments.get(&name).await {
        Ok(found) => found,
        Err(_) => deployments.get(&name).await.unwrap(),
    };
    assert!(found.metadata.uid.is_some());
    server.signal("TERM");
    assert!(server.exit().0.success());
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), told, "kept like the data it leads to");
    let mode = std::fs::metadata(&kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut server = start(address);
    server.until(&["ready", address]);
    assert!(connect(&kubeconfig).await.api::<Deployment>().get(&name).await.is_ok());
    server.signal("TERM");
    assert!(server.exit().0.success());
}

#[test]
fn a_pipe_is_no_place_for_a_kubeconfig() {
    let (_folder, kubeconfig) = folder();
    assert!(Command::new("mkfifo").arg(&kubeconfig).status().unwrap().success());
    let (status, errors) =
        Program::start(&["serve", "--kubeconfig-out", kubeconfig.to_str().unwrap()]).exit();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("is not a regular file: choose another --kubeconfig-out"), "{errors}");
}

#[test]
fn every_help_that_offers_a_server_says_what_it_is_for() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["up", "--help"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_watchkeeper")).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("for development and tests, not for production"), "{text}");
    }
}

#[test]
fn a_file_of_somebody_else_is_neither_overwritten_nor_removed() {
    let (_folder, kubeconfig) = folder();
    std::fs::write(&kubeconfig, "apiVersion: v1").unwrap();
    let (status, errors) = Program::start(&["--kubeconfig-out", kubeconfig.to_str().unwrap()]).exit();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("not written by watchkeeper"), "{errors}");
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), "apiVersion: v1");
}

#[test]
fn a_kubeconfig_belongs_to_its_writer_as_long_as_it_runs() {
    let (_folder, kubeconfig) = folder();
    let start = || Program::start(&["serve", "--kubeconfig-out", kubeconfig.to_str().unwrap()]);
    let mut first = start();
    first.until(&["ready"]);
    let told = std::fs::read_to_string(&kubeconfig).unwrap();
    let (status, errors) = start().exit();
    assert_eq!(status.code(), Some(1));
    assert!(
        errors.contains("in use by another watchkeeper") && errors.contains("--kubeconfig-out"),
        "{errors}"
    );
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), told, "the first still runs");
    first.signal("KILL");
    first.exit();
    assert!(kubeconfig.exists());
    let mut second = start();
    second.until(&["ready"]);
    assert_ne!(std::fs::read_to_string(&kubeconfig).unwrap(), told);
    // What somebody puts in its place is theirs.
    std::fs::write(&kubeconfig, "apiVersion: v1").unwrap();
    second.signal("INT");
    assert!(second.exit().0.success() && kubeconfig.exists());
}

#[test]
fn what_cannot_be_used_is_named_and_what_to_do_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = &listener.local_addr().unwrap().to_string();
    let refusing = "http://127.0.0.1:1";
    for (arguments, words) in [
        (&["sample-controller", "--kubeconfig", "/nonexistent/file"][..], &["/nonexistent/file"][..]),
        (
            &["serve", "--kubeconfig-out", "/nonexistent/file"],
            &[
                "cannot write the kubeconfig /nonexistent/file: No such file or directory",
                "help: create its directory",
            ],
        ),
        (
            &["serve", "--kubeconfig-out", "/dev/null/file"],
            &["cannot write the kubeconfig /dev/null/file: Not a directory", "help: choose another file"],
        ),
        (&["serve", "--listen", "127.0.0.1"], &["--listen", "127.0.0.1:8443"]),
        (&["serve", "--listen", used], &["cannot listen on", used, "help: another program listens there"]),
        (
            &["sample-controller", "--kubeconfig", "/nonexistent/file"],
            &["help: check --kubeconfig", "watchkeeper serve"],
        ),
        (
            &["up", "--master", refusing],
            &["cannot reach the API server", "help: check that the cluster is up"],
        ),
        (&["--workers", "0"], &["--workers", "would be zero"]),
        (&["--queue", "heap"], &["--queue", "heap", "delta"]),
        (&["serve", "--data-dir", "/dev/null"], &["data directory", "/dev/null"]),
        (&["serve", "--tls-cert", "/a"], &["--tls-key"]),
        (
            &["serve", "--tls-cert", "/nonexistent/a", "--tls-key", "/b"],
            &["/nonexistent/a", "help: --tls-cert takes a certificate"],
        ),
        (&["up", "--master", refusing, "--data-dir", "/b"], &["--data-dir", "use one or the other"]),
        (&["up", "--master", refusing, "--listen", "127.0.0.1:0"], &["--listen", "use one or the other"]),
        (&["up", "--master", refusing, "--crds", "/a", "--watch", "b"], &["--crds", "use one or the other"]),
        (
            &["up", "--master", refusing, "--kubeconfig-out", "/a"],
            &["--kubeconfig-out", "use one or the other"],
        ),
        (&["serve", "--log-level", "inof"], &["--log-level", "inof", "debug"]),
        (&["serve", "--insecure-http", "--tls-cert", "/a", "--tls-key", "/b"], &["--insecure-http"]),
    ] {
        let (status, errors) = Program::start(arguments).exit();
        assert!(!status.success());
        assert!(words.iter().all(|word| errors.contains(word)), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_second_signal_exits_at_once() {
    let (_folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let mut server = Program::start(&["serve", "--insecure-http", "--kubeconfig-out", file]);
    let ready = server.until(&["ready"]);
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
    // A request that never comes to its end keeps an orderly stop waiting, once the server waits for its body.
    let mut request = TcpStream::connect(address).unwrap();
    request
        .write_all(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n")
        .unwrap();
    let mut answer = [0; 12];
    request.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    server.signals(&["INT", "TERM"]);
    let (status, errors) = server.exit();
    assert_eq!(status.code(), Some(1), "{errors}");
}

#[test]
fn the_demo_sees_every_step_of_the_story_on_both_queues() {
    for queue in ["ordered", "delta"] {
        let mut program = Program::start(&["demo", "--queue", queue]);
        program.until(&["all steps passed"]);
        assert_eq!(program.seen.iter().filter(|line| line.contains('✓')).count(), 11, "{:#?}", program.seen);
        let (status, errors) = program.exit();
        assert!(status.success() && errors.is_empty(), "{errors}");
    }
}

#[test]
fn manifests_and_completions_are_printed_for_other_programs() {
    let print = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_watchkeeper")).args(arguments).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let crd = print(&["crd", "--example"]);
    assert!(crd.contains("name: foos.samplecontroller.k8s.io") && crd.contains("subresources:"));
    assert!(crd.contains("\n---\napiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo"));
    assert!(!print(&["crd", "--without-status"]).contains("subresources:"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(print(&["completions", shell]).contains("sample-controller"), "{shell}");
    }
}

#[tokio::test]
async fn with_the_log_at_trace_no_token_and_no_data_of_a_secret_is_printed() {
    let (folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    command.args(["up", "--kubeconfig-out", file]).env("RUST_LOG", "trace");
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut up = Program::run(command);
    up.until(&["foo", "default/example-foo", "status written"]);
    let config = std::fs::read_to_string(&kubeconfig).unwrap();
    let token =
        config.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap().trim_matches('"');

    let client = connect(&kubeconfig).await;
    let mark = client.env().generator.uuid();
    let secret = serde_json::json!({
        "metadata": {"name": "seen-in-the-log", "namespace": "default"},
        "stringData": {"password": mark},
    });
    client.api::<Secret>().create(&serde_json::from_value(secret).unwrap()).await.unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let body =
        serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    let answer: serde_json::Value = client.kube().request(request).await.unwrap();
    let issued = answer["status"]["token"].as_str().unwrap();

    // Others use both tokens, and read the Secret.
    let other = folder.path().join("other");
    std::fs::write(&other, config.replace(token, issued)).unwrap();
    let mut output = String::new();
    for config in [&kubeconfig, &other] {
        let user = connect(config).await;
        let read = user.api::<Secret>().get(&ObjectName::namespaced("default", "seen-in-the-log")).await;
        assert_eq!(read.is_ok(), config == &kubeconfig, "{read:?}");
        for command in ["status", "explain foo example-foo"] {
            let ran = Command::new(env!("CARGO_BIN_EXE_watchkeeper"))
                .args(command.split(' ').chain(["--kubeconfig", config.to_str().unwrap()]))
                .env("RUST_LOG", "trace")
                .env_remove("KUBECONFIG")
                .output()
                .unwrap();
            output += &String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat());
        }
    }
    up.signal("INT");
    up.seen.extend(up.lines.by_ref().map(Result::unwrap));
    output += &up.seen.join("\n");
    assert!(up.exit().0.success());
    output += &std::fs::read_to_string(&log).unwrap();
    assert!(output.contains(" TRACE ") && output.contains("example-foo"), "everything is logged");
    for (what, text) in [("the token", token), ("an issued token", issued), ("the Secret", &*mark)] {
        let (text, encoded) = (text.to_owned(), BASE64_STANDARD.encode(text));
        let leak = output.lines().find(|line| line.contains(&text) || line.contains(&encoded));
        assert_eq!(leak, None, "{what} is printed");
    }
}
