//! Kinds and namespaces: definitions, deletion with contents, and discovery.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/wktest.io/v1/namespaces/wktest/foos";

fn definition() -> Value {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "maxLength": 10, "pattern": "^[a-z]+$"},
            "replicas": {"type": "integer", "default": 1, "minimum": 0, "maximum": 100}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
    json!({"metadata": {"name": "foos.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced",
        "names": {"kind": "Foo", "plural": "foos", "shortNames": ["fo"], "categories": ["all"]},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "selectableFields": [{"jsonPath": ".spec.name"}]},
            {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema},
                "selectableFields": [{"jsonPath": ".spec.name"}]}]}})
}

fn foo(name: &str) -> Value {
    json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {"name": "abc", "unknown": 1}})
}

/// Creates a definition and returns it once its kind is served: at once here, after a moment on a real server.
async fn define(server: &Server, definition: &Value) -> Value {
    post(server, DEFINITIONS, definition).await;
    let text = |pointer: &str| definition.pointer(pointer).unwrap().as_str().unwrap();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let served = async || {
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let version = version["name"].as_str().unwrap();
            if get(server, &format!("/apis/{group}/{version}/{plural}")).await.0 != 200 {
                return None;
            }
        }
        Some(())
    };
    assert!(server.inside().is_none() || served().await.is_some(), "not served at once");
    server.until("served", served).await;
    get(server, &format!("{DEFINITIONS}/{plural}.{group}")).await.1
}

async fn gone(server: &Server, path: &str) {
    server.until("gone", async || (get(server, path).await.0 == 404).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served() {
    let server = Server::start().await;
    assert_eq!(get(&server, FOOS).await.0, 404);
    let definition = define(&server, &definition()).await;
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let met: Vec<_> =
        conditions.iter().map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap())).collect();
    assert_eq!(met, [("NamesAccepted", "True"), ("Established", "True")]);
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(definition["spec"]["names"]["listKind"], "FooList");
    let object = post(&server, FOOS, &foo("f")).await;
    assert_eq!(object["spec"], json!({"name": "abc", "replicas": 1}), "pruned and defaulted");
    assert_eq!(object["metadata"]["generation"], 1);
    let (_, list) = get(&server, FOOS).await;
    assert_eq!(list["items"][0]["kind"], "Foo", "items of custom lists carry their kind");
    let (_, found) = get(&server, &format!("{FOOS}?fieldSelector=spec.name%3Dabc")).await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        get(&server, &format!("{FOOS}?fieldSelector=spec.other%3Dabc")).await.1["message"],
        "field label not supported: spec.other"
    );
}

#[tokio::test(start_paused = true)]
async fn lists_of_custom_resources_have_their_metadata_last() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let response = send(&server, "GET", FOOS, &[], "").await;
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let text = std::str::from_utf8(&body).unwrap();
    assert!(text.find("\"items\"").unwrap() < text.find("\"metadata\"").unwrap(), "{text}");
}

#[tokio::test(start_paused = true)]
async fn all_served_versions_show_one_object() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    post(&server, FOOS, &foo("f")).await;
    let beta = FOOS.replace("/v1/", "/v1beta1/");
    let (_, seen) = get(&server, &format!("{beta}/f")).await;
    assert_eq!(seen["apiVersion"], "wktest.io/v1beta1");
    let (code, _) = patch(&server, &format!("{beta}/f"), MERGE, &json!({"spec": {"replicas": 5}})).await;
    assert_eq!(code, 200);
    let (_, stored) = get(&server, &format!("{FOOS}/f")).await;
    assert_eq!((&stored["apiVersion"], &stored["spec"]["replicas"]), (&json!("wktest.io/v1"), &json!(5)));
    let (code, status) = call(&server, "POST", &beta, &foo("g")).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the API version in the data (wktest.io/v1) does not match the expected API version (wktest.io/v1beta1)"
    );
    let mut watch = Watch::open(&server, &format!("{beta}?watch=1")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["apiVersion"], "wktest.io/v1beta1");
}

