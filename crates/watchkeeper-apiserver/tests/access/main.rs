//! Users and what they may do. The same on the embedded and on a real server.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../common/mod.rs"]
mod common;

mod controllers;
mod escalation;
mod impersonation;
mod nodes;
mod reviews;
mod roles;
mod socket;
mod tokens;

use serde_json::{Value, json};

use common::{OURS, Server, call, raw};

/// A user that no other test knows.
pub(crate) const JANE: &str = "jane-wktest";

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Sends a JSON request as a user.
pub(crate) async fn call_as(
    server: &Server,
    user: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let kind = if method == "PATCH" { common::MERGE } else { "application/json" };
    raw(server, method, path, &[("content-type", kind), ("impersonate-user", user)], &text).await
}

pub(crate) async fn get_as(server: &Server, user: &str, path: &str) -> (u16, Value) {
    call_as(server, user, "GET", path, &Value::Null).await
}

/// Waits until a user gets a path: a real server learns of new roles a moment later.
pub(crate) async fn until_served(server: &Server, user: &str, path: &str) {
    server.until(path, async || (get_as(server, user, path).await.0 == 200).then_some(())).await;
}

/// A rule about resources.
pub(crate) fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

/// The path of the roles or role bindings of the test's namespace.
pub(crate) fn of_namespace(plural: &str) -> String {
    format!("{RBAC}/namespaces/{OURS}/{plural}")
}

/// Creates a Role and binds it to a user.
pub(crate) async fn grant(server: &Server, user: &str, name: &str, rules: &Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    common::post(server, &of_namespace("roles"), &role).await;
    bind(server, user, name).await;
}

pub(crate) async fn bind(server: &Server, user: &str, role: &str) {
    common::post(server, &of_namespace("rolebindings"), &binding("Role", role, user)).await;
}

/// A binding of the role's name.
pub(crate) fn binding(kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}],
    })
}

/// The message of a refusal with this code.
#[track_caller]
pub(crate) fn refused((code, answer): (u16, Value), expected: u16) -> String {
    assert_eq!(code, expected, "{answer}");
    answer["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn without_roles_the_admin_may_do_everything() {
    let server = Server::with_roles().await;
    let (code, _) = call(&server, "GET", "/api/v1/secrets", &Value::Null).await;
    assert_eq!(code, 200);
}
