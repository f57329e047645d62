//! Priority and fairness: how requests are classified, the default objects, and their condition and metrics.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "common/mod.rs"]
mod common;

use serde_json::{Value, json};

use common::{CONFIG_MAPS, Server, call, get, post, raw, send};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

async fn server() -> Server {
    Server::embedded(|settings| settings.priority_and_fairness(true)).await
}

/// The uids that the headers of a response name: of a flow schema and of a priority level.
async fn flow(server: &Server, method: &str, path: &str, user: &[(&str, &str)]) -> Option<(String, String)> {
    let answer = send(server, method, path, user, "").await;
    let header = |name: &str| Some(answer.headers().get(name)?.to_str().unwrap().to_owned());
    Some((header("x-kubernetes-pf-flowschema-uid")?, header("x-kubernetes-pf-prioritylevel-uid")?))
}

async fn uid(server: &Server, path: &str) -> String {
    get(server, path).await.1["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The names of the flow schema and of the priority level of a request.
async fn named(server: &Server, method: &str, path: &str, user: &[(&str, &str)]) -> (String, String) {
    let (schema, level) = flow(server, method, path, user).await.unwrap();
    let mut names = Vec::new();
    for (collection, uid) in [(SCHEMAS, schema), (LEVELS, level)] {
        let (_, list) = get(server, collection).await;
        let items = list["items"].as_array().unwrap().iter();
        let found = items.map(|item| &item["metadata"]).find(|metadata| metadata["uid"] == uid).unwrap();
        names.push(found["name"].as_str().unwrap().to_owned());
    }
    (names.remove(0), names.remove(0))
}

fn schema(name: &str, level: &str, precedence: i64, user: &str) -> Value {
    let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": user}}], "nonResourceRules": paths});
    json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence, "rules": [rule],
        "priorityLevelConfiguration": {"name": level}, "distinguisherMethod": {"type": "ByUser"}}})
}

fn level(name: &str) -> Value {
    let limited = json!({"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}});
    json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}})
}

/// Status and reason of the condition of a flow schema.
async fn dangling(server: &Server, name: &str) -> (String, String) {
    let (_, schema) = get(server, &format!("{SCHEMAS}/{name}")).await;
    let condition = &schema["status"]["conditions"][0];
    assert_eq!(condition["type"], "Dangling", "{schema}");
    assert!(condition["lastTransitionTime"].is_string());
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    (text("status"), text("reason"))
}

fn found(exists: bool) -> (String, String) {
    let (status, reason) = if exists { ("False", "Found") } else { ("True", "NotFound") };
    (status.to_owned(), reason.to_owned())
}

