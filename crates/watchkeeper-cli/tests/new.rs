//! `watchkeeper new`, as a user does it: create a project, run its tests, and run it on `watchkeeper serve`.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(unix)]

mod program;

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::{ObjectName, SharedInformerFactory};

use program::{Program, connect, folder};

fn watchkeeper(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_new_project_passes_its_tests_and_reconciles_on_the_served_control_plane() {
    let (folder, kubeconfig) = folder();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let path = ["--path", workspace.to_str().unwrap()];
    let (created, text) = watchkeeper(
        folder.path(),
        &[&["new", "website-operator", "--group", "web.acme.io"][..], &path].concat(),
    );
    assert!(created && text.contains("an operator for Website (websites.web.acme.io)"), "{text}");

    // Offline, and with the profile of the workspace, most of what it needs is built already.
    let project = folder.path().join("website-operator");
    std::fs::copy(workspace.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let manifest = std::fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
    let profile =
        &manifest[manifest.find("[profile.dev]").unwrap()..manifest.find("[profile.release]").unwrap()];
    let own = std::fs::read_to_string(project.join("Cargo.toml")).unwrap();
    std::fs::write(project.join("Cargo.toml"), format!("{own}\n{profile}")).unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_watchkeeper")).ancestors().nth(2).unwrap();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        command.args(arguments).current_dir(&project).env("CARGO_TARGET_DIR", target);
        // Build scripts would run again because of what cargo tells this test of its own package.
        let is_ours = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for name in std::env::vars().map(|(name, _)| name).filter(is_ours) {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    };
    cargo(&["fmt", "--check"]);
    let tested = cargo(&["test", "--offline"]);
    assert!(tested.contains("test result: ok. 5 passed"), "{tested}");
    cargo(&["build", "--offline"]);

    let (deploy, file) = (project.join("deploy"), kubeconfig.to_str().unwrap());
    let mut server = Program::start(&["serve", "--crds", deploy.to_str().unwrap(), "--kubeconfig-out", file]);
    server.until(&["ready"]);
    server.until(&["installed websites.web.acme.io"]);
    let mut command = Command::new(target.join("debug/website-operator"));
    command.args(["--kubeconfig", file, "--metrics-bind-address", "0"]);
    let operator = Program::spawn(command);

    let client = connect(&kubeconfig).await;
    let (sender, mut texts) = tokio::sync::mpsc::unbounded_channel();
    let factory = SharedInformerFactory::builder(&client).build();
    let handler = on_change(move |change: Change<'_, ConfigMap>| {
        let map = change.last_known().unwrap().get().unwrap();
        if map.metadata.name.as_deref() == Some("home") {
            sender.send(map.data.clone().unwrap_or_default().remove("text")).unwrap();
        }
    });
    factory.informer::<ConfigMap>().add_handler(handler).unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("web.acme.io", "v1", "Website"));
    let home = DynamicObject::new("home", &kind).within("default").data(json!({"spec": {"text": "welcome"}}));
    client.api_of::<DynamicObject>(kind.clone()).create(&home).await.unwrap();
    assert_eq!(texts.recv().await.unwrap().as_deref(), Some("welcome"));
    client.api_of::<DynamicObject>(kind).delete(&ObjectName::namespaced("default", "home")).await.unwrap();
    stop.cancel();
    operator.signal("TERM");
    let (status, errors) = operator.exit();
    assert!(status.success(), "{errors}");
    server.signal("TERM");
    assert!(server.exit().0.success());
}

#[test]
fn what_exists_is_not_overwritten_and_wrong_names_are_refused() {
    let (folder, _) = folder();
    let (created, _) = watchkeeper(folder.path(), &["new", "queue", "--kind", "Job"]);
    assert!(created);
    let library = std::fs::read_to_string(folder.path().join("queue/src/lib.rs")).unwrap();
    assert!(library.contains("kind = \"Job\", plural = \"jobs\""), "{library}");
    let manifest = std::fs::read_to_string(folder.path().join("queue/Cargo.toml")).unwrap();
    assert!(manifest.contains(concat!("watchkeeper = \"", env!("CARGO_PKG_VERSION"), "\"")), "{manifest}");
    for (arguments, words) in [
        (&["new", "queue"][..], "queue exists already"),
        (&["new", "Queue"], "use at most 63 lower-case letters"),
        (&["new", "a", "--kind", "b"], "\"b\" cannot be a kind"),
        (&["new", "a", "--group", "b"], "\"b\" cannot be a group"),
    ] {
        let (created, text) = watchkeeper(folder.path(), arguments);
        assert!(!created && text.contains(words), "{text}");
    }
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["queue"]);
}
