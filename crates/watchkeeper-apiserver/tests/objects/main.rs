//! Create, update and delete of objects.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

#[path = "../common/mod.rs"]
mod common;
mod custom;
mod deletes;
mod evictions;
mod logs;
mod pods;
mod scale;
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

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
        "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx:1.2"}]}}}})
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn the_server_sets_the_system_fields() {
    let server = Server::start().await;
    let mut sent = config_map("a", &json!({"k": "v"}));
    sent["metadata"]["uid"] = "abc".into();
    sent["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    sent["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    sent["metadata"]["generation"] = 7.into();
    let object = post(&server, CONFIG_MAPS, &sent).await;
    let metadata = &object["metadata"];
    assert_eq!(metadata["creationTimestamp"].as_str().unwrap().len(), "2026-01-01T00:00:00Z".len());
    assert_ne!(metadata["creationTimestamp"], sent["metadata"]["creationTimestamp"]);
    assert_eq!(metadata["namespace"], OURS);
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(metadata.get("deletionTimestamp"), None);
    // A kind without generation keeps the client's value, as on the real server.
    assert_eq!(metadata["generation"], 7);
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a")).await, (200, object));
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_has_five_characters_of_its_own() {
    let server = Server::start().await;
    let object = post(&server, CONFIG_MAPS, &json!({"metadata": {"generateName": "gen-"}})).await;
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let long = "x".repeat(70);
    let object = post(&server, CONFIG_MAPS, &json!({"metadata": {"generateName": long}})).await;
    assert_eq!(object["metadata"]["name"].as_str().unwrap().len(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_stale_update_is_a_conflict() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let old = post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "1"}))).await;
    let mut new = old.clone();
    new["data"]["k"] = "2".into();
    let (code, updated) = call(&server, "PUT", &path, &new).await;
    assert_eq!(code, 200);
    assert!(version(&updated) > version(&old));
    let (code, status) = call(&server, "PUT", &path, &new).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    // Without a resourceVersion the update is unconditional for this kind.
    assert_eq!(call(&server, "PUT", &path, &config_map("a", &json!({"k": "3"}))).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_keeps_the_version() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let object = post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "1"}))).await;
    assert_eq!(call(&server, "PUT", &path, &object).await, (200, object.clone()));
    assert_eq!(
        call(&server, "PUT", &path, &config_map("a", &json!({"k": "1"}))).await,
        (200, object.clone())
    );
    assert_eq!(patch(&server, &path, MERGE, &json!({})).await, (200, object.clone()));
    let change = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}});
    assert_eq!(patch(&server, &path, MERGE, &change).await, (200, object));
}

