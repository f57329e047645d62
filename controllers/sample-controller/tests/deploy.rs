//! The manifests for a cluster: what they promise, and that API servers accept them.
//!
//! With `WATCHKEEPER_TEST_KUBECONFIG` they are applied to that server, too, and the controller runs there with nothing but the
//! permissions of its service account.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Command};
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::config::AuthInfo;
use kube_core::params::Patch;
use kube_core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use sample_controller::api::{Foo, FooSpec};
use sample_controller::{COMPONENT, Options};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::process::{AdminArgs, ClientArgs, LogArgs};
use watchkeeper::{Client, Env, ObjectName};
use watchkeeper_apiserver::ApiServer;

/// The objects that `kubectl apply -k` makes, in its order.
fn deployed() -> Vec<Value> {
    let read = |file: &str| -> Vec<Value> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts/deploy").join(file);
        serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let listed = &read("kustomization.yaml")[0]["resources"];
    listed.as_array().unwrap().iter().flat_map(|file| read(file.as_str().unwrap())).collect()
}

/// The first object of a kind.
fn of(kind: &str) -> Value {
    deployed().into_iter().find(|object| object["kind"] == kind).unwrap()
}

fn container() -> Value {
    of("Deployment")["spec"]["template"]["spec"]["containers"][0].clone()
}

#[test]
fn the_program_knows_the_flags_of_its_manifest() {
    let command = Options::augment_args(ClientArgs::augment_args(Command::new("sample-controller")));
    let command = AdminArgs::augment_args(LogArgs::augment_args(command));
    let container = container();
    let flags = container["args"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap());
    command.try_get_matches_from(std::iter::once("sample-controller").chain(flags)).unwrap();
}

