//! Requests that roles allow or refuse, and roles that are refused themselves.

use serde_json::{Value, json};

use crate::common::{CONFIG_MAPS, Server, call, config_map, get, patch, post};
use crate::{JANE, RBAC, binding, call_as, get_as, grant, of_namespace, refused, rule, until_served};

#[tokio::test(start_paused = true)]
async fn a_user_without_a_role_is_refused_in_the_words_of_the_real_server() {
    let server = Server::with_roles().await;
    let cases = [
        (
            "GET",
            "/apis/apps/v1/namespaces/wktest/deployments/web",
            r#"deployments.apps "web" is forbidden: User "jane-wktest" cannot get resource "deployments" in API group "apps" in the namespace "wktest""#,
        ),
        (
            "GET",
            "/api/v1/nodes",
            r#"nodes is forbidden: User "jane-wktest" cannot list resource "nodes" in API group "" at the cluster scope"#,
        ),
        (
            "GET",
            "/api/v1/namespaces/wktest",
            r#"namespaces "wktest" is forbidden: User "jane-wktest" cannot get resource "namespaces" in API group "" in the namespace "wktest""#,
        ),
        (
            "PUT",
            "/api/v1/namespaces/wktest/pods/p/status",
            r#"pods "p" is forbidden: User "jane-wktest" cannot update resource "pods/status" in API group "" in the namespace "wktest""#,
        ),
        (
            "DELETE",
            "/api/v1/namespaces/wktest/pods",
            r#"pods is forbidden: User "jane-wktest" cannot deletecollection resource "pods" in API group "" in the namespace "wktest""#,
        ),
        (
            "GET",
            "/apis/unknown.dev/v1/things",
            r#"things.unknown.dev is forbidden: User "jane-wktest" cannot list resource "things" in API group "unknown.dev" at the cluster scope"#,
        ),
        ("GET", "/metrics", r#"forbidden: User "jane-wktest" cannot get path "/metrics""#),
        ("POST", "/version", r#"forbidden: User "jane-wktest" cannot post path "/version""#),
    ];
    for (method, path, expected) in cases {
        let answer = call_as(&server, JANE, method, path, &Value::Null).await;
        assert_eq!(refused(answer, 403), expected, "{method} {path}");
    }
    for path in ["/version", "/healthz", "/api", "/apis", "/apis/apps/v1", "/openapi/v3"] {
        assert_eq!(get_as(&server, JANE, path).await.0, 200, "{path}");
    }
    let (_, answer) = get_as(&server, JANE, "/apis/apps/v1/namespaces/wktest/deployments/web").await;
    assert_eq!(answer["details"], json!({"name": "web", "group": "apps", "kind": "deployments"}));
}

#[tokio::test(start_paused = true)]
async fn a_role_allows_its_verbs_on_its_resources_in_its_namespace() {
    let server = Server::with_roles().await;
    grant(&server, JANE, "reader", &json!([rule(&["get", "list", "create"], "", &["configmaps"])])).await;
    until_served(&server, JANE, CONFIG_MAPS).await;
    let (code, _) = call_as(&server, JANE, "POST", CONFIG_MAPS, &config_map("a", &json!({}))).await;
    assert_eq!(code, 201);
    let one = format!("{CONFIG_MAPS}/a");
    assert_eq!(get_as(&server, JANE, &one).await.0, 200);
    for (method, path) in [
        ("DELETE", one.as_str()),
        ("PATCH", &one),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/namespaces/default/configmaps"),
        ("GET", &format!("{CONFIG_MAPS}?watch=true")),
        ("GET", "/api/v1/namespaces/wktest/secrets"),
    ] {
        assert_eq!(call_as(&server, JANE, method, path, &json!({})).await.0, 403, "{method} {path}");
    }
    assert_eq!(get_as(&server, "joe-wktest", CONFIG_MAPS).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn names_limit_a_rule_also_for_lists_of_one_name() {
    let server = Server::with_roles().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let mut limited = rule(&["get", "list", "watch", "update"], "", &["configmaps"]);
    limited["resourceNames"] = json!(["a"]);
    grant(&server, JANE, "one", &json!([limited])).await;
    until_served(&server, JANE, &format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(get_as(&server, JANE, &format!("{CONFIG_MAPS}/b")).await.0, 403);
    assert_eq!(get_as(&server, JANE, CONFIG_MAPS).await.0, 403);
    let selected = |name: &str| format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3D{name}");
    assert_eq!(get_as(&server, JANE, &selected("a")).await.0, 200);
    assert_eq!(get_as(&server, JANE, &selected("b")).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn a_role_that_is_deleted_or_unbound_allows_nothing_any_more() {
    let server = Server::with_roles().await;
    grant(&server, JANE, "reader", &json!([rule(&["list"], "", &["configmaps"])])).await;
    until_served(&server, JANE, CONFIG_MAPS).await;
    call(&server, "DELETE", &format!("{}/reader", of_namespace("roles")), &Value::Null).await;
    let refusal = server
        .until("the role is gone", async || {
            let (code, answer) = get_as(&server, JANE, CONFIG_MAPS).await;
            (code == 403).then_some(answer)
        })
        .await;
    assert_eq!(
        refusal["message"],
        r#"configmaps is forbidden: User "jane-wktest" cannot list resource "configmaps" in API group "" in the namespace "wktest": RBAC: role.rbac.authorization.k8s.io "reader" not found"#
    );
    call(&server, "DELETE", &format!("{}/reader", of_namespace("rolebindings")), &Value::Null).await;
    server
        .until("the binding is gone", async || {
            let (code, answer) = get_as(&server, JANE, CONFIG_MAPS).await;
            (code == 403 && !answer["message"].as_str().unwrap().contains("RBAC")).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn roles_with_nonsense_are_invalid() {
    let server = Server::with_roles().await;
    let role = |rules: Value| json!({"metadata": {"name": "bad-wktest"}, "rules": rules});
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}]);
    let both =
        json!([{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"], "apiGroups": [""]}]);
    let aggregated =
        json!({"metadata": {"name": "bad-wktest"}, "aggregationRule": {"clusterRoleSelectors": []}});
    let (roles, cluster) = (of_namespace("roles"), format!("{RBAC}/clusterroles"));
    let cases = [
        (
            &roles,
            role(json!([{}])),
            "[rules[0].verbs: Required value: verbs must contain at least one value, rules[0].apiGroups: Required value: resource rules must supply at least one api group, rules[0].resources: Required value: resource rules must supply at least one resource]",
        ),
        (
            &roles,
            role(paths),
            r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
        ),
        (
            &cluster,
            role(both),
            r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#,
        ),
        (
            &cluster,
            aggregated,
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
        ),
    ];
    for (path, role, expected) in cases {
        let message = refused(call(&server, "POST", path, &role).await, 422);
        assert!(message.ends_with(&format!(" is invalid: {expected}")), "{message}");
    }
    let unknown = role(json!([rule(&["frobnicate"], "none.dev", &["things"])]));
    assert_eq!(call(&server, "POST", &roles, &unknown).await.0, 201, "any verb and resource can be granted");
}

#[tokio::test(start_paused = true)]
async fn bindings_with_nonsense_are_invalid_and_their_role_cannot_change() {
    let server = Server::with_roles().await;
    let (path, cluster) = (of_namespace("rolebindings"), format!("{RBAC}/clusterrolebindings"));
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut it = binding("ClusterRole", "view", JANE);
        it["metadata"]["name"] = "bad-wktest".into();
        change(&mut it);
        it
    };
    let cases = [
        (
            &path,
            changed(&|it| it["roleRef"]["kind"] = "Pod".into()),
            r#"roleRef.kind: Unsupported value: "Pod": supported values: "Role", "ClusterRole""#,
        ),
        (
            &cluster,
            changed(&|it| it["roleRef"]["kind"] = "Role".into()),
            r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
        ),
        (&path, changed(&|it| it["roleRef"]["name"] = "".into()), "roleRef.name: Required value"),
        (
            &path,
            changed(&|it| it["roleRef"]["name"] = "a/b".into()),
            r#"roleRef.name: Invalid value: "a/b": may not contain '/'"#,
        ),
        (
            &path,
            changed(&|it| it["roleRef"]["apiGroup"] = "x".into()),
            r#"roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
        ),
        (
            &path,
            changed(&|it| it["subjects"][0]["kind"] = "Robot".into()),
            r#"subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#,
        ),
        (&path, changed(&|it| it["subjects"][0]["name"] = "".into()), "subjects[0].name: Required value"),
        (
            &cluster,
            changed(&|it| it["subjects"][0] = json!({"kind": "ServiceAccount", "name": "a"})),
            "subjects[0].namespace: Required value",
        ),
        (
            &path,
            changed(&|it| it["subjects"][0]["apiGroup"] = "y".into()),
            r#"subjects[0].apiGroup: Unsupported value: "y": supported values: "rbac.authorization.k8s.io""#,
        ),
    ];
    for (path, binding, expected) in cases {
        let message = refused(call(&server, "POST", path, &binding).await, 422);
        assert!(message.ends_with(&format!(" is invalid: {expected}")), "{message}");
    }
    let good = changed(&|_| {});
    post(&server, &path, &good).await;
    let other = json!({"roleRef": {"name": "edit"}});
    let answer = patch(&server, &format!("{path}/bad-wktest"), crate::common::MERGE, &other).await;
    assert_eq!(
        refused(answer, 422),
        r#"RoleBinding.rbac.authorization.k8s.io "bad-wktest" is invalid: roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: cannot change roleRef"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_server_has_the_default_roles() {
    let server = Server::with_roles().await;
    for (plural, names) in [
        (
            "clusterroles",
            &["cluster-admin", "admin", "edit", "view", "system:basic-user", "system:discovery"][..],
        ),
        (
            "clusterroles",
            &["system:public-info-viewer", "system:service-account-issuer-discovery", "system:node"],
        ),
        ("clusterrolebindings", &["cluster-admin", "system:basic-user", "system:discovery"]),
        ("clusterrolebindings", &["system:public-info-viewer", "system:service-account-issuer-discovery"]),
    ] {
        for name in names {
            let (code, object) = get(&server, &format!("{RBAC}/{plural}/{name}")).await;
            assert_eq!(code, 200, "{plural} {name}");
            assert_eq!(object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
            assert_eq!(
                object["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"],
                "true"
            );
        }
    }
    let view = json!({
        "metadata": {"name": "viewers"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": JANE}],
    });
    post(&server, &of_namespace("rolebindings"), &view).await;
    if server.inside().is_none() {
        return; // its aggregation needs the controller manager
    }
    assert_eq!(get_as(&server, JANE, "/api/v1/namespaces/wktest/pods").await.0, 200);
    assert_eq!(get_as(&server, JANE, "/apis/apps/v1/namespaces/wktest/deployments").await.0, 200);
    assert_eq!(get_as(&server, JANE, "/api/v1/namespaces/wktest/secrets").await.0, 403);
}