// e2e: API priority and fairness should ensure that requests can be classified by adding FlowSchema and
// PriorityLevelConfiguration
#[tokio::test(start_paused = true)]
async fn a_request_is_classified_by_its_user() {
    let server = server().await;
    let own_level = post(&server, LEVELS, &level("testing")).await["metadata"]["uid"].clone();
    let own_schema =
        post(&server, SCHEMAS, &schema("testing", "testing", 1000, "noxu")).await["metadata"]["uid"].clone();
    assert_eq!(dangling(&server, "testing").await, found(true));
    let (_, metrics) = get(&server, "/metrics").await;
    let metrics = metrics.as_str().unwrap();
    assert!(
        metrics.contains("apiserver_flowcontrol_nominal_limit_seats{priority_level=\"testing\"} 3\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("apiserver_flowcontrol_nominal_limit_seats{priority_level=\"exempt\"} 0\n"),
        "{metrics}"
    );
    let (schema, level) = flow(&server, "GET", "/version", &[("impersonate-user", "noxu")]).await.unwrap();
    assert_eq!((json!(schema), json!(level)), (own_schema, own_level));
    let other = named(&server, "GET", "/version", &[("impersonate-user", "foo")]).await;
    assert_eq!(other, ("global-default".to_owned(), "global-default".to_owned()));
    // Its rules are about paths that are no resources.
    let other = named(&server, "GET", CONFIG_MAPS, &[("impersonate-user", "noxu")]).await;
    assert_eq!(other.0, "global-default");
}

#[tokio::test(start_paused = true)]
async fn the_default_schemas_classify_the_parts_of_a_cluster() {
    let server = server().await;
    let node = [("impersonate-user", "system:node:a"), ("impersonate-group", "system:nodes")];
    let scheduler = [("impersonate-user", "system:kube-scheduler")];
    let account = |name| [("impersonate-user", name), ("impersonate-group", "system:serviceaccounts")];
    let leases = "/apis/coordination.k8s.io/v1/namespaces/wktest/leases";
    let lease = format!("{leases}/a");
    let lease = lease.as_str();
    for (method, path, user, expected) in [
        ("GET", CONFIG_MAPS, &[][..], ("exempt", "exempt")),
        ("GET", "/healthz", &[("impersonate-user", "a")], ("probes", "exempt")),
        ("GET", "/version", &[("impersonate-user", "a")], ("global-default", "global-default")),
        ("PUT", "/api/v1/nodes/a/status", &node, ("system-node-high", "node-high")),
        ("PUT", lease, &node, ("system-node-high", "node-high")),
        ("GET", "/api/v1/pods", &node, ("system-nodes", "system")),
        ("GET", lease, &scheduler, ("system-leader-election", "leader-election")),
        ("GET", leases, &scheduler, ("kube-scheduler", "workload-high")),
        (
            "GET",
            lease,
            &account("system:serviceaccount:kube-system:a"),
            ("system-leader-election", "leader-election"),
        ),
        (
            "GET",
            CONFIG_MAPS,
            &account("system:serviceaccount:kube-system:a"),
            ("kube-system-service-accounts", "workload-high"),
        ),
        (
            "GET",
            CONFIG_MAPS,
            &account("system:serviceaccount:wktest:a"),
            ("service-accounts", "workload-low"),
        ),
    ] {
        let found = named(&server, method, path, user).await;
        assert_eq!((found.0.as_str(), found.1.as_str()), expected, "{method} {path} {user:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_schema_without_a_level_dangles_and_is_passed_over() {
    let server = server().await;
    post(&server, SCHEMAS, &schema("lonely", "none", 1, "noxu")).await;
    assert_eq!(dangling(&server, "lonely").await, found(false));
    let user = [("impersonate-user", "noxu")];
    assert_eq!(named(&server, "GET", "/version", &user).await.0, "global-default");
    post(&server, LEVELS, &level("none")).await;
    assert_eq!(dangling(&server, "lonely").await, found(true));
    assert_eq!(named(&server, "GET", "/version", &user).await, ("lonely".to_owned(), "none".to_owned()));
    assert_eq!(call(&server, "DELETE", &format!("{LEVELS}/none"), &Value::Null).await.0, 200);
    assert_eq!(dangling(&server, "lonely").await, found(false));
    assert_eq!(call(&server, "DELETE", &format!("{SCHEMAS}/lonely"), &Value::Null).await.0, 200);
    assert_eq!(named(&server, "GET", "/version", &user).await.0, "global-default");
}

#[tokio::test(start_paused = true)]
async fn of_two_schemas_the_one_of_lower_precedence_and_then_name_counts() {
    let server = server().await;
    for (name, precedence) in [("c", 5), ("b", 7), ("a", 7)] {
        post(&server, SCHEMAS, &schema(name, "system", precedence, "*")).await;
    }
    let user = [("impersonate-user", "noxu")];
    for name in ["c", "a", "b"] {
        assert_eq!(named(&server, "GET", "/version", &user).await, (name.to_owned(), "system".to_owned()));
        assert_eq!(call(&server, "DELETE", &format!("{SCHEMAS}/{name}"), &Value::Null).await.0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_objects_are_those_of_a_real_server_and_can_be_written_again() {
    let server = server().await;
    let (_, levels) = get(&server, LEVELS).await;
    assert_eq!(levels["items"].as_array().unwrap().len(), 8);
    let (_, schemas) = get(&server, SCHEMAS).await;
    assert_eq!(schemas["items"].as_array().unwrap().len(), 11);
    for (collection, list) in [(LEVELS, &levels), (SCHEMAS, &schemas)] {
        for item in list["items"].as_array().unwrap() {
            let path = format!("{collection}/{}", item["metadata"]["name"].as_str().unwrap());
            let (code, same) = call(&server, "PUT", &path, item).await;
            assert_eq!(
                (code, &same["metadata"]["resourceVersion"]),
                (200, &item["metadata"]["resourceVersion"]),
                "{same}"
            );
        }
    }
    let (_, row) = raw(
        &server,
        "GET",
        &format!("{SCHEMAS}/probes"),
        &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")],
        "",
    )
    .await;
    assert_eq!(
        row["rows"][0]["cells"],
        json!(["probes", "exempt", 2, "<none>", row["rows"][0]["cells"][4], "False"])
    );
}

#[tokio::test(start_paused = true)]
async fn without_flow_control_there_is_nothing_of_it() {
    let server = Server::embedded(|settings| settings).await;
    assert_eq!(flow(&server, "GET", "/version", &[]).await, None);
    assert_eq!(get(&server, SCHEMAS).await.1["items"], json!([]));
    assert!(!get(&server, "/metrics").await.1.as_str().unwrap().contains("apiserver_flowcontrol"));
    assert_eq!(get(&server, &format!("{LEVELS}/exempt")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_and_a_watch_are_classified_too() {
    let server = server().await;
    let expected =
        (uid(&server, &format!("{SCHEMAS}/exempt")).await, uid(&server, &format!("{LEVELS}/exempt")).await);
    for path in [format!("{CONFIG_MAPS}/none"), format!("{CONFIG_MAPS}?watch=1"), "/none".to_owned()] {
        assert_eq!(flow(&server, "GET", &path, &[]).await.as_ref(), Some(&expected), "{path}");
    }
}