#[tokio::test(start_paused = true)]
async fn status_and_scale_of_a_custom_resource() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let mut object = foo("f");
    object["status"] = json!({"replicas": 9});
    assert_eq!(post(&server, FOOS, &object).await.get("status"), None, "dropped on create");
    let (_, object) = patch(
        &server,
        &format!("{FOOS}/f/status"),
        MERGE,
        &json!({"status": {"replicas": 3}, "spec": {"replicas": 7}}),
    )
    .await;
    assert_eq!((&object["status"]["replicas"], &object["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(object["metadata"]["generation"], 1);
    let (_, scale) =
        patch(&server, &format!("{FOOS}/f/scale"), MERGE, &json!({"spec": {"replicas": 4}})).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(4), &json!(3)));
    assert_eq!(get(&server, &format!("{}/f/status", FOOS.replace("/v1/", "/v1beta1/"))).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_checked_and_need_a_version_to_be_replaced() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let mut bad = foo("f");
    bad["spec"] = json!({"name": "ABC", "replicas": 200});
    let (code, status) = call(&server, "POST", FOOS, &bad).await;
    assert_eq!(code, 422);
    // In any order, as on the real server.
    let message = status["message"].as_str().unwrap();
    for cause in [
        "spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'",
        "spec.replicas: Invalid value: 200: spec.replicas in body should be less than or equal to 100",
    ] {
        assert!(message.contains(cause), "{message}");
    }
    post(&server, FOOS, &foo("f")).await;
    let (code, status) = call(&server, "PUT", &format!("{FOOS}/f"), &foo("f")).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "foos.wktest.io \"f\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    assert_eq!(call(&server, "PUT", &format!("{FOOS}/no"), &foo("no")).await.0, 404);
    let (code, status) = patch(&server, &format!("{FOOS}/f"), STRATEGIC, &json!({})).await;
    assert_eq!(code, 415);
    assert!(status["message"].as_str().unwrap().contains("application/merge-patch+json"));
}

#[tokio::test(start_paused = true)]
async fn a_custom_object_says_what_it_is() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    for (field, sent, code, message) in [
        (
            "kind",
            Value::Null,
            400,
            "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing",
        ),
        (
            "kind",
            json!("Bar"),
            422,
            "Bar.wktest.io \"f\" is invalid: kind: Invalid value: \"Bar\": must be Foo",
        ),
        (
            "apiVersion",
            Value::Null,
            400,
            "the API version in the data () does not match the expected API version (wktest.io/v1)",
        ),
    ] {
        let mut object = foo("f");
        object.as_object_mut().unwrap().remove(field);
        if !sent.is_null() {
            object[field] = sent;
        }
        let (found, status) = call(&server, "POST", FOOS, &object).await;
        assert_eq!(found, code, "{status}");
        // The embedded server does not quote the body.
        assert!(status["message"].as_str().unwrap().starts_with(message), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_with_its_objects_and_ends_its_watches() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    post(&server, FOOS, &foo("f")).await;
    let start = version(&get(&server, FOOS).await.1);
    let mut watch = Watch::open(&server, &format!("{FOOS}?watch=1&resourceVersion={start}")).await;
    let path = format!("{DEFINITIONS}/foos.wktest.io");
    assert_eq!(call(&server, "DELETE", &path, &Value::Null).await.0, 200);
    gone(&server, &path).await;
    gone(&server, FOOS).await;
    assert_eq!(get(&server, FOOS).await, (404, json!("404 page not found\n")));
    assert_eq!(watch.event().await.0, "DELETED");
    define(&server, &definition()).await;
    post(&server, FOOS, &foo("new")).await;
    assert_eq!(watch.next().await, None, "a kind that is defined again is another");
    assert_eq!(get(&server, &format!("{FOOS}/f")).await.0, 404);
    let mut late = Watch::open(&server, &format!("{FOOS}?watch=1&resourceVersion={start}")).await;
    let event = late.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_objects_with_finalizers() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let mut object = foo("f");
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, FOOS, &object).await;
    let path = format!("{DEFINITIONS}/foos.wktest.io");
    let (_, marked) = call(&server, "DELETE", &path, &Value::Null).await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let refused = async || (call(&server, "POST", FOOS, &foo("g")).await.0 == 403).then_some(());
    server.until("closed", refused).await;
    assert_eq!(get(&server, &path).await.0, 200);
    patch(&server, &format!("{FOOS}/f"), MERGE, &json!({"metadata": {"finalizers": null}})).await;
    gone(&server, &path).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_mistakes_is_refused_by_name() {
    let server = Server::start().await;
    let with = |path: &str, value: Value| {
        let mut definition = definition();
        *definition.pointer_mut(path).unwrap() = value;
        definition
    };
    for (object, field) in [
        (with("/metadata/name", json!("foo.wktest.io")), "metadata.name"),
        (with("/spec/scope", json!("Galaxy")), "spec.scope"),
        (with("/spec/versions/0/storage", json!(false)), "spec.versions"),
        (with("/spec/versions/0/schema", json!({})), "spec.versions[0].schema.openAPIV3Schema"),
        (with("/spec/names/kind", json!("")), "spec.names.kind"),
        (with("/spec/versions/1/selectableFields", json!([])), "spec.versions[0].selectableFields"),
    ] {
        let (code, status) = call(&server, "POST", DEFINITIONS, &object).await;
        assert_eq!(code, 422, "{field}");
        let fields: Vec<_> = status["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["field"].as_str().unwrap())
            .collect();
        assert!(fields.contains(&field), "{field} not in {fields:?}");
    }
    let mut protected = definition();
    protected["spec"]["group"] = "wktest.k8s.io".into();
    protected["metadata"]["name"] = "foos.wktest.k8s.io".into();
    assert_eq!(call(&server, "POST", DEFINITIONS, &protected).await.0, 422);
    protected["metadata"]["annotations"] =
        json!({"api-approved.kubernetes.io": "unapproved, experimental-only"});
    assert_eq!(call(&server, "POST", DEFINITIONS, &protected).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_name_conflict_is_reported_and_resolved_when_the_first_kind_goes() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let mut second = definition();
    second["metadata"]["name"] = "foes.wktest.io".into();
    second["spec"]["names"] = json!({"kind": "Foo", "plural": "foes"});
    let path = format!("{DEFINITIONS}/foes.wktest.io");
    post(&server, DEFINITIONS, &second).await;
    let observed = async || {
        let conditions = get(&server, &path).await.1["status"]["conditions"].clone();
        conditions.as_array().filter(|list| list.len() == 2).cloned()
    };
    let conditions = server.until("judged", observed).await;
    assert_eq!(conditions[0]["reason"], "ListKindConflict");
    assert_eq!(conditions[1]["status"], "False");
    let foes = "/apis/wktest.io/v1/namespaces/wktest/foes";
    assert_eq!(get(&server, foes).await.0, 404);
    call(&server, "DELETE", &format!("{DEFINITIONS}/foos.wktest.io"), &Value::Null).await;
    server.until("served", async || (get(&server, foes).await.0 == 200).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_asks_for_a_name_of_another_stays_with_its_own() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let mut second = definition();
    second["metadata"]["name"] = "bars.wktest.io".into();
    second["spec"]["names"] = json!({"kind": "Bar", "plural": "bars", "shortNames": ["ba"]});
    define(&server, &second).await;
    post(&server, FOOS, &foo("f")).await;
    let (path, other) = (format!("{DEFINITIONS}/foos.wktest.io"), format!("{DEFINITIONS}/bars.wktest.io"));
    let named = |names: Value| json!({"spec": {"names": {"shortNames": names}}});
    let accepted = async |verdict: &str| {
        let met = async || {
            let status = get(&server, &path).await.1["status"].clone();
            (status["conditions"][0]["status"] == verdict).then_some(status)
        };
        let status = server.until("judged", met).await;
        assert_eq!(status["conditions"][1]["status"], "True", "{status}");
        assert_eq!(get(&server, &format!("{FOOS}/f")).await.0, 200);
        status
    };
    assert_eq!(patch(&server, &path, MERGE, &named(json!(["fo", "ba"]))).await.0, 200);
    let status = accepted("False").await;
    assert_eq!(status["conditions"][0]["reason"], "ShortNamesConflict");
    assert_eq!(status["conditions"][0]["message"], "\"ba\" is already in use");
    assert_eq!(status["acceptedNames"]["shortNames"], json!(["fo"]));
    assert_eq!(patch(&server, &other, MERGE, &named(json!(["b"]))).await.0, 200);
    assert_eq!(accepted("True").await["acceptedNames"]["shortNames"], json!(["fo", "ba"]));
}

#[tokio::test(start_paused = true)]
async fn a_definition_keeps_what_its_objects_depend_on() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let path = format!("{DEFINITIONS}/foos.wktest.io");
    let refused = async |kind: &str, change: Value, expected: &str| {
        let (code, status) = patch(&server, &path, kind, &change).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(expected), "{code}: {status}");
    };
    let immutable = r#"spec.scope: Invalid value: "Cluster": field is immutable"#;
    refused(MERGE, json!({"spec": {"scope": "Cluster"}}), immutable).await;
    let immutable = r#"spec.names.kind: Invalid value: "Bar": field is immutable"#;
    refused(MERGE, json!({"spec": {"names": {"kind": "Bar"}}}), immutable).await;
    let default = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/default";
    let misfit = r#"properties[replicas].default: Invalid value: "string":  in body must be of type integer: "string""#;
    refused(JSON_PATCH, json!([{"op": "replace", "path": default, "value": "x"}]), misfit).await;
    let unknown = r#"properties[status].default: Invalid value: {"no":1}: must not have unknown fields"#;
    let default = "/spec/versions/0/schema/openAPIV3Schema/properties/status/default";
    refused(JSON_PATCH, json!([{"op": "add", "path": default, "value": {"no": 1}}]), unknown).await;
    let moved = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
    assert_eq!(patch(&server, &path, JSON_PATCH, &moved).await.0, 200);
    let remove = json!([{"op": "remove", "path": "/spec/versions/0"}]);
    let stored = r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#;
    refused(JSON_PATCH, remove.clone(), stored).await;
    let migrated = json!({"status": {"storedVersions": ["v1beta1"]}});
    assert_eq!(patch(&server, &format!("{path}/status"), MERGE, &migrated).await.0, 200);
    assert_eq!(patch(&server, &path, JSON_PATCH, &remove).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn defaults_of_a_definition_keep_their_owner_when_a_put_leaves_them_out() {
    let server = Server::start().await;
    let before = define(&server, &definition()).await;
    let mut again = definition();
    again["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    let after = call(&server, "PUT", &format!("{DEFINITIONS}/foos.wktest.io"), &again).await;
    assert_eq!(after, (200, before));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_contents() {
    let server = Server::with_controllers().await;
    let namespace = post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "wktest-n"}})).await;
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "wktest-n"}));
    assert_eq!(
        (&namespace["spec"], &namespace["status"]),
        (&json!({"finalizers": ["kubernetes"]}), &json!({"phase": "Active"}))
    );
    let maps = "/api/v1/namespaces/wktest-n/configmaps";
    post(&server, maps, &config_map("a", &json!({}))).await;
    let (code, marked) = call(&server, "DELETE", "/api/v1/namespaces/wktest-n", &Value::Null).await;
    assert_eq!((code, &marked["status"]["phase"]), (200, &json!("Terminating")));
    gone(&server, "/api/v1/namespaces/wktest-n").await;
    assert_eq!(get(&server, maps).await.1["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_finalizers_in_it_and_takes_nothing_new() {
    let server = Server::with_controllers().await;
    post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "wktest-n"}})).await;
    let maps = "/api/v1/namespaces/wktest-n/configmaps";
    let mut held = config_map("a", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, maps, &held).await;
    call(&server, "DELETE", "/api/v1/namespaces/wktest-n", &Value::Null).await;
    let (code, status) = call(&server, "POST", maps, &config_map("b", &json!({}))).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps \"b\" is forbidden: unable to create new content in namespace wktest-n because it is being terminated"
    );
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
    patch(&server, &format!("{maps}/a"), MERGE, &json!({"metadata": {"finalizers": []}})).await;
    gone(&server, "/api/v1/namespaces/wktest-n").await;
}

