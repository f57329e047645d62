//! Nobody grants what they do not have, unless they may `escalate` or `bind`.

use serde_json::{Value, json};

use crate::common::{Server, post};
use crate::{JANE, RBAC, binding, call_as, grant, of_namespace, refused, rule, until_served};

/// A user who may write roles and bindings, and read pods.
async fn manager() -> Server {
    let server = Server::with_roles().await;
    let all = rule(
        &["get", "list", "create", "update", "patch", "delete"],
        "rbac.authorization.k8s.io",
        &["roles", "rolebindings"],
    );
    grant(&server, JANE, "manager", &json!([all, rule(&["get", "list"], "", &["pods"])])).await;
    until_served(&server, JANE, "/api/v1/namespaces/wktest/pods").await;
    server
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

#[tokio::test(start_paused = true)]
async fn a_role_cannot_be_given_more_than_its_author_has() {
    let server = manager().await;
    let roles = of_namespace("roles");
    let small = role("small", &json!([rule(&["list"], "", &["pods"])]));
    assert_eq!(call_as(&server, JANE, "POST", &roles, &small).await.0, 201);
    let large = role("large", &json!([rule(&["get", "delete", "watch"], "", &["pods", "secrets"])]));
    assert_eq!(
        refused(call_as(&server, JANE, "POST", &roles, &large).await, 403),
        "roles.rbac.authorization.k8s.io \"large\" is forbidden: user \"jane-wktest\" (groups=[\"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\" \"watch\"]}"
    );
    let path = format!("{roles}/small");
    let more = json!({"rules": [rule(&["*"], "*", &["*"])]});
    let message = refused(call_as(&server, JANE, "PATCH", &path, &more).await, 403);
    assert!(message.ends_with("\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"), "{message}");
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(call_as(&server, JANE, "PATCH", &path, &labelled).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_user_cannot_bind_themselves_to_a_larger_role() {
    let server = manager().await;
    let bindings = of_namespace("rolebindings");
    let message = refused(
        call_as(&server, JANE, "POST", &bindings, &binding("ClusterRole", "cluster-admin", JANE)).await,
        403,
    );
    assert!(message.starts_with(
        "rolebindings.rbac.authorization.k8s.io \"cluster-admin\" is forbidden: user \"jane-wktest\""
    ));
    assert!(message.ends_with(
        "not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
    ));
    let absent = call_as(&server, JANE, "POST", &bindings, &binding("Role", "absent", JANE)).await;
    assert_eq!(
        absent.1["details"],
        json!({"name": "absent", "group": "rbac.authorization.k8s.io", "kind": "rolebindings"})
    );
    assert_eq!(refused(absent, 404), "rolebindings.rbac.authorization.k8s.io \"absent\" not found");
    post(&server, &of_namespace("roles"), &role("small", &json!([rule(&["list"], "", &["pods"])]))).await;
    server
        .until("the role is known", async || {
            let answer = call_as(&server, JANE, "POST", &bindings, &binding("Role", "small", "joe")).await;
            (answer.0 == 201).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn verbs_allow_to_escalate_and_to_bind() {
    let server = manager().await;
    let mut bind = rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles"]);
    bind["resourceNames"] = json!(["edit"]);
    let escalate = rule(&["escalate"], "rbac.authorization.k8s.io", &["roles"]);
    grant(&server, JANE, "powers", &json!([bind, escalate, rule(&["list"], "", &["services"])])).await;
    until_served(&server, JANE, "/api/v1/namespaces/wktest/services").await;
    let bindings = of_namespace("rolebindings");
    assert_eq!(
        call_as(&server, JANE, "POST", &bindings, &binding("ClusterRole", "edit", "joe")).await.0,
        201
    );
    assert_eq!(
        call_as(&server, JANE, "POST", &bindings, &binding("ClusterRole", "admin", "joe")).await.0,
        403
    );
    let large = role("large", &json!([rule(&["*"], "*", &["*"])]));
    assert_eq!(call_as(&server, JANE, "POST", &of_namespace("roles"), &large).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_role_needs_the_powers_of_an_admin() {
    let server = Server::with_roles().await;
    let path = format!("{RBAC}/clusterroles");
    let writer = role(
        "writer-wktest",
        &json!([rule(&["get", "list", "create"], "rbac.authorization.k8s.io", &["clusterroles"])]),
    );
    post(&server, &path, &writer).await;
    post(&server, &format!("{RBAC}/clusterrolebindings"), &binding("ClusterRole", "writer-wktest", JANE))
        .await;
    until_served(&server, JANE, &path).await;
    let gathering = json!({
        "metadata": {"name": "gather-wktest"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    });
    assert_eq!(
        refused(call_as(&server, JANE, "POST", &path, &gathering).await, 403),
        "clusterroles.rbac.authorization.k8s.io \"gather-wktest\" is forbidden: must have cluster-admin privileges to use \
         the aggregationRule"
    );
}
