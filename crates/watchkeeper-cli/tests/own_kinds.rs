//! `--crds` and `--watch`: the command with kinds of the user's own.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(unix)]

mod program;

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::Patch;
use kube_client::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use watchkeeper::{Client, ObjectName};

use program::{Program, connect, folder};

/// A definition of `kind` in the group `example.dev`, with these columns for kubectl.
fn crd(kind: &str, columns: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {singular}s.example.dev
spec:
  group: example.dev
  scope: Namespaced
  names: {{kind: {kind}, plural: {singular}s, singular: {singular}}}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{columns}]
    subresources:
      status: {{}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
"
    )
}

const COLUMNS: &str = r#"{name: Ready, type: string, jsonPath: ".status.conditions[?(@.type=='Ready')].status"}, {name: URL, type: string, jsonPath: .status.url}"#;

fn kind(name: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", name))
}

fn object(kind_name: &str, name: &str) -> DynamicObject {
    DynamicObject::new(name, &kind(kind_name)).within("default").data(json!({"spec": {"pages": 1}}))
}

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

/// Writes files into a folder of their own.
fn manifests(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
    let deploy = folder.join("deploy");
    for (name, text) in files {
        let file = deploy.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    deploy
}

#[tokio::test]
async fn all_objects_of_a_folder_are_there_when_the_server_is_ready() {
    let (folder, kubeconfig) = folder();
    let object = "apiVersion: example.dev/v1\nkind: Website\nmetadata: {name: blog, namespace: web}\n";
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}}"#;
    let kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
    // The object stands before its definition and its namespace.
    let first = format!("{object}---\n{}", crd("Website", COLUMNS));
    let files = [
        ("a.yaml", first.as_str()),
        ("more/b.json", namespace),
        ("kustomization.yaml", kustomization),
        ("notes.txt", "not: [a manifest"),
    ];
    let deploy = manifests(folder.path(), &files);
    let single = folder.path().join("gadgets.yml");
    std::fs::write(&single, crd("Gadget", "")).unwrap();
    let crds = ["--crds", deploy.to_str().unwrap(), "--crds", single.to_str().unwrap()];
    let file = kubeconfig.to_str().unwrap();
    let mut server = Program::start(&[&["serve", "--kubeconfig-out", file], &crds[..]].concat());
    server.until(&["ready"]);
    let client = connect(&kubeconfig).await;
    let websites = client.api_of::<DynamicObject>(kind("Website"));
    websites.get(&ObjectName::namespaced("web", "blog")).await.unwrap();
    client.api_of::<DynamicObject>(kind("Gadget")).create(&self::object("Gadget", "lamp")).await.unwrap();
    server.until(&["installed websites.example.dev", "a.yaml, document 2 (line 5)"]);
    server.until(&["installed gadgets.example.dev"]);
    server.until(&["installed 2 other objects"]);
    let absolute = format!("KUBECONFIG={}", kubeconfig.display());
    server.until(&[&absolute, "cargo run"]);
    server.signal("INT");
    assert!(server.exit().0.success());
}

#[test]
fn a_manifest_that_cannot_be_used_is_named_and_nothing_is_started() {
    let good = crd("Website", "");
    let wrong_scope = good.replace("scope: Namespaced", "scope: Anywhere");
    let same_names = good.replace("websites.example.dev", "websites.other.dev");
    for (second, words) in [
        ("a: [", "document 2 (line 21): not YAML: malformed at line 21 column 4"),
        ("kind: Website", "document 2 (line 21): not a Kubernetes object"),
        (wrong_scope.as_str(), "document 2 (line 21): CustomResourceDefinition websites.example.dev: "),
        (same_names.as_str(), "document 2 (line 21): CustomResourceDefinition websites.other.dev: "),
        (
            "apiVersion: example.dev/v2\nkind: Website\nmetadata: {name: a}",
            "document 2 (line 21): the server has no kind Website in example.dev/v2",
        ),
        (
            "apiVersion: example.dev/v1\nkind: Website\nmetadata: {name: a, namespace: b}",
            "document 2 (line 21): Website a: namespaces \"b\" not found",
        ),
    ] {
        let (folder, kubeconfig) = folder();
        let deploy = manifests(folder.path(), &[("all.yaml", &format!("{good}---\n{second}\n"))]);
        let (deploy, file) = (deploy.to_str().unwrap(), kubeconfig.to_str().unwrap());
        for command in ["serve", "up"] {
            let mut program = Program::start(&[command, "--crds", deploy, "--kubeconfig-out", file]);
            program.lines.by_ref().map_while(Result::ok).for_each(|line| program.seen.push(line));
            assert_eq!(program.seen, [""; 0], "{second}");
            let (status, errors) = program.exit();
            assert_eq!(status.code(), Some(1));
            assert!(errors.contains(&format!("{deploy}/all.yaml, {words}")), "{errors}");
            assert!(!kubeconfig.exists());
        }
    }
}