#[tokio::test(start_paused = true)]
async fn the_default_namespaces_are_there() {
    let (_, list) = get(&Server::start().await, "/api/v1/namespaces").await;
    let names: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|n| n["metadata"]["name"].clone()).collect();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        assert!(names.contains(&json!(name)), "{name} is not in {names:?}");
    }
}

const AGGREGATED: [(&str, &str); 1] =
    [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")];

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_changes_its_tag_with_its_content() {
    let server = Server::start().await;
    // Other tests may define kinds meanwhile and so change it.
    let unchanged = async || {
        let before = send(&server, "GET", "/apis", &AGGREGATED, "").await;
        assert_eq!(
            before.headers()["content-type"],
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        let tag = before.headers()["etag"].to_str().unwrap().to_owned();
        let known = [AGGREGATED[0], ("if-none-match", tag.as_str())];
        (send(&server, "GET", "/apis", &known, "").await.status() == 304).then_some(tag)
    };
    let tag = server.until("unchanged between two requests", unchanged).await;
    let known = [AGGREGATED[0], ("if-none-match", tag.as_str())];
    define(&server, &definition()).await;
    let observed = async || {
        let (code, body) = raw(&server, "GET", "/apis", &known, "").await;
        assert!(code == 304 || body["kind"] == "APIGroupDiscoveryList", "{code} {body}");
        body["items"].as_array()?.iter().find(|g| g["metadata"]["name"] == "wktest.io").cloned()
    };
    let group = server.until("discovered", observed).await;
    assert_eq!(group["versions"][0]["version"], "v1", "the stable version is preferred");
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!(
        (&resource["resource"], &resource["shortNames"], &resource["scope"]),
        (&json!("foos"), &json!(["fo"]), &json!("Namespaced"))
    );
    let (_, core) = raw(&server, "GET", "/api", &AGGREGATED, "").await;
    assert_eq!(core["items"][0]["versions"][0]["version"], "v1");
}

#[tokio::test(start_paused = true)]
async fn plain_discovery_lists_groups_versions_and_resources() {
    let server = Server::start().await;
    assert_eq!(get(&server, "/api").await.1["versions"], json!(["v1"]));
    let (_, groups) = get(&server, "/apis/").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "apps"));
    assert_eq!(get(&server, "/apis/apps").await.1["preferredVersion"]["groupVersion"], "apps/v1");
    let (_, apps) = get(&server, "/apis/apps/v1").await;
    let scale =
        apps["resources"].as_array().unwrap().iter().find(|r| r["name"] == "deployments/scale").unwrap();
    assert_eq!(
        (&scale["group"], &scale["version"], &scale["kind"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
    );
    assert_eq!(get(&server, "/version/").await.1["minor"], "36");
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&server, path).await, (200, json!("ok")));
        let (_, checks) = get(&server, &format!("{path}?verbose")).await;
        let lines: Vec<_> = checks.as_str().unwrap().lines().collect();
        assert!(lines.contains(&"[+]poststarthook/rbac/bootstrap-roles ok"), "{lines:?}");
        assert_eq!(lines.contains(&"[+]shutdown ok"), path == "/readyz");
        assert_eq!(lines.last(), Some(&&*format!("{} check passed", &path[1..])));
        assert_eq!(get(&server, &format!("{path}/poststarthook/rbac/bootstrap-roles")).await.0, 200);
        assert_eq!(get(&server, &format!("{path}/other")).await.0, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_timeout_is_refused_and_any_other_served() {
    let server = Server::start().await;
    for timeout in ["0s", "3m", "32s"] {
        assert_eq!(get(&server, &format!("/version?timeout={timeout}")).await.0, 200);
    }
    let (code, status) = get(&server, "/version?timeout=invalid").await;
    let problem = "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
    assert_eq!((code, &status["message"]), (400, &json!(problem)));
}

#[tokio::test(start_paused = true)]
async fn every_open_api_document_can_be_fetched() {
    let server = Server::start().await;
    define(&server, &definition()).await;
    let observed = async || {
        let (_, index) = get(&server, "/openapi/v3?timeout=32s").await;
        index["paths"].as_object().filter(|paths| paths.contains_key("apis/wktest.io/v1")).cloned()
    };
    let paths = server.until("described", observed).await;
    assert!(paths.contains_key("api/v1"));
    for (_, entry) in paths.iter().filter(|(path, _)| !path.contains(&format!("{OURS}-"))) {
        let (code, document) = get(&server, entry["serverRelativeURL"].as_str().unwrap()).await;
        assert_eq!((code, &document["openapi"]), (200, &json!("3.0.0")));
    }
}

#[tokio::test(start_paused = true)]
async fn questions_about_access_are_answered_with_yes() {
    let server = Server::start().await;
    let review = post(
        &server,
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        &json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}),
    )
    .await;
    assert_eq!(review["status"]["allowed"], true);
    let review = post(&server, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(review["status"]["userInfo"]["username"], "admin");
    assert_eq!(get(&server, "/apis/authentication.k8s.io/v1/selfsubjectreviews").await.0, 405);
}
