//! Are the answers that were once found to differ, most of them by random sequences, those of a real server?
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

#[path = "../common/mod.rs"]
mod common;
mod evictions;
mod pods;
mod services;

use common::*;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/wktest/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/wktest/deployments";
const APPLY: &str = "application/apply-patch+yaml";

fn pod(spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn replacing_a_field_that_is_not_there_adds_it() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await;
    let replace = json!([{"op": "replace", "path": "/data/new", "value": "x"}]);
    let (code, object) = patch(&server, &format!("{CONFIG_MAPS}/a"), JSON_PATCH, &replace).await;
    assert_eq!((code, &object["data"]), (200, &json!({"k": "v", "new": "x"})), "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_directive_for_a_map_that_is_not_there_leaves_none() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let replace = json!({"metadata": {"labels": {"$patch": "replace", "app": "b"}}});
    let (_, object) = patch(&server, &format!("{CONFIG_MAPS}/a"), STRATEGIC, &replace).await;
    assert_eq!(object["metadata"].get("labels"), None);
}

#[tokio::test(start_paused = true)]
async fn refusals_carry_the_warnings_too() {
    let server = Server::start().await;
    let mut object = config_map("a", &json!({}));
    object["surprise"] = 1.into();
    for code in [201, 409] {
        let json = [("content-type", "application/json")];
        let response = send(&server, "POST", CONFIG_MAPS, &json, object.to_string()).await;
        assert_eq!(response.status(), code);
        assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"surprise\\\"\"");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_does_not_fit_its_kind_is_refused_with_the_place() {
    let server = Server::start().await;
    let path = format!("{DEPLOYMENTS}/d?fieldManager=one");
    let containers = "/spec/template/spec/containers";
    for (place, value, problem) in [
        ("/spec/replicas", json!("3"), ".spec.replicas: expected numeric (int or float), got string"),
        (
            containers,
            json!([{"name": "c", "surprise": 1}]),
            ".spec.template.spec.containers[name=\"c\"].surprise: field not declared in schema",
        ),
        (
            containers,
            json!([{"name": "c"}, {"name": "c"}]),
            ".spec.template.spec.containers: duplicate entries for key [name=\"c\"]",
        ),
    ] {
        let mut config = deployment();
        config["spec"]["replicas"] = 1.into();
        *config.pointer_mut(place).unwrap() = value;
        let (code, status) = patch(&server, &path, APPLY, &config).await;
        assert_eq!(code, 500, "{status}");
        assert!(message(&status).ends_with(problem), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_without_effect_has_no_time() {
    let server = Server::start().await;
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    post(&server, CONFIG_MAPS, &object).await;
    let path = format!("{CONFIG_MAPS}/a?fieldManager=one");
    let (_, applied) = patch(&server, &path, APPLY, &object).await;
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let one = managers.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!(one.get("time"), None);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_which_nobody_owns_anything_stays_so() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await;
    let (_, object) = patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"data": {"k": "v"}})).await;
    assert_eq!((&object["data"]["k"], object["metadata"].get("managedFields")), (&json!("v"), None));
}

#[tokio::test(start_paused = true)]
async fn options_in_the_body_of_a_delete_are_all_there_are() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let body = json!({"propagationPolicy": "Background"});
    assert_eq!(call(&server, "DELETE", &format!("{path}?dryRun=All"), &body).await.0, 200);
    assert_eq!(get(&server, &path).await.0, 404, "it was no dry run");
}

#[tokio::test(start_paused = true)]
async fn a_page_does_not_tell_whether_the_rest_matches() {
    let server = Server::start().await;
    for (name, label) in [("a", "1"), ("b", "2")] {
        let mut object = config_map(name, &json!({}));
        object["metadata"]["labels"] = json!({"l": label});
        post(&server, CONFIG_MAPS, &object).await;
    }
    let (_, page) = get(&server, &format!("{CONFIG_MAPS}?limit=1&labelSelector=l%3D1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = format!("{CONFIG_MAPS}?limit=1&labelSelector=l%3D1&continue={token}");
    let (_, rest) = get(&server, &rest).await;
    assert_eq!((&rest["items"], rest["metadata"].get("continue")), (&json!([]), None));
}

#[tokio::test(start_paused = true)]
async fn objects_with_mistakes_are_refused_by_field() {
    let server = Server::start().await;
    let both = json!({"metadata": {"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}});
    let owner =
        json!({"metadata": {"name": "a", "ownerReferences": [{"kind": "K", "name": "n", "uid": "u"}]}});
    let with = |place: &str, value: Value| {
        let mut object = deployment();
        object["spec"]["strategy"] = json!({});
        *object.pointer_mut(place).unwrap() = value;
        object
    };
    let rolling = json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}});
    for (collection, object, field) in [
        (CONFIG_MAPS, config_map("a", &json!({"not valid!": "x"})), "data[not valid!]"),
        (CONFIG_MAPS, both, "metadata.finalizers"),
        (CONFIG_MAPS, owner, "metadata.ownerReferences.apiVersion"),
        (DEPLOYMENTS, with("/spec/strategy", json!({"type": "Odd"})), "spec.strategy"),
        (DEPLOYMENTS, with("/spec/strategy", rolling), "spec.strategy.rollingUpdate"),
    ] {
        let (code, status) = call(&server, "POST", collection, &object).await;
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(field)), "{status}");
    }
    let odd = json!({"kind": "Odd", "metadata": {"name": "a"}});
    let (_, status) = call(&server, "POST", CONFIG_MAPS, &odd).await;
    assert!(message(&status).contains("no kind \"Odd\" is registered for version \"v1\""), "{status}");
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_deployment_adds_up_and_takes_finalizers() {
    let server = Server::start().await;
    let mut object = deployment();
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, DEPLOYMENTS, &object).await;
    let path = format!("{DEPLOYMENTS}/d/status");
    for (status, field) in [
        (
            json!({"replicas": -1, "updatedReplicas": -1, "readyReplicas": -1, "availableReplicas": -1}),
            "status.replicas",
        ),
        (json!({"replicas": 1, "readyReplicas": 2}), "status.readyReplicas"),
    ] {
        let (code, answer) = patch(&server, &path, MERGE, &json!({ "status": status })).await;
        assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!(field)), "{answer}");
    }
    let (_, object) = patch(&server, &path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(object["metadata"].get("finalizers"), None, "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_of_zero_is_not_printed() {
    let server = Server::start().await;
    post(&server, DEPLOYMENTS, &deployment()).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let (code, scale) = patch(&server, &path, MERGE, &json!({"spec": {"replicas": 0}})).await;
    assert_eq!((code, &scale["spec"]), (200, &json!({})), "{scale}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_changes_only_where_it_may() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    let made = post(&server, PODS, &pod(&json!({"terminationGracePeriodSeconds": -1}))).await;
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 1);
    // What admission adds is added again when somebody sends a pod without it.
    let mut same = pod(&json!({"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 1}));
    let (code, answer) = call(&server, "PUT", &path, &same).await;
    assert_eq!((code, &answer["spec"]["tolerations"]), (200, &made["spec"]["tolerations"]), "{answer}");
    let toleration = json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}});
    assert_eq!(patch(&server, &path, MERGE, &toleration).await.0, 200);
    let two = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    for (field, value, told) in [
        ("containers", two, "spec.containers"),
        ("activeDeadlineSeconds", json!(90), "spec.activeDeadlineSeconds"),
        ("tolerations", json!([]), "spec.tolerations"),
    ] {
        let kept = same["spec"].clone();
        same["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        same["spec"][field] = value;
        let (code, status) = call(&server, "PUT", &path, &same).await;
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(told)), "{status}");
        same["spec"] = kept;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_takes_no_other_policy() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    post(&server, PODS, &pod(&json!({"nodeName": "n"}))).await;
    let (_, ending) = call(&server, "DELETE", &path, &Value::Null).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    assert_eq!(call(&server, "DELETE", &path, &foreground).await, (200, ending));
}

#[tokio::test(start_paused = true)]
async fn an_applied_null_leaves_the_parts_that_others_have() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {}}, "data": null});
    let (code, object) = patch(&server, &format!("{CONFIG_MAPS}/a?fieldManager=one"), APPLY, &config).await;
    assert_eq!((code, &object["data"]), (200, &json!({"k": "v"})), "{object}");
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let one = managers.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!(one["fieldsV1"], json!({"f:data": {}, "f:metadata": {"f:labels": {}}}));
}