#[test]
fn a_path_without_manifests_is_an_error() {
    let (folder, _) = folder();
    let deploy = manifests(folder.path(), &[("notes.txt", ""), ("kustomization.yaml", "# Nothing yet.\n")]);
    let deploy = deploy.to_str().unwrap();
    for (arguments, words) in [
        (["serve", "--crds", deploy], format!("there are no manifests in {deploy}")),
        (["up", "--crds", "/nonexistent/a"], "cannot read /nonexistent/a: No such file".to_owned()),
    ] {
        let (status, errors) = Program::start(&arguments).exit();
        assert_eq!(status.code(), Some(1));
        assert!(errors.contains(&words), "{errors}");
    }
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let deploy = manifests(folder.path(), &[("a.yaml", settings)]);
    let (status, errors) = Program::start(&["up", "--crds", deploy.to_str().unwrap()]).exit();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("--crds has no CustomResourceDefinition to show"), "{errors}");
}

#[tokio::test]
async fn a_kept_definition_is_updated_when_its_manifest_has_changed() {
    let (folder, kubeconfig) = folder();
    let (data, file) = (folder.path().join("data"), kubeconfig.to_str().unwrap());
    let start = |deploy: &Path| {
        let flags = ["--data-dir", data.to_str().unwrap(), "--crds", deploy.to_str().unwrap()];
        Program::start(&[&["serve", "--kubeconfig-out", file][..], &flags].concat())
    };
    let definition = async |client: &Client| {
        let key = ObjectName::cluster("websites.example.dev");
        let found = client.api::<CustomResourceDefinition>().get(&key).await.unwrap();
        let columns = found.spec.versions[0].additional_printer_columns.clone().unwrap_or_default();
        (found.metadata.resource_version, columns.len())
    };
    let mut versions = Vec::new();
    for columns in ["", "", COLUMNS] {
        let deploy = manifests(folder.path(), &[("crd.yaml", &crd("Website", columns))]);
        let mut server = start(&deploy);
        server.until(&["ready"]);
        let client = connect(&kubeconfig).await;
        let websites = client.api_of::<DynamicObject>(kind("Website"));
        match versions.is_empty() {
            true => drop(websites.create(&object("Website", "blog")).await.unwrap()),
            false => drop(websites.get(&key("blog")).await.unwrap()),
        }
        versions.push(definition(&client).await);
        server.signal("TERM");
        assert!(server.exit().0.success());
    }
    assert_eq!(versions[0], versions[1], "the same manifest writes nothing");
    assert_eq!(versions[2].1, 2);
}