#[tokio::test(start_paused = true)]
async fn leases_need_a_version_and_are_created_by_a_put() {
    let server = Server::start().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/wktest/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00.123456Z"}});
    let (code, created) = call(&server, "PUT", path, &lease).await;
    assert_eq!(code, 201);
    assert_eq!(created["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    let (code, status) = call(&server, "PUT", path, &lease).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test(start_paused = true)]
async fn generation_counts_changes_of_the_desired_state() {
    let server = Server::start().await;
    let path = format!("{DEPLOYMENTS}/d");
    let object = post(&server, DEPLOYMENTS, &deployment("d")).await;
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(object["status"], json!({}));
    for (change, generation) in [
        (json!({"spec": {"replicas": 3}}), 2),
        (json!({"metadata": {"labels": {"x": "y"}}}), 2),
        (json!({"metadata": {"annotations": {"x": "y"}}}), 3),
        (json!({"status": {"replicas": 5}}), 3),
        (json!({"metadata": {"generation": 99}}), 3),
    ] {
        let (code, object) = patch(&server, &path, MERGE, &change).await;
        assert_eq!((code, &object["metadata"]["generation"]), (200, &json!(generation)), "{change}");
        assert_eq!(object["status"], json!({}), "the main endpoint leaves the status alone");
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_endpoint_changes_the_status_alone() {
    let server = Server::start().await;
    post(&server, DEPLOYMENTS, &deployment("d")).await;
    let change =
        json!({"status": {"replicas": 3}, "spec": {"replicas": 9}, "metadata": {"labels": {"a": "b"}}});
    let (code, object) = patch(&server, &format!("{DEPLOYMENTS}/d/status"), MERGE, &change).await;
    assert_eq!(code, 200);
    assert_eq!((&object["status"]["replicas"], &object["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(object["metadata"].get("labels"), None);
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a/status")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn the_scale_endpoint_sets_replicas() {
    let server = Server::start().await;
    post(&server, DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let (_, scale) = get(&server, &path).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(1), &json!("app=d")));
    let (code, scale) = patch(&server, &path, MERGE, &json!({"spec": {"replicas": 4}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(4)));
    let put = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}});
    assert_eq!(call(&server, "PUT", &path, &put).await.0, 200);
    assert_eq!(get(&server, &format!("{DEPLOYMENTS}/d")).await.1["spec"]["replicas"], 2);
    let (code, status) = patch(&server, &path, MERGE, &json!({"spec": {"replicas": -2}})).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -2: must be greater than or equal to 0"
    );
}

#[tokio::test(start_paused = true)]
async fn patches_of_three_kinds_are_applied() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"a": "b"}))).await;
    let (code, object) = patch(&server, &path, MERGE, &json!({"data": {"a": null, "z": "1"}})).await;
    assert_eq!((code, &object["data"]), (200, &json!({"z": "1"})));
    let operations = json!([{"op": "test", "path": "/data/z", "value": "1"}, {"op": "add", "path": "/data/q", "value": "2"}]);
    let (code, object) = patch(&server, &path, JSON_PATCH, &operations).await;
    assert_eq!((code, &object["data"]), (200, &json!({"q": "2", "z": "1"})));
    let (code, object) = patch(&server, &path, STRATEGIC, &json!({"data": {"s": "1"}})).await;
    assert_eq!((code, &object["data"]["s"]), (200, &json!("1")));
    let with_params = "application/merge-patch+json; charset=utf-8";
    assert_eq!(patch(&server, &path, with_params, &json!({})).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_finalizers_waits_for_them() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, CONFIG_MAPS, &object).await;
    let (code, marked) = call(&server, "DELETE", &path, &json!({"propagationPolicy": "Background"})).await;
    assert_eq!((code, &marked["kind"]), (200, &json!("ConfigMap")));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(call(&server, "DELETE", &path, &Value::Null).await, (200, marked.clone()));
    let more = json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}});
    assert_eq!(patch(&server, &path, MERGE, &more).await.0, 422);
    let (code, last) = patch(&server, &path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(
        (code, version(&last)),
        (200, version(&marked)),
        "answered with the version before the removal"
    );
    assert_eq!(get(&server, &path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn propagation_adds_its_finalizer() {
    let server = Server::start().await;
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
        let path = format!("{CONFIG_MAPS}/a?propagationPolicy={policy}");
        let (code, object) = call(&server, "DELETE", &path, &Value::Null).await;
        assert_eq!((code, &object["metadata"]["finalizers"]), (200, &json!([finalizer])));
        let path = format!("{CONFIG_MAPS}/a");
        assert_eq!(patch(&server, &path, MERGE, &json!({"metadata": {"finalizers": []}})).await.0, 200);
        assert_eq!(get(&server, &path).await.0, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_pod_gets_its_grace() {
    let server = Server::start().await;
    let pods = "/api/v1/namespaces/wktest/pods";
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    post(&server, pods, &pod).await;
    let (_, gone) = call(&server, "DELETE", &format!("{pods}/p"), &Value::Null).await;
    assert_eq!((&gone["kind"], &gone["metadata"]["generation"]), (&json!("Pod"), &json!(2)));
    assert_eq!(get(&server, &format!("{pods}/p")).await.0, 404, "one without a node goes at once");
    pod["spec"]["nodeName"] = "n1".into();
    post(&server, pods, &pod).await;
    for (options, grace) in
        [(json!({}), 30), (json!({"gracePeriodSeconds": 5}), 5), (json!({"gracePeriodSeconds": 100}), 5)]
    {
        let (_, marked) = call(&server, "DELETE", &format!("{pods}/p"), &options).await;
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], grace);
    }
    let far = json!({"gracePeriodSeconds": i64::MAX});
    assert_eq!(call(&server, "DELETE", &format!("{pods}/p"), &far).await.0, 200);
    assert_eq!(call(&server, "DELETE", &format!("{pods}/p"), &json!({"gracePeriodSeconds": 0})).await.0, 200);
    assert_eq!(get(&server, &format!("{pods}/p")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let server = Server::start().await;
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        let mut object = config_map(name, &json!({}));
        object["metadata"]["labels"] = json!({"l": label});
        post(&server, CONFIG_MAPS, &object).await;
    }
    let (code, list) =
        call(&server, "DELETE", &format!("{CONFIG_MAPS}?labelSelector=l%3D1"), &Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 2));
    let (_, left) = get(&server, CONFIG_MAPS).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(call(&server, "DELETE", "/api/v1/namespaces", &Value::Null).await.0, 405);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let server = Server::start().await;
    let (code, object) =
        call(&server, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a", &json!({}))).await;
    assert_eq!((code, object["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a")).await.0, 404);
    let stored = post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a?dryRun=All");
    assert_eq!(patch(&server, &path, MERGE, &json!({"data": {"x": "y"}})).await.1["data"]["x"], "y");
    assert_eq!(call(&server, "DELETE", &path, &Value::Null).await.0, 200);
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a")).await.1, stored);
}

#[tokio::test(start_paused = true)]
async fn yaml_is_taken_and_given() {
    let server = Server::start().await;
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yam}\ndata: {a: 'yes'}\n";
    let (code, object) =
        raw(&server, "POST", CONFIG_MAPS, &[("content-type", "application/yaml")], body).await;
    assert_eq!((code, &object["data"]["a"]), (201, &json!("yes")), "{object}");
    let (_, text) =
        raw(&server, "GET", &format!("{CONFIG_MAPS}/yam"), &[("accept", "application/yaml")], "").await;
    assert!(text.as_str().unwrap().contains("kind: ConfigMap"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_secret_takes_plain_text_and_stores_base64() {
    let server = Server::start().await;
    let secrets = "/api/v1/namespaces/wktest/secrets";
    let object = post(&server, secrets, &json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).await;
    assert_eq!((&object["data"]["a"], &object["type"]), (&json!("Yg=="), &json!("Opaque")));
    assert_eq!(object.get("stringData"), None);
}

#[tokio::test(start_paused = true)]
async fn events_have_two_views() {
    let server = Server::start().await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "wktest"},
        "reason": "R", "message": "m"});
    post(&server, "/api/v1/namespaces/wktest/events", &event).await;
    let new = "/apis/events.k8s.io/v1/namespaces/wktest/events";
    let (_, seen) = get(&server, &format!("{new}/e")).await;
    assert_eq!((&seen["note"], &seen["regarding"]["name"]), (&json!("m"), &json!("p")));
    assert_eq!(seen["apiVersion"], "events.k8s.io/v1");
    let (_, list) = get(&server, &format!("{new}?fieldSelector=regarding.name%3Dp")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (code, status) = patch(&server, &format!("{new}/e"), STRATEGIC, &json!({"note": "n"})).await;
    assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("message")), "{status}");
    let old = "/api/v1/namespaces/wktest/events/e";
    let (_, old) = patch(&server, old, STRATEGIC, &json!({"message": "n"})).await;
    assert_eq!((&old["message"], old.get("note")), (&json!("n"), None));
}

#[tokio::test(start_paused = true)]
async fn warnings_are_bounded() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    // Warnings are limited to about four thousand characters in total.
    for (fields, length, reported, last) in [(90, 1, 90, 22), (9_000, 40, 68, 61), (9_000, 300, 16, 256)] {
        let unknown = (0..fields).map(|at| (format!("{}{at:05}", "x".repeat(length)), json!(1)));
        let mut object = config_map("w", &json!({}));
        object.as_object_mut().unwrap().extend(unknown);
        let response = send(&server, "POST", &path, &[], object.to_string()).await;
        assert_eq!(response.status(), 201);
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        let text = warnings.last().unwrap().to_str().unwrap().replace("\\\"", "\"");
        let text = text.strip_prefix("299 - \"").unwrap().strip_suffix('"').unwrap();
        assert_eq!((warnings.len(), text.len()), (reported, last), "{fields} fields of {length}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_integer_may_be_written_as_a_fraction_where_it_is_not_read_as_text() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/wktest/deployments";
    let object = |name: &str, replicas: &str| {
        format!(
            r#"{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "{name}"}}, "spec": {{
                "replicas": {replicas}, "selector": {{"matchLabels": {{"a": "b"}}}},
                "strategy": {{"rollingUpdate": {{"maxSurge": {replicas}}}}}, "template": {{
                "metadata": {{"labels": {{"a": "b"}}}}, "spec": {{"containers": [{{"name": "c", "image": "i"}}]}}}}}}}}"#
        )
    };
    let sent = async |method: &str, path: &str, kind: &str, body: &str| {
        let (code, answer) = raw(&server, method, path, &[("content-type", kind)], body).await;
        let numbers = [&answer["spec"]["replicas"], &answer["spec"]["strategy"]["rollingUpdate"]["maxSurge"]];
        (code, numbers.map(Value::to_string), answer["message"].as_str().unwrap_or_default().to_owned())
    };
    for (number, shown) in [("2.0", "2.0"), ("1.5", "1.5"), ("2147483648", "2147483648")] {
        let (code, _, message) = sent("POST", deployments, "application/json", &object("no", number)).await;
        let problem = format!("json: cannot unmarshal number {shown} into Go struct field ");
        assert!(
            code == 400 && message.contains(&problem) && message.ends_with(" of type int32"),
            "{message}"
        );
    }
    let two = ["2", "2"].map(str::to_owned);
    let (code, numbers, message) = sent("POST", deployments, "application/yaml", &object("a", "2.0")).await;
    assert_eq!((code, &numbers), (201, &two), "{message}");
    let apply = format!("{deployments}/b?fieldManager=m");
    let (code, numbers, message) =
        sent("PATCH", &apply, "application/apply-patch+yaml", &object("b", "2.0")).await;
    assert_eq!((code, &numbers), (201, &two), "{message}");
    let half = format!("{deployments}/c?fieldManager=m");
    let (code, _, message) = sent("PATCH", &half, "application/apply-patch+yaml", &object("c", "1.5")).await;
    let problem = "failed to convert new object (/c; apps/v1, Kind=Deployment) to proper version: \
                   unable to convert unstructured object to apps/v1, Kind=Deployment: ";
    assert!(code == 500 && message.starts_with(problem), "{message}");
    let a = format!("{deployments}/a");
    for kind in [MERGE, STRATEGIC] {
        let body = |number: &str| {
            format!(
                r#"{{"spec": {{"replicas": {number}, "strategy": {{"rollingUpdate": {{"maxSurge": {number}}}}}}}}}"#
            )
        };
        let (code, numbers, message) = sent("PATCH", &a, kind, &body("3.0")).await;
        if kind == STRATEGIC {
            assert_eq!((code, numbers), (200, ["3", "3"].map(str::to_owned)), "{message}");
        } else {
            assert_eq!(code, 422, "{message}");
        }
        assert_eq!(sent("PATCH", &a, kind, &body("-0")).await.1, ["0", "0"].map(str::to_owned));
        assert_eq!(sent("PATCH", &a, kind, &body("1.5")).await.0, 422);
    }
}