#[tokio::test(start_paused = true)]
async fn a_write_of_what_is_there_counts_once_when_it_makes_its_manager_the_last() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    // The server adds tolerations of its own to the list, so the same patch takes the list each time.
    let change = json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}});
    let first = loop {
        post(&server, PODS, &pod(&json!({}))).await;
        patch(&server, &format!("{path}/status"), MERGE, &json!({"status": {"phase": "Running"}})).await;
        let (_, object) = patch(&server, &path, MERGE, &change).await;
        let managers = object["metadata"]["managedFields"].as_array().unwrap();
        if managers[0]["time"] == managers[1]["time"] {
            break object;
        }
        call(&server, "DELETE", &path, &Value::Null).await;
    };
    let mut versions = vec![version(&first)];
    for _ in 0..2 {
        server.env.clock.sleep(std::time::Duration::from_secs(1)).await;
        versions.push(version(&patch(&server, &path, MERGE, &change).await.1));
    }
    assert!(versions[0] < versions[1] && versions[1] == versions[2], "{versions:?}");
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_of_the_wrong_type_is_told_in_words_of_its_own() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let (_, status) =
        patch(&server, &format!("{CONFIG_MAPS}/a"), STRATEGIC, &json!({"data": {"k": 5}})).await;
    assert!(message(&status).ends_with("\": cannot convert int64 to string"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn one_name_is_listed_as_it_is_now_even_in_pages() {
    let server = Server::start().await;
    let first = post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "1"}))).await;
    patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"data": {"k": "2"}})).await;
    let at = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da&resourceVersion={}", version(&first));
    for (query, shown) in [("limit=1", "2"), ("limit=1&resourceVersionMatch=Exact", "1")] {
        let (_, list) = get(&server, &format!("{at}&{query}")).await;
        assert_eq!(list["items"][0]["data"]["k"], shown, "{query}: {list}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_and_a_policy_that_takes_the_last_finalizer_contradict_each_other() {
    let server = Server::start().await;
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["orphan"]);
    let made = post(&server, CONFIG_MAPS, &object).await;
    let precondition = json!({"resourceVersion": version(&made).to_string()});
    let options = json!({"propagationPolicy": "Background", "preconditions": precondition});
    let path = format!("{CONFIG_MAPS}/a");
    let (code, status) = call(&server, "DELETE", &path, &options).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    assert_eq!(get(&server, &path).await, (200, made), "nothing was done");
}

