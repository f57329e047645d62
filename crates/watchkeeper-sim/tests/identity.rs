//! The controllers of identity through every fault: service accounts, the root CA, and aggregated roles.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};
use watchkeeper_controllers::service_account::{self, Options};
use watchkeeper_sim::{Check, FaultKind, User};

const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----";

fn has_authority(map: &ConfigMap) -> bool {
    map.data.as_ref().and_then(|data| data.get("ca.crt")).is_some_and(|text| text == AUTHORITY)
}

/// What a namespace must have is deleted and changed, and comes back; the namespace goes.
async fn namespaces(user: &User) {
    user.create(&serde_json::from_value::<Namespace>(json!({"metadata": {"name": "team"}})).unwrap()).await;
    user.eventually::<ServiceAccount>("team/default", |_| true).await;
    user.eventually::<ConfigMap>("team/kube-root-ca.crt", has_authority).await;
    let before = user.get::<ServiceAccount>("team/default").await.unwrap().metadata.uid;
    user.delete::<ServiceAccount>("team/default").await;
    user.eventually::<ServiceAccount>("team/default", |account| account.metadata.uid != before).await;
    user.patch::<ConfigMap>("team/kube-root-ca.crt", json!({"data": {"ca.crt": "forged"}})).await;
    user.eventually::<ConfigMap>("team/kube-root-ca.crt", has_authority).await;
    user.delete::<ConfigMap>("team/kube-root-ca.crt").await;
    user.eventually::<ConfigMap>("team/kube-root-ca.crt", has_authority).await;
    user.create(&serde_json::from_value::<Namespace>(json!({"metadata": {"name": "brief"}})).unwrap()).await;
    user.eventually::<ServiceAccount>("brief/default", |_| true).await;
    user.delete::<Namespace>("brief").await;
    user.eventually_gone::<Namespace>("brief").await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_namespace_has_its_account_and_its_authority() {
    let report = Check::builder()
        .name("identity")
        // The simulated server takes objects into a namespace that a restored backup has not: see docs/simulation.md.
        .without(FaultKind::ALL.into_iter().filter(|kind| kind.name() == "set-back"))
        .pairs(10)
        .seeds(10)
        .run(
            |_| (),
            |manager, ()| {
                let mut options = Options::default();
                (options.accounts, options.authority) = (true, AUTHORITY.to_owned());
                service_account::register(manager, &options)
            },
            namespaces,
        )
        .unwrap();
    println!("{report}");
}

fn role(name: &str, verbs: &[&str]) -> ClusterRole {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    let metadata = json!({"name": name, "labels": {"to": "all"}});
    serde_json::from_value(json!({"metadata": metadata, "rules": rules})).unwrap()
}

fn verbs(role: &ClusterRole) -> Vec<&str> {
    role.rules.iter().flatten().flat_map(|rule| &rule.verbs).map(String::as_str).collect()
}

/// Roles come, change and go that another one gathers.
async fn roles(user: &User) {
    let all = json!({"metadata": {"name": "gathers"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}});
    user.create(&serde_json::from_value::<ClusterRole>(all).unwrap()).await;
    user.create(&role("reads", &["get"])).await;
    user.create(&role("writes", &["create"])).await;
    user.eventually::<ClusterRole>("gathers", |role| verbs(role) == ["get", "create"]).await;
    user.patch::<ClusterRole>("gathers", json!({"rules": Value::Null})).await;
    user.eventually::<ClusterRole>("gathers", |role| verbs(role) == ["get", "create"]).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    user.patch::<ClusterRole>("reads", json!({ "rules": rules })).await;
    user.eventually::<ClusterRole>("gathers", |role| verbs(role) == ["list", "create"]).await;
    user.patch::<ClusterRole>("writes", json!({"metadata": {"labels": null}})).await;
    user.eventually::<ClusterRole>("gathers", |role| verbs(role) == ["list"]).await;
    user.delete::<ClusterRole>("reads").await;
    user.eventually::<ClusterRole>("gathers", |role| verbs(role).is_empty()).await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_role_gathers_the_rules_of_others() {
    let report = Check::builder()
        .name("aggregation")
        .pairs(10)
        .seeds(10)
        .run(
            |_| (),
            |manager, ()| {
                let mut options = Options::default();
                options.aggregation = true;
                service_account::register(manager, &options)
            },
            roles,
        )
        .unwrap();
    println!("{report}");
}
