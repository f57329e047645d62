//! The operator on an embedded API server, in process: no cluster, no network.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::CustomResourceExt;
use serde_json::Value;
use watchkeeper_test::TestCluster;

use {{crate}}::{{Kind}};

const CRD: &str = include_str!("../deploy/crd.yaml");
const ROLE: &str = include_str!("../deploy/role.yaml");
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