#[tokio::test(start_paused = true)]
async fn an_ended_pod_on_its_way_goes_no_faster_than_it_is_told() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    post(&server, PODS, &pod(&json!({"nodeName": "n"}))).await;
    call(&server, "DELETE", &path, &Value::Null).await;
    patch(&server, &format!("{path}/status"), MERGE, &json!({"status": {"phase": "Succeeded"}})).await;
    let (_, object) = call(&server, "DELETE", &path, &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 5, "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_that_is_not_there_has_no_log() {
    let server = Server::start().await;
    post(&server, PODS, &pod(&json!({"nodeName": "wktest-n"}))).await;
    let (code, status) = get(&server, &format!("{PODS}/p/log")).await;
    assert_eq!((code, message(&status)), (404, "pods \"wktest-n\" not found"));
}

/// The owners of the number of replicas, with the endpoint by which each wrote.
fn owners(object: &Value) -> Vec<String> {
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let owning = managers.iter().filter(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    let mut owners: Vec<_> = owning
        .map(|entry| {
            let timed = if entry.get("time").is_some() { " at a time" } else { "" };
            format!("{}{timed}", entry["subresource"].as_str().unwrap_or("main"))
        })
        .collect();
    owners.sort();
    owners
}

#[tokio::test(start_paused = true)]
async fn a_scale_to_the_number_that_is_there_is_written_by_nobody() {
    let server = Server::start().await;
    let (path, scale) = (format!("{DEPLOYMENTS}/d"), format!("{DEPLOYMENTS}/d/scale"));
    assert_eq!(owners(&post(&server, DEPLOYMENTS, &deployment()).await), ["main at a time"]);
    for (replicas, expected) in [(1, &["main"][..]), (1, &[]), (0, &[]), (2, &[])] {
        let body = json!({"spec": {"replicas": replicas}});
        let (code, answer) = patch(&server, &scale, MERGE, &body).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(owners(&get(&server, &path).await.1), expected, "{replicas}");
    }
    patch(&server, &path, MERGE, &json!({"spec": {"replicas": 5}})).await;
    for (replicas, expected) in [(3, &["scale"][..]), (3, &["scale"]), (0, &[])] {
        patch(&server, &scale, MERGE, &json!({"spec": {"replicas": replicas}})).await;
        assert_eq!(owners(&get(&server, &path).await.1), expected, "{replicas}");
    }
}

const FOOS: &str = "/apis/wktest.io/v1/namespaces/wktest/foos";

/// A server that has a custom kind.
async fn with_foos() -> Server {
    let server = Server::start().await;
    let text = json!({"type": "string", "enum": ["A", "B"]});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"mode": text, "replicas": {"type": "integer", "default": 1}}},
        "status": {"type": "object", "properties": {"phase": text, "replicas": {"type": "integer"}}}}});
    let definition = json!({"metadata": {"name": "foos.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]}});
    post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    server.until("served", async || (get(&server, FOOS).await.0 == 200).then_some(())).await;
    server
}

fn foo(spec: &Value) -> Value {
    json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec})
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap().to_owned();
    let mut causes: Vec<_> =
        causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect();
    causes.sort();
    causes
}

