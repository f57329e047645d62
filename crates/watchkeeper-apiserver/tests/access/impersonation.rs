//! Requests as another user.

use serde_json::{Value, json};

use crate::common::{CONFIG_MAPS, Server, post, raw};
use crate::{JANE, RBAC, binding, refused, rule};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const JSON: (&str, &str) = ("content-type", "application/json");

async fn who(server: &Server, headers: &[(&str, &str)]) -> Value {
    let headers: Vec<_> = headers.iter().copied().chain([JSON]).collect();
    let (code, answer) = raw(server, "POST", WHO, &headers, "{}").await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["userInfo"].clone()
}

#[tokio::test(start_paused = true)]
async fn all_parts_of_a_user_can_be_impersonated() {
    let server = Server::with_roles().await;
    let user = who(&server, &[("impersonate-user", "jane")]).await;
    assert_eq!(user, json!({"username": "jane", "groups": ["system:authenticated"]}));
    let user = who(
        &server,
        &[
            ("impersonate-user", "jane"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-acme.com%2fproject", "x"),
        ],
    )
    .await;
    assert_eq!(
        user,
        json!({"username": "jane", "uid": "7", "groups": ["a", "b", "system:authenticated"], "extra": {"acme.com/project": ["x"]}})
    );
    let user = who(&server, &[("impersonate-user", "system:serviceaccount:shop:robot")]).await;
    assert_eq!(
        user["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"])
    );
    let user = who(&server, &[("impersonate-user", "x"), ("impersonate-group", "system:masters")]).await;
    assert_eq!(user["groups"], json!(["system:masters", "system:authenticated"]));
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_user_has_no_authenticated_group() {
    let server = Server::with_roles().await;
    let (code, answer) =
        raw(&server, "POST", WHO, &[JSON, ("impersonate-user", "system:anonymous")], "{}").await;
    assert_eq!(
        refused((code, answer), 403),
        r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope"#
    );
    assert_eq!(raw(&server, "GET", "/version", &[("impersonate-user", "system:anonymous")], "").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn groups_without_a_user_are_refused() {
    let server = Server::with_roles().await;
    let answer = raw(&server, "GET", "/version", &[("impersonate-group", "a")], "").await;
    assert_eq!(
        refused(answer, 400),
        r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)} without impersonating a user name"#
    );
}

#[tokio::test(start_paused = true)]
async fn only_those_who_may_impersonate_can() {
    let server = Server::with_roles().await;
    let inside = match server.inside() {
        Some(inside) => inside.clone(),
        None => return, // a real server knows only the user of the kubeconfig
    };
    let as_jane = async |headers: &[(&str, &str)], path: &str| {
        let service = inside.service().as_user(watchkeeper_apiserver::User::new(JANE));
        let mut request = http::Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(kube_client::client::Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(service, request).await.unwrap();
        let code = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (code, serde_json::from_slice::<Value>(&body).unwrap_or_default())
    };
    let joe = [("impersonate-user", "joe")];
    assert_eq!(
        refused(as_jane(&joe, CONFIG_MAPS).await, 403),
        r#"configmaps is forbidden: User "jane-wktest" cannot impersonate-on:user-info:list resource "configmaps" in API group "" in the namespace "wktest""#
    );
    let role = json!({"metadata": {"name": "actor"}, "rules": [rule(&["impersonate"], "", &["users"])]});
    post(&server, &format!("{RBAC}/clusterroles"), &role).await;
    post(&server, &format!("{RBAC}/clusterrolebindings"), &binding("ClusterRole", "actor", JANE)).await;
    assert_eq!(
        refused(as_jane(&joe, CONFIG_MAPS).await, 403),
        r#"configmaps is forbidden: User "joe" cannot list resource "configmaps" in API group "" in the namespace "wktest""#
    );
    assert_eq!(as_jane(&joe, "/version").await.0, 200);
    let as_master = [("impersonate-user", "joe"), ("impersonate-group", "system:masters")];
    assert_eq!(as_jane(&as_master, "/version").await.0, 403, "not with a group");
    let constrained = json!({"metadata": {"name": "limited"}, "rules": [
        rule(&["impersonate:user-info"], "authentication.k8s.io", &["users"]),
        rule(&["impersonate-on:user-info:list"], "", &["configmaps"]),
    ]});
    crate::common::call(&server, "DELETE", &format!("{RBAC}/clusterrolebindings/actor"), &Value::Null).await;
    post(&server, &format!("{RBAC}/clusterroles"), &constrained).await;
    post(&server, &format!("{RBAC}/clusterrolebindings"), &binding("ClusterRole", "limited", JANE)).await;
    let listed = refused(as_jane(&joe, CONFIG_MAPS).await, 403);
    assert!(listed.contains(r#"User "joe" cannot list"#), "{listed}");
    let one = refused(as_jane(&joe, &format!("{CONFIG_MAPS}/a")).await, 403);
    assert!(one.contains(r#"User "jane-wktest" cannot impersonate-on:user-info:get"#), "{one}");
}
