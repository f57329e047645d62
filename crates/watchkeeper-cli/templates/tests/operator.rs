//! The operator on an embedded API server, in process: no cluster, no network.

use std::collections::BTreeSet;
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::CustomResourceExt;
use serde_json::Value;
use watchkeeper_test::TestCluster;

use {{crate}}::{{Kind}};

const CRD: &str = include_str!("../deploy/crd.yaml");
const ROLE: &str = include_str!("../deploy/role.yaml");
const PROGRAM_ROLE: &str = include_str!("../deploy/program-role.yaml");
const DEPLOYMENT: &str = include_str!("../deploy/deployment.yaml");
const EXAMPLE: &str = include_str!("../example.yaml");

async fn cluster() -> TestCluster {
    TestCluster::builder().manifest(CRD).start({{crate}}::register).await
}

fn has_text(map: &ConfigMap, text: &str) -> bool {
    map.data.as_ref().is_some_and(|data| data["text"] == text)
}

#[tokio::test]
async fn a_config_map_follows_its_{{kind}}() {
    let cluster = cluster().await;
    cluster.apply(EXAMPLE).await;
    cluster.eventually::<ConfigMap>("default/example", |map| has_text(map, "hello")).await;
    cluster.eventually::<{{Kind}}>("default/example", {{Kind}}::is_ready).await;

    cluster.apply(&EXAMPLE.replace("hello", "hello again")).await;
    cluster.eventually::<ConfigMap>("default/example", |map| has_text(map, "hello again")).await;

    cluster.delete::<{{Kind}}>("default/example").await;
    cluster.eventually_gone::<ConfigMap>("default/example").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_deleted_config_map_is_created_again() {
    let cluster = cluster().await;
    cluster.apply(EXAMPLE).await;
    let first = cluster.eventually::<ConfigMap>("default/example", |_| true).await;
    cluster.delete::<ConfigMap>("default/example").await;
    cluster.eventually::<ConfigMap>("default/example", |map| map.metadata.uid != first.metadata.uid).await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_role_grants_what_the_operator_needs_and_nothing_else() {
    let cluster = cluster().await;
    cluster.apply(EXAMPLE).await;
    cluster.eventually::<{{Kind}}>("default/example", {{Kind}}::is_ready).await;
    if let Err(difference) = cluster.permissions().check(ROLE) {
        panic!("deploy/role.yaml: {difference}");
    }
    cluster.stop().await;
}

/// The permissions of the roles in a YAML text.
fn permissions(yaml: &str) -> BTreeSet<String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("roles are YAML");
    let mut permissions = BTreeSet::new();
    for rule in documents.iter().filter_map(|document| document["rules"].as_array()).flatten() {
        let all = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
        let names = &rule["resourceNames"];
        for group in all("apiGroups") {
            for resource in all("resources") {
                let verbs = all("verbs");
                permissions.extend(verbs.iter().map(|verb| format!("{verb} {resource} of {group}, {names}")));
            }
        }
    }
    permissions
}

#[test]
fn the_roles_grant_what_the_flags_of_the_deployment_need() {
    let deployment: Value = serde_saphyr::from_str(DEPLOYMENT).expect("deploy/deployment.yaml is YAML");
    let flags = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let flags = flags.as_array().expect("the container has args").iter().filter_map(Value::as_str);
    let mut program = Command::new(env!("CARGO_BIN_EXE_{{name}}"));
    let output = program.args(flags).arg("--print-role").output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let needed = permissions(&String::from_utf8_lossy(&output.stdout));
    let granted = permissions(&format!("{ROLE}\n---\n{PROGRAM_ROLE}"));
    let missing: Vec<_> = needed.difference(&granted).collect();
    assert!(!needed.is_empty() && missing.is_empty(), "deploy/program-role.yaml lacks {missing:?}");
}

/// `UPDATE=1 cargo test definition` writes the definition again after a change of the type.
#[test]
fn the_definition_is_that_of_the_type() {
    let wanted = serde_json::to_value({{Kind}}::crd()).expect("a definition is JSON");
    if std::env::var_os("UPDATE").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/crd.yaml");
        let text = serde_saphyr::to_string(&wanted).expect("JSON is YAML");
        return std::fs::write(file, text).expect("deploy/crd.yaml is writable");
    }
    let found: Value = serde_saphyr::from_str(CRD).expect("deploy/crd.yaml is YAML");
    assert!(found == wanted, "deploy/crd.yaml is out of date: run `UPDATE=1 cargo test definition`");
}