#[tokio::test(start_paused = true)]
async fn an_applied_null_of_a_custom_object_is_refused_where_no_default_takes_its_place() {
    let server = with_foos().await;
    let path = format!("{FOOS}/f?fieldManager=one");
    let (_, status) = patch(&server, &path, APPLY, &foo(&json!({"mode": null}))).await;
    let expected = [
        r#"spec.mode: Invalid value: "null": spec.mode in body must be of type string: "null""#,
        r#"spec.mode: Unsupported value: null: supported values: "A", "B""#,
    ];
    assert_eq!(causes(&status), expected, "{status}");
    let (code, object) = patch(&server, &path, APPLY, &foo(&json!({"replicas": null}))).await;
    assert_eq!((code, &object["spec"]["replicas"]), (201, &json!(1)), "{object}");
    let made = post(&server, FOOS, &json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": "g"}, "spec": {"mode": null}})).await;
    assert_eq!(made["spec"], json!({"replicas": 1}), "elsewhere a null is nothing");
}

#[tokio::test(start_paused = true)]
async fn a_custom_status_is_checked_as_if_it_were_all_there_is() {
    let server = with_foos().await;
    post(&server, FOOS, &foo(&json!({}))).await;
    let path = format!("{FOOS}/f/status");
    let (_, status) = patch(&server, &path, MERGE, &json!({"status": {"replicas": "many"}})).await;
    let expected = [
        ".status.replicas: Invalid value: 0: .status.replicas accessor error: many is of the type string, expected int64",
        r#"status.replicas: Invalid value: "string": replicas in body must be of type integer: "string""#,
    ];
    assert_eq!(causes(&status), expected, "{status}");
    let config =
        json!({"apiVersion": "wktest.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "status": null});
    let (code, object) = patch(&server, &format!("{path}?fieldManager=one"), APPLY, &config).await;
    assert_eq!((code, object.get("status")), (200, None), "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_of_a_custom_object_that_does_not_say_what_it_is_has_no_owner() {
    let server = with_foos().await;
    let made = post(&server, FOOS, &foo(&json!({"mode": "A", "replicas": 1}))).await;
    assert_eq!(owners(&made), ["main at a time"]);
    let scale = json!({"metadata": {"name": "f"}, "spec": {"replicas": 2}});
    let (code, answer) = call(&server, "PUT", &format!("{FOOS}/f/scale"), &scale).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(2)), "{answer}");
    assert_eq!(owners(&get(&server, &format!("{FOOS}/f")).await.1), Vec::<String>::new());
}
