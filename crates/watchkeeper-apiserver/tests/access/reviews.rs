//! Questions about access: what is allowed, to whom, and why.

use serde_json::{Value, json};

use crate::common::{Server, call};
use crate::{JANE, call_as, grant, refused, rule, until_served};

const GROUP: &str = "/apis/authorization.k8s.io/v1";

async fn review(server: &Server, path: &str, spec: Value) -> (u16, Value) {
    call(server, "POST", &format!("{GROUP}/{path}"), &json!({"spec": spec})).await
}

#[tokio::test(start_paused = true)]
async fn access_is_reviewed_as_requests_are_decided() {
    let server = Server::with_roles().await;
    grant(&server, JANE, "reader", &json!([rule(&["list"], "", &["pods"])])).await;
    until_served(&server, JANE, "/api/v1/namespaces/wktest/pods").await;
    let pods =
        |verb: &str, namespace: &str| json!({"verb": verb, "resource": "pods", "namespace": namespace});
    let why = r#"RBAC: allowed by RoleBinding "reader/wktest" of Role "reader" to User "jane-wktest""#;
    let yes = json!({"allowed": true, "reason": why});
    let no = json!({"allowed": false});
    for (verb, namespace, expected) in
        [("list", "wktest", &yes), ("get", "wktest", &no), ("list", "", &no), ("nonsense", "wktest", &no)]
    {
        let own = json!({"spec": {"resourceAttributes": pods(verb, namespace)}});
        let (code, answer) =
            call_as(&server, JANE, "POST", &format!("{GROUP}/selfsubjectaccessreviews"), &own).await;
        assert_eq!((code, &answer["status"]), (201, expected), "{verb} {namespace}");
        let spec = json!({"user": JANE, "resourceAttributes": pods(verb, namespace)});
        assert_eq!(review(&server, "subjectaccessreviews", spec).await.1["status"], *expected);
    }
    let spec = json!({"user": JANE, "resourceAttributes": pods("list", "wktest")});
    let local = "namespaces/wktest/localsubjectaccessreviews";
    assert_eq!(review(&server, local, spec).await.1["status"], yes);
    let path = json!({"groups": ["system:unauthenticated"], "nonResourceAttributes": {"verb": "get", "path": "/version"}});
    assert_eq!(
        review(&server, "subjectaccessreviews", path).await.1["status"]["reason"],
        r#"RBAC: allowed by ClusterRoleBinding "system:public-info-viewer" of ClusterRole "system:public-info-viewer" to Group "system:unauthenticated""#
    );
    let master = json!({"groups": ["system:masters"], "resourceAttributes": {"verb": "*", "resource": "*"}});
    assert_eq!(review(&server, "subjectaccessreviews", master).await.1["status"], json!({"allowed": true}));
    let own = json!({"resourceAttributes": {"verb": "delete", "resource": "nodes"}});
    assert_eq!(review(&server, "selfsubjectaccessreviews", own).await.1["status"], json!({"allowed": true}));
}

#[tokio::test(start_paused = true)]
async fn reviews_with_nonsense_are_invalid() {
    let server = Server::with_roles().await;
    let (resource, path) = (json!({"verb": "get"}), json!({"verb": "get", "path": "/x"}));
    let local = "namespaces/wktest/localsubjectaccessreviews";
    let cases = [
        (
            "selfsubjectaccessreviews",
            json!({}),
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "selfsubjectaccessreviews",
            json!({"resourceAttributes": resource, "nonResourceAttributes": path}),
            r#"spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with resourceAttributes"#,
        ),
        (
            "subjectaccessreviews",
            json!({"resourceAttributes": resource}),
            r#"spec.user: Invalid value: "": at least one of user or group must be specified"#,
        ),
        (
            local,
            json!({"user": "x", "resourceAttributes": resource}),
            r#"spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace"#,
        ),
        (
            local,
            json!({"user": "x", "nonResourceAttributes": path}),
            r#"spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request"#,
        ),
    ];
    for (kind, spec, expected) in cases {
        let message = refused(review(&server, kind, spec).await, 422);
        assert_eq!(message, format!(r#".authorization.k8s.io "" is invalid: {expected}"#));
    }
    assert_eq!(
        refused(review(&server, "selfsubjectrulesreviews", json!({})).await, 400),
        "no namespace on request"
    );
    let wrong = json!({"resourceAttributes": ["get"]});
    assert_eq!(review(&server, "selfsubjectaccessreviews", wrong).await.0, 400);
    let other = json!({"metadata": {"namespace": "other"}, "spec": {}});
    let answer = call(&server, "POST", &format!("{GROUP}/{local}"), &other).await;
    assert_eq!(
        refused(answer, 400),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    assert_eq!(call(&server, "GET", &format!("{GROUP}/subjectaccessreviews"), &Value::Null).await.0, 405);
}

#[tokio::test(start_paused = true)]
async fn all_rules_of_a_user_are_listed() {
    let server = Server::with_roles().await;
    let mut limited = rule(&["get"], "", &["secrets"]);
    limited["resourceNames"] = json!(["a"]);
    grant(&server, JANE, "reader", &json!([rule(&["list"], "", &["pods"]), limited])).await;
    until_served(&server, JANE, "/api/v1/namespaces/wktest/pods").await;
    let path = format!("{GROUP}/selfsubjectrulesreviews");
    let ask = async |namespace: &str| {
        let spec = json!({"spec": {"namespace": namespace}});
        let (code, mut answer) = call_as(&server, JANE, "POST", &path, &spec).await;
        assert_eq!((code, &answer["metadata"], &answer["spec"]), (201, &json!({}), &json!({})));
        answer["status"].take()
    };
    let status = ask("wktest").await;
    let rules = status["resourceRules"].as_array().unwrap();
    let expected = [
        json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}),
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}),
        json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}),
    ];
    assert!(expected.iter().all(|rule| rules.contains(rule)), "{status}");
    assert_eq!((rules.len(), &status["incomplete"]), (4, &json!(false)));
    let others = status["nonResourceRules"].as_array().unwrap();
    let public = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]});
    assert!(others.len() == 2 && others.contains(&public), "{status}");
    assert_eq!(ask("elsewhere").await["resourceRules"].as_array().unwrap().len(), 2);
}