/// Defines a kind without schema restrictions; returns the path of its objects.
async fn things(server: &Server) -> &'static str {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.large.wktest.io"},
        "spec": {"group": "large.wktest.io", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]},
    });
    post(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let path = "/apis/large.wktest.io/v1/things";
    while get(server, path).await.0 != 200 {
        server.env.clock.sleep(std::time::Duration::from_millis(50)).await;
    }
    path
}

#[tokio::test(start_paused = true)]
async fn an_object_that_etcd_would_not_take_is_refused_in_its_words() {
    let server = Server::start().await;
    let things = things(&server).await;
    let thing = |name: &str, size: usize| json!({"apiVersion": "large.wktest.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"text": "x".repeat(size)}});
    post(&server, things, &thing("fits", 1_572_000)).await;
    let small = post(&server, things, &thing("a", 10)).await;
    let a = format!("{things}/a");
    let too_large = "etcdserver: request is too large";
    let exhausted = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (";
    for (size, words) in
        [(1_573_000, too_large), (2_096_000, too_large), (2_097_152, exhausted), (2_500_000, exhausted)]
    {
        let mut replaced = thing("a", size);
        replaced["metadata"]["resourceVersion"] = small["metadata"]["resourceVersion"].clone();
        let text = json!({"text": "x".repeat(size)});
        let apply = "application/apply-patch+yaml";
        for (what, (code, answer)) in [
            ("create", call(&server, "POST", things, &thing("b", size)).await),
            ("create what is there", call(&server, "POST", things, &thing("a", size)).await),
            ("replace", call(&server, "PUT", &a, &replaced).await),
            ("patch", patch(&server, &a, MERGE, &json!({"spec": text})).await),
            ("status", patch(&server, &format!("{a}/status"), MERGE, &json!({"status": text})).await),
            ("apply", patch(&server, &format!("{things}/c?fieldManager=m"), apply, &thing("c", size)).await),
        ] {
            assert_eq!((code, &answer["reason"]), (500, &Value::Null), "{what} {size}: {answer}");
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(message.starts_with(words), "{what} {size}: {message}");
        }
        let (code, answer) = call(&server, "POST", &format!("{things}?dryRun=All"), &thing("d", size)).await;
        assert_eq!(code, 201, "nothing is stored: {}", answer["message"]);
    }
    assert_eq!(get(&server, &a).await.1["metadata"], small["metadata"], "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_more_than_ten_updaters_become_one() {
    let server = Server::start().await;
    let a = format!("{CONFIG_MAPS}/a");
    post(&server, &format!("{CONFIG_MAPS}?fieldManager=m00"), &config_map("a", &json!({"k": "v"}))).await;
    for n in 1..14 {
        let data = json!({"data": {format!("k{n:02}"): "v"}});
        let (code, answer) = patch(&server, &format!("{a}?fieldManager=m{n:02}"), MERGE, &data).await;
        assert_eq!(code, 200, "{answer}");
        // Managed fields have a resolution of one second.
        server.env.clock.sleep(std::time::Duration::from_millis(1_100)).await;
    }
    let (_, object) = get(&server, &a).await;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let managers: Vec<_> = entries.iter().map(|entry| json!([entry["manager"], entry["fieldsV1"]])).collect();
    let ancient = json!({"f:data": {".": {}, "f:k": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}, "f:k04": {}}});
    assert_eq!(managers.len(), 10, "{managers:?}");
    assert_eq!(managers[0], json!(["ancient-changes", ancient]));
    assert_eq!(managers[1], json!(["m05", {"f:data": {"f:k05": {}}}]));
    assert_eq!(entries[0].get("subresource"), None);
}

#[tokio::test(start_paused = true)]
async fn objects_with_mistakes_are_refused_by_field() {
    let server = Server::start().await;
    let both = json!({"metadata": {"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}});
    let owner =
        json!({"metadata": {"name": "a", "ownerReferences": [{"kind": "K", "name": "n", "uid": "u"}]}});
    let with = |place: &str, value: Value| {
        let mut object = deployment("d");
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
    let mut object = deployment("d");
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
async fn an_object_without_managed_fields_stays_without_them() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await;
    let (_, object) = patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"data": {"k": "v"}})).await;
    assert_eq!((&object["data"]["k"], object["metadata"].get("managedFields")), (&json!("v"), None));
}

#[tokio::test(start_paused = true)]
async fn a_no_op_write_counts_once_when_it_makes_its_manager_the_last() {
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