#[test]
fn the_manifests_name_each_other() {
    let pod = &of("Deployment")["spec"]["template"];
    assert_eq!(pod["spec"]["serviceAccountName"], of("ServiceAccount")["metadata"]["name"]);
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        assert_eq!(of(binding)["roleRef"]["name"], of(role)["metadata"]["name"]);
        assert_eq!(of(binding)["subjects"][0]["name"], of("ServiceAccount")["metadata"]["name"]);
    }
    let namespace = &of("Namespace")["metadata"]["name"];
    for object in deployed().iter().filter(|object| !object["metadata"]["namespace"].is_null()) {
        assert_eq!(object["metadata"]["namespace"], *namespace, "{object}");
    }
    let labels = &pod["metadata"]["labels"];
    for selector in [
        &of("Deployment")["spec"]["selector"]["matchLabels"],
        &of("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &of("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &of("Service")["spec"]["selector"],
        &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    let container = container();
    let ports: Vec<_> = container["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    for port in [
        &of("Service")["spec"]["ports"][0]["targetPort"],
        &of("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"],
        &container["livenessProbe"]["httpGet"]["port"],
        &container["readinessProbe"]["httpGet"]["port"],
    ] {
        assert!(ports.contains(&port), "{port}");
    }
}

#[test]
fn a_pod_has_no_more_rights_and_no_more_of_the_node_than_it_needs() {
    let (pod, container) = (&of("Deployment")["spec"]["template"]["spec"], container());
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(
        (&security["allowPrivilegeEscalation"], &security["privileged"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    for resource in ["cpu", "memory"] {
        assert!(container["resources"]["requests"][resource].is_string());
        assert!(container["resources"]["limits"][resource].is_string());
    }
    for role in deployed().iter().filter(|object| object["rules"].is_array()) {
        assert!(!role.to_string().contains("\"*\""), "nothing is granted wholesale: {role}");
    }
}

#[test]
fn one_of_two_replicas_leads_and_there_is_always_one_to_take_over() {
    let deployment = of("Deployment");
    let (spec, container) = (&deployment["spec"], container());
    assert_eq!(spec["replicas"], 2);
    assert!(container["args"].as_array().unwrap().contains(&json!("--leader-elect")));
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    assert_eq!(of("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    // Reconciles, their events, and the release of the lease.
    let grace = spec["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace >= 20 + 3 + 2, "{grace}");
}

#[test]
fn a_cluster_gets_the_crd_the_controller_needs() {
    let crd: CustomResourceDefinition = serde_json::from_value(of("CustomResourceDefinition")).unwrap();
    assert_eq!(crd, sample_controller::api::crd());
}

/// What cargo knows of the workspace in `root`, without a network.
fn metadata(root: &Path) -> Value {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version=1"]).current_dir(root);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The folders of the packages of a workspace, relative to it.
fn packages(metadata: &Value) -> BTreeSet<PathBuf> {
    let root = Path::new(metadata["workspace_root"].as_str().unwrap());
    let packages = metadata["packages"].as_array().unwrap().iter();
    let manifests = packages.map(|package| Path::new(package["manifest_path"].as_str().unwrap()));
    manifests.map(|file| file.parent().unwrap().strip_prefix(root).unwrap().to_owned()).collect()
}

/// Copies a file, or a folder without the results of builds.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    let entries = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap());
    for entry in entries.filter(|entry| entry.file_name() != "target") {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn an_image_is_made_of_the_whole_workspace_and_nothing_else_and_one_that_is_there_is_not_pulled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ignored = std::fs::read_to_string(root.join(".dockerignore")).unwrap();
    let rules: Vec<_> = ignored.lines().filter(|line| !line.starts_with('#')).collect();
    let members = packages(&metadata(&root));
    let folders: BTreeSet<_> = members.iter().map(|member| member.iter().next().unwrap()).collect();
    let folders = folders.iter().map(|folder| format!("!{}", folder.to_str().unwrap()));
    let wanted = ["*", "!Cargo.lock", "!Cargo.toml"].map(str::to_owned).into_iter().chain(folders);
    assert_eq!(rules, wanted.collect::<Vec<_>>());

    let context = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("context-{}", std::process::id()));
    std::fs::create_dir_all(&context).unwrap();
    for allowed in rules.iter().filter_map(|rule| rule.strip_prefix('!')) {
        copy(&root.join(allowed), &context.join(allowed));
    }
    assert_eq!(packages(&metadata(&context)), members, "what is built is complete");
    std::fs::remove_dir_all(&context).unwrap();
    assert_eq!(container()["imagePullPolicy"], "IfNotPresent");
}

/// The shared libraries of the base image, distroless `cc`, on which a program in Rust may rely: the C library and those of GCC.
const IN_THE_IMAGE: [&str; 9] = [
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
];

/// The shared libraries that a program of 64-bit, little-endian Linux needs, and its interpreter, by the entries of its dynamic section.
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
fn needed(program: &[u8]) -> BTreeSet<String> {
    let number = |at: usize, bytes: usize| {
        let bytes = &program[at..at + bytes];
        usize::try_from(bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte))).unwrap()
    };
    let text = |at: usize| {
        let end = at + program[at..].iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(program[at..end].to_vec()).unwrap()
    };
    assert_eq!(&program[..6], b"\x7fELF\x02\x01");
    // Kind, place in the file, address and size of each segment.
    let segments: Vec<[usize; 4]> = (0..number(56, 2))
        .map(|nth| number(32, 8) + nth * number(54, 2))
        .map(|at| [number(at, 4), number(at + 8, 8), number(at + 16, 8), number(at + 32, 8)])
        .collect();
    let in_file = |address: usize| {
        let is_inside =
            |[kind, _, start, size]: &&[usize; 4]| *kind == 1 && (*start..*start + *size).contains(&address);
        let [_, at, start, _] = segments.iter().find(is_inside).unwrap();
        at + address - start
    };
    let [_, dynamic, _, size] = segments.iter().find(|[kind, ..]| *kind == 2).unwrap();
    let entries = (*dynamic..dynamic + size).step_by(16).map(|at| (number(at, 8), number(at + 8, 8)));
    let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != 0).collect();
    let strings = in_file(entries.iter().find(|(tag, _)| *tag == 5).unwrap().1);
    let libraries = entries.iter().filter(|(tag, _)| *tag == 1).map(|(_, offset)| text(strings + offset));
    let interpreter = segments.iter().filter(|[kind, ..]| *kind == 3).map(|[_, at, ..]| text(*at));
    libraries.chain(interpreter.map(|path| path.rsplit('/').next().unwrap().to_owned())).collect()
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
#[test]
fn the_base_image_has_the_libraries_that_the_program_needs() {
    let needed = needed(&std::fs::read(env!("CARGO_BIN_EXE_sample-controller")).unwrap());
    assert!(needed.contains("libc.so.6"), "{needed:?}");
    let missing: Vec<_> = needed.iter().filter(|name| !IN_THE_IMAGE.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "the base image lacks {missing:?}");
}

#[test]
fn the_image_is_built_by_the_compiler_and_on_the_debian_that_fit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read_to_string(root.join("artifacts/Containerfile")).unwrap();
    let bases: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    let compiler =
        bases[0].strip_prefix("docker.io/library/rust:").unwrap().strip_suffix("-slim-trixie AS build");
    let packages = metadata(&root.join("../.."));
    let own = packages["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["name"] == "sample-controller");
    assert_eq!(
        own.unwrap()["rust_version"].as_str(),
        compiler,
        "the oldest compiler that the manifests promise"
    );
    // Debian 13 is trixie: a C library is never older than the one that the program was linked with.
    assert_eq!(bases[1..], ["gcr.io/distroless/cc-debian13:nonroot"]);
    assert!(file.contains("\nUSER 65532:65532\n"), "the user nonroot");
}

/// Applies an object, and refuses fields that the server does not know.
async fn apply(client: &Client, object: &Value) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let root = if group.is_empty() { "/api" } else { "/apis" };
    let place = object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}"));
    let (place, name) = (place.unwrap_or_default(), text(&object["metadata"]["name"]));
    let query = "fieldManager=kubectl&force=true&fieldValidation=Strict";
    let request = Request::patch(format!("{root}/{api_version}{place}/{}/{name}?{query}", kind.plural))
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes());
    let applied = client.kube().request_text(request.unwrap()).await;
    applied.unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
}

/// Applies all manifests, and tries the pod of the Deployment.
async fn deploy(client: &Client) {
    for object in deployed() {
        apply(client, &object).await;
    }
    let template = of("Deployment")["spec"]["template"].clone();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]});
    pod["metadata"] = json!({"name": "tried", "labels": template["metadata"]["labels"]});
    let pods = "/api/v1/namespaces/sample-controller/pods?dryRun=All&fieldValidation=Strict";
    let request = Request::post(pods).header("content-type", "application/json");
    client.kube().request_text(request.body(pod.to_string().into_bytes()).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_embedded_server_knows_every_field_of_the_manifests() {
    let env = Env::simulated(1);
    let client = Client::from_kube(ApiServer::new(&env).client(), &env);
    deploy(&client).await;
}

/// A client with a token of the service account, which is all that a pod has.
async fn as_service_account(admin: &Client, args: &ClientArgs, env: &Env) -> Client {
    let path = "/api/v1/namespaces/sample-controller/serviceaccounts/sample-controller/token";
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    let answer: Value = admin.kube().request(request).await.unwrap();
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let mut config = args.config().await.unwrap();
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    Client::from_config(config, env).unwrap()
}

/// Reads an object until it is as `wanted`: a real server is polled.
async fn until<T, F: Future<Output = Option<T>>>(env: &Env, what: &str, read: impl Fn() -> F) -> T {
    let wait = async {
        loop {
            match read().await {
                Some(found) => return found,
                None => env.clock.sleep(Duration::from_millis(100)).await,
            }
        }
    };
    env.clock.timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("not seen: {what}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_server_the_controller_needs_nothing_but_its_service_account() {
    let Some(file) = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG").map(PathBuf::from) else {
        return println!("skipped: WATCHKEEPER_TEST_KUBECONFIG names no cluster");
    };
    let (env, own) = (Env::system(), Env::system());
    let args = ClientArgs { kubeconfig: Some(file), ..ClientArgs::default() };
    let admin = args.connect(&env).await.unwrap();
    deploy(&admin).await;
    let namespace = format!("foos-{}", &env.generator.uuid()[..8]);
    let made: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    admin.api::<Namespace>().create(&made).await.unwrap();

    let refusals = Arc::<Mutex<Vec<String>>>::default();
    let heard = refusals.clone();
    own.reporter.add_hook(move |report| {
        let text = report.incident.to_string();
        if text.contains("403") {
            heard.lock().push(text);
        }
    });
    let (client, stop) = (as_service_account(&admin, &args, &own).await, CancellationToken::new());
    let options = Options {
        leader_elect: true,
        leader_election_namespace: Some("sample-controller".to_owned()),
        ..Options::default()
    };
    let token = stop.clone();
    let controller = tokio::spawn(async move { sample_controller::run(&client, &options, token).await });

    let key = ObjectName::namespaced(&namespace, "a");
    let mut foo = Foo::new("a", FooSpec { deployment_name: "a".to_owned(), replicas: Some(1) });
    foo.metadata.namespace = Some(namespace.clone());
    admin.api::<Foo>().create(&foo).await.unwrap();
    until(&env, "a status", || async { admin.api::<Foo>().get(&key).await.unwrap().status }).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    admin.api::<Foo>().patch(&key, &scale).await.unwrap();
    until(&env, "three replicas", || async {
        let deployment = admin.api::<Deployment>().get(&key).await.unwrap();
        deployment.spec?.replicas.filter(|replicas| *replicas == 3)
    })
    .await;
    until(&env, "an event that was counted", || async {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request = Request::get(path).body(Vec::new()).unwrap();
        let events: Value = admin.kube().request(request).await.unwrap();
        let events: Vec<Event> = serde_json::from_value(events["items"].clone()).unwrap();
        events.into_iter().find(|event| event.count > Some(1))
    })
    .await;
    stop.cancel();
    controller.await.unwrap().unwrap();
    assert_eq!(*refusals.lock(), Vec::<String>::new(), "{COMPONENT} may do all that it does");
}
