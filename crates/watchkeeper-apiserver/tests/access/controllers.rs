//! The controllers of identity: service accounts and CA certificates of namespaces, and aggregated roles.

use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use watchkeeper_controllers::service_account::{self, Options};

use crate::common::{Server, call, get, patch, post};
use crate::{RBAC, rule};

/// Our controllers, on the embedded server; a real one must have its own.
fn run(server: &Server) -> Option<DropGuard> {
    server.inside()?;
    let (clients, stop) = (server.clients(), CancellationToken::new());
    let guard = stop.clone().drop_guard();
    let mut options = Options::default();
    (options.accounts, options.aggregation) = (true, true);
    options.authority = "a certificate".to_owned();
    tokio::spawn(async move { service_account::run(&clients, &options, stop).await });
    Some(guard)
}

/// Waits until a path is there, and `is_met` holds for it.
async fn until(server: &Server, path: &str, is_met: impl Fn(&Value) -> bool) -> Value {
    let found = async || {
        let (code, object) = get(server, path).await;
        (code == 200 && is_met(&object)).then_some(object)
    };
    server.until(path, found).await
}

#[tokio::test(start_paused = true)]
async fn each_namespace_gets_a_service_account_and_the_certificate_of_the_server() {
    let server = Server::with_roles().await;
    let _controllers = run(&server);
    let account = "/api/v1/namespaces/wktest/serviceaccounts/default";
    let first = until(&server, account, |_| true).await;
    assert_eq!(first["metadata"].get("ownerReferences"), None);
    call(&server, "DELETE", account, &Value::Null).await;
    until(&server, account, |again| again["metadata"]["uid"] != first["metadata"]["uid"]).await;
    let map = "/api/v1/namespaces/wktest/configmaps/kube-root-ca.crt";
    let published = until(&server, map, |_| true).await;
    let data = json!({"data": {"ca.crt": "other", "x": "y"}});
    patch(&server, map, crate::common::MERGE, &data).await;
    until(&server, map, |restored| restored["data"] == published["data"]).await;
    call(&server, "DELETE", map, &Value::Null).await;
    until(&server, map, |restored| restored["data"] == published["data"]).await;
}

#[tokio::test(start_paused = true)]
async fn aggregated_roles_follow_the_roles_that_they_select() {
    let server = Server::with_roles().await;
    let _controllers = run(&server);
    let roles = format!("{RBAC}/clusterroles");
    let part = |name: &str, verb: &str| json!({"metadata": {"name": name, "labels": {"of": "wktest"}}, "rules": [rule(&[verb], "", &["pods"])]});
    let whole = json!({
        "metadata": {"name": "whole-wktest"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"of": "wktest"}}]},
        "rules": [rule(&["delete"], "", &["nodes"])],
    });
    post(&server, &roles, &part("b-wktest", "get")).await;
    post(&server, &roles, &whole).await;
    let path = format!("{roles}/whole-wktest");
    let is = |verbs: &'static [&'static str]| {
        move |role: &Value| {
            let rules: Vec<_> = verbs.iter().map(|verb| rule(&[*verb], "", &["pods"])).collect();
            role["rules"] == json!(rules)
        }
    };
    until(&server, &path, is(&["get"])).await;
    post(&server, &roles, &part("a-wktest", "list")).await;
    until(&server, &path, is(&["list", "get"])).await;
    let unlabelled = json!({"metadata": {"labels": {"of": null}}});
    patch(&server, &format!("{roles}/b-wktest"), crate::common::MERGE, &unlabelled).await;
    until(&server, &path, is(&["list"])).await;
    call(&server, "DELETE", &format!("{roles}/a-wktest"), &Value::Null).await;
    until(&server, &path, |role| role["rules"].as_array().is_none_or(Vec::is_empty)).await;
}
