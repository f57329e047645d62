//! Caches of other clients follow our server through anything: seeded random changes of several kinds, with restarts in between.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::dynamic::{ApiResource, DynamicObject};
use kube_core::gvk::GroupVersionKind;
use kube_core::params::Patch;
use sample_controller::api;
use serde_json::{Value, json};
use watchkeeper::clock::Generator;
use watchkeeper::wire::Class;
use watchkeeper::{Client, ObjectName};
use watchkeeper_apiserver::{ApiServer, Credentials, ListenOptions};

use crate::PeerPrograms;
use crate::program::Program;

const SEED: u64 = 7;

/// How the server goes away, after 900 changes each time, to come back at the same address 100 changes later. More often would take
/// minutes: client-go and kube-rs wait twice as long after each failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Restart {
    /// Watches end, and resume where they were.
    Orderly,
    /// Connections are cut, and where the watches were is forgotten.
    Crash,
}

/// What an object holds beside its metadata, by a number.
type Content = fn(u64) -> Value;

/// Objects of every kind that the Go program looks at.
fn kinds() -> Vec<(ApiResource, Content)> {
    let pod = |value: u64| {
        let pod = json!({"containers": [{"name": "main", "image": format!("image:{value}")}]});
        json!({"spec": pod})
    };
    let deployment = |value: u64| {
        let labels = json!({"app": "web"});
        let containers = json!([{"name": "main", "image": format!("image:{value}")}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        json!({"spec": {"replicas": value % 10, "selector": {"matchLabels": labels}, "template": template}})
    };
    let kind = |group: &str, version: &str, kind: &str| {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    };
    vec![
        (kind("", "v1", "ConfigMap"), |value| json!({"data": {"value": value.to_string()}})),
        (kind("", "v1", "Secret"), |value| json!({"stringData": {"value": value.to_string()}})),
        (kind("", "v1", "Pod"), pod),
        (kind("apps", "v1", "Deployment"), deployment),
        (
            kind("samplecontroller.k8s.io", "v1alpha1", "Foo"),
            |value| json!({"spec": {"deploymentName": "web", "replicas": 1 + value % 10}}),
        ),
    ]
}

/// One random change; those that make no sense are refused, and counted out.
async fn change(client: &Client, generator: &Generator) -> bool {
    let mut kinds = kinds();
    let (kind, body) = kinds.swap_remove(generator.below(kinds.len() as u64) as usize);
    let name = format!("o{:03}", generator.below(150));
    let key = ObjectName::namespaced(if generator.below(2) == 0 { "default" } else { "kube-public" }, &name);
    let objects = client.api_of::<DynamicObject>(kind.clone());
    let value = generator.below(1_000);
    let answer = match generator.below(5) {
        0 => objects.delete(&key).await,
        1 | 2 => {
            let mut object = DynamicObject::new(&name, &kind);
            object.metadata.namespace = key.namespace().map(str::to_owned);
            object.data = body(value);
            objects.create(&object).await.map(drop)
        }
        3 => objects
            .patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"value": value.to_string()}}})))
            .await
            .map(drop),
        _ => {
            let mut patch = body(value);
            patch["metadata"] = json!({"annotations": {"note": "x".repeat(value as usize)}});
            let patch = if kind.kind == "Foo" { Patch::Merge(patch) } else { Patch::Strategic(patch) };
            objects.patch(&key, &patch).await.map(drop)
        }
    };
    match answer {
        Ok(()) => true,
        Err(error) => {
            assert!(
                matches!(error.class(), Class::NotFound | Class::AlreadyExists),
                "{kind:?} {key}: {error}"
            );
            false
        }
    }
}

/// That many changes that were not refused.
async fn make(mut count: usize, client: &Client, generator: &Generator) {
    while count > 0 {
        count -= usize::from(change(client, generator).await);
    }
}

/// Has the program compare what it calls `names` with a list.
async fn compare(mirrors: &mut Program, names: &[&str]) -> Vec<String> {
    mirrors.tell("compare");
    let mut lines = Vec::new();
    for name in names {
        let line = mirrors.until(&[&format!(" {name}: ")]).await;
        println!("     {line}");
        assert!(line.starts_with("equal "), "{line}");
        lines.push(line);
    }
    mirrors.until(&["compared"]).await;
    lines
}

pub(crate) async fn caches_of_client_go_equal_a_list_after_2000_changes_and_restarts(
    programs: &PeerPrograms,
) {
    let start = || programs.peer("informer", &["-custom", "foos.v1alpha1.samplecontroller.k8s.io"]);
    follow(programs, start, &["configmaps", "secrets", "pods", "deployments", "foos"]).await;
}

pub(crate) async fn stores_of_kube_rs_equal_a_list_after_2000_changes_and_restarts(programs: &PeerPrograms) {
    let built_in = ["paged", "streamed", "any", "unmarked", "labelled", "streamed-label", "field", "short"];
    let others = ["metadata", "streamed-metadata", "dynamic", "shared"];
    let [resumed, relisted] =
        follow(programs, || programs.kube_runtime("mirrors"), &[&built_in[..], &others].concat()).await;
    // After the orderly restart each watches on, after the other each is told that its version is gone, and lists.
    assert!(resumed.iter().all(|line| line.contains(" 1 lists, 0 gone, ")), "{resumed:#?}");
    assert!(relisted.iter().all(|line| line.contains(" 2 lists, 1 gone, ")), "{relisted:#?}");
}

/// Changes and restarts, with a comparison after each, and the lines of those after the restarts; `names` is what the program that is started mirrors.
async fn follow(
    programs: &PeerPrograms,
    start: impl FnOnce() -> Program,
    names: &[&str],
) -> [Vec<String>; 2] {
    let server = ApiServer::new(&programs.env);
    let credentials = Some(Credentials::generate().unwrap());
    let mut options = ListenOptions { credentials, ..ListenOptions::default() };
    let mut listening = server.listen(options.clone()).await.unwrap();
    options.address = listening.address();
    std::fs::write(programs.kubeconfig(), listening.kubeconfig()).unwrap();

    // The changes do not go over the socket, so that they go on while it is closed.
    let client = Client::from_kube(server.client(), &programs.env);
    client.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    let mut mirrors = start();
    mirrors.until(&["synced"]).await;

    let generator = Generator::seeded(SEED);
    let mut after = [Vec::new(), Vec::new()];
    for (restart, after) in [Restart::Orderly, Restart::Crash].into_iter().zip(&mut after) {
        make(900, &client, &generator).await;
        compare(&mut mirrors, names).await;
        match restart {
            Restart::Orderly => listening.stop().await,
            Restart::Crash => drop(listening),
        }
        make(100, &client, &generator).await;
        if restart == Restart::Crash {
            server.compact_now();
        }
        listening = server.listen(options.clone()).await.unwrap();
        *after = compare(&mut mirrors, names).await;
    }
    let (status, lines) = mirrors.exit().await;
    assert!(status.success(), "{lines:#?}");
    listening.stop().await;
    after
}