#[tokio::test]
async fn up_shows_the_objects_of_ones_own_kinds_and_their_events() {
    let (folder, kubeconfig) = folder();
    let deploy = manifests(folder.path(), &[("crd.yaml", &crd("Website", COLUMNS))]);
    let (deploy, file) = (deploy.to_str().unwrap(), kubeconfig.to_str().unwrap());
    let watched = ["--watch", "websites.example.dev", "gadget", "--kubeconfig-out", file];
    let mut up = Program::start(&[&["up", "--crds", deploy][..], &watched].concat());
    up.until(&["ready"]);
    up.until(&[&format!("KUBECONFIG={file} cargo run")]);
    up.until(&["kubectl --kubeconfig", "get websites.example.dev,gadget -A"]);
    up.until(&["kind", "websites.example.dev", "served as example.dev/v1"]);
    up.until(&["kind", "gadget", "not served yet"]);

    let client = connect(&kubeconfig).await;
    let foos = client.api::<CustomResourceDefinition>();
    let foos = foos.get_opt(&ObjectName::cluster("foos.samplecontroller.k8s.io")).await.unwrap();
    assert!(foos.is_none(), "the example is not installed");

    let websites = client.api_of::<DynamicObject>(kind("Website"));
    let blog = websites.create(&object("Website", "blog")).await.unwrap();
    up.until(&["website", "default/blog", "created"]);
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}], "url": "http://blog"});
    websites.patch_status(&key("blog"), &Patch::Merge(json!({"status": status}))).await.unwrap();
    up.until(&["website", "default/blog", "Ready: True, URL: http://blog"]);
    websites.patch(&key("blog"), &Patch::Merge(json!({"spec": {"pages": 2}}))).await.unwrap();
    up.until(&["website", "default/blog", "changed to generation 2"]);
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "blog.1", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "example.dev/v1", "kind": "Website", "namespace": "default", "name": "blog",
            "uid": blog.metadata.uid,
        },
        "type": "Warning", "reason": "Slow", "message": "takes its time",
    }))
    .unwrap();
    client.api::<Event>().create(&event).await.unwrap();
    up.until(&["event", "default/blog", "Warning Slow: takes its time"]);

    // A kind without columns of its own appears with its definition, and shows its condition.
    let gadgets: CustomResourceDefinition = serde_saphyr::from_str(&crd("Gadget", "")).unwrap();
    client.api::<CustomResourceDefinition>().create(&gadgets).await.unwrap();
    up.until(&["kind", "gadget", "served as example.dev/v1"]);
    let gadgets = client.api_of::<DynamicObject>(kind("Gadget"));
    gadgets.create(&object("Gadget", "lamp")).await.unwrap();
    let status = json!({"conditions": [{"type": "Ready", "status": "False"}]});
    gadgets.patch_status(&key("lamp"), &Patch::Merge(json!({"status": status}))).await.unwrap();
    up.until(&["gadget", "default/lamp", "Ready: False"]);

    websites.delete(&key("blog")).await.unwrap();
    up.until(&["website", "default/blog", "deleted"]);
    let definition = ObjectName::cluster("gadgets.example.dev");
    client.api::<CustomResourceDefinition>().delete(&definition).await.unwrap();
    up.seen.retain(|line| !line.contains("not served yet"));
    up.until(&["kind", "gadget", "not served yet"]);
    up.signal("INT");
    let (status, errors) = up.exit();
    assert!(status.success(), "{errors}");
    assert!(!kubeconfig.exists());
}

#[test]
fn the_kinds_of_the_definitions_are_shown_by_default_and_the_sample_on_request() {
    let (folder, kubeconfig) = folder();
    let files = [("a.yaml", crd("Website", "")), ("b.yaml", crd("Gadget", ""))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let deploy = manifests(folder.path(), &files);
    let (deploy, file) = (deploy.to_str().unwrap(), kubeconfig.to_str().unwrap());
    let mut up = Program::start(&["--crds", deploy, "--kubeconfig-out", file]);
    up.until(&["kind", "websites.example.dev", "served"]);
    up.until(&["kind", "gadgets.example.dev", "served"]);

    // On a cluster, nothing is created unless it is asked for.
    let mut other = Program::start(&["up", "--kubeconfig", file, "--watch", "foos,deploy", "--sample"]);
    assert!(other.until(&["on https://"]).contains("context watchkeeper"));
    other.until(&["creates the Foo CRD"]);
    other.until(&["kind", "deploy", "served as apps/v1"]);
    other.until(&["deployment", "default/example-foo", "Ready: 1/1"]);
    other.until(&["foo", "default/example-foo", "Desired: 1"]);
    other.until(&["event", "default/example-foo", "Normal Synced"]);
    other.signal("INT");
    other.until(&["delete crd foos.samplecontroller.k8s.io"]);
    assert!(other.exit().0.success());
    let mut again = Program::start(&["up", "--kubeconfig", file, "--watch", "deployments", "events"]);
    again.until(&["deployment", "default/example-foo", "exists"]);
    again.until(&["kind", "events", "served as v1"]);
    again.signal("INT");
    again.lines.by_ref().map_while(Result::ok).for_each(|line| again.seen.push(line));
    assert!(!again.seen.iter().any(|line| line.contains("Foo CRD")), "{:#?}", again.seen);
    assert!(again.exit().0.success());
    up.signal("INT");
    assert!(up.exit().0.success());
}
