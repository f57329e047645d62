//! Kinds that are objects only, and parameters that every path has.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

/// A certificate request of the user `jane`, which a real server parses.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHT01FSUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWFtRn\
    VaVEFxTUFVR0F5dGxjQU1oQUZ3RlVqT1BLVUtJYitXWQprdkxjWmtyQVhYMnN2cGJnRnF6dEk5WEtzSHdGb0FBd0JR\
    WURLMlZ3QTBFQXNVOWluM0xnVmc2dzhnN0ZLenpBCkFHcVMyK3FHR1lueWY4TXMvZnNVRDZ5ZUNmdmQ4Wm5oRU00Vl\
    hnVFJOZFljMnd5MVFlNHlONmRJcnhDTTkvcjIKRHc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

/// A path, an object, a merge patch, and where the patch shows.
type Case = (&'static str, Value, Value, &'static str);

fn cases() -> Vec<Case> {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "wktest"}});
    let claim = json!({"devices": {"requests": [request]}});
    let group = json!({"kind": "Group", "group": {"name": "wktest"}});
    let rules =
        json!([{"subjects": [group], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]);
    let annotation = json!({"metadata": {"annotations": {"patched": "true"}}});
    let noted = "/metadata/annotations/patched";
    vec![
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            json!({"spec": {"priorityLevelConfiguration": {"name": "global-default"}, "rules": rules}}),
            json!({"spec": {"matchingPrecedence": 9_999}}),
            "/spec/matchingPrecedence",
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
            json!({"spec": {"limited": {"nominalConcurrencyShares": 4}}}),
            "/spec/limited/nominalConcurrencyShares",
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/wktest/resourceclaims",
            json!({"spec": claim}),
            annotation.clone(),
            noted,
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/wktest/resourceclaimtemplates",
            json!({"spec": {"spec": claim}}),
            annotation.clone(),
            noted,
        ),
        ("/apis/resource.k8s.io/v1/deviceclasses", json!({"spec": {}}), annotation.clone(), noted),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            json!({"spec": {"driver": "d.wktest.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
            annotation.clone(),
            noted,
        ),
        (
            "/apis/storage.k8s.io/v1/namespaces/wktest/csistoragecapacities",
            json!({"storageClassName": "c", "capacity": "1Gi"}),
            json!({"capacity": "2Gi"}),
            "/capacity",
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattributesclasses",
            json!({"driverName": "d.wktest.io", "parameters": {"a": "b"}}),
            annotation.clone(),
            noted,
        ),
        (
            "/apis/autoscaling/v1/namespaces/wktest/horizontalpodautoscalers",
            json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}}),
            json!({"spec": {"targetCPUUtilizationPercentage": 40}}),
            "/spec/targetCPUUtilizationPercentage",
        ),
        (
            "/apis/networking.k8s.io/v1/servicecidrs",
            json!({"spec": {"cidrs": ["10.97.0.0/24"]}}),
            annotation.clone(),
            noted,
        ),
        ("/apis/storage.k8s.io/v1/csidrivers", json!({"spec": {}}), annotation, noted),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_kind_lives_through_its_life_cycle() {
    let server = Server::start().await;
    for (path, mut object, change, at) in cases() {
        object["metadata"] = json!({"name": "wktest-one", "labels": {"wktest": "cycle"}});
        let created = post(&server, path, &object).await;
        let own = format!("{path}/wktest-one");
        let (code, got) = get(&server, &own).await;
        assert_eq!((code, &got["metadata"]["uid"]), (200, &created["metadata"]["uid"]), "{path}");
        let (code, patched) = patch(&server, &own, MERGE, &change).await;
        assert_eq!(code, 200, "{path}: {patched}");
        assert_eq!(patched.pointer(at), change.pointer(at), "{path}");
        let (code, replaced) = call(&server, "PUT", &own, &patched).await;
        assert_eq!(code, 200, "{path}: {replaced}");
        let selected = format!("{path}?labelSelector=wktest%3Dcycle");
        assert_eq!(names(&get(&server, &selected).await.1), ["wktest-one"], "{path}");
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let (_, rows) = raw(&server, "GET", &selected, &table, "").await;
        let (cells, columns) = (&rows["rows"][0]["cells"], &rows["columnDefinitions"]);
        assert_eq!(cells.as_array().unwrap().len(), columns.as_array().unwrap().len(), "{path}");
        let (code, answer) = call(&server, "DELETE", &selected, &Value::Null).await;
        assert_eq!(code, 200, "{path}: {answer}");
        assert_eq!(get(&server, &own).await.0, 404, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_fields_of_small_kinds_get_their_defaults() {
    let server = Server::start().await;
    for (path, pointer, expected) in [
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "/spec/matchingPrecedence", json!(1_000)),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            "/spec/limited",
            json!({"nominalConcurrencyShares": 30, "lendablePercent": 0, "limitResponse":
                {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}}}),
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/wktest/resourceclaims",
            "/spec/devices/requests/0/exactly",
            json!({"deviceClassName": "wktest", "allocationMode": "ExactCount", "count": 1}),
        ),
    ] {
        let (_, mut object, _, _) = cases().into_iter().find(|case| case.0 == path).unwrap();
        object["metadata"] = json!({"name": "wktest-default"});
        let (code, created) = call(&server, "POST", &format!("{path}?dryRun=All"), &object).await;
        assert_eq!(code, 201, "{created}");
        assert_eq!(created.pointer(pointer), Some(&expected), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_spec_of_a_claim_cannot_change() {
    let server = Server::start().await;
    let path = "/apis/resource.k8s.io/v1/namespaces/wktest/resourceclaims";
    let (_, mut claim, _, _) = cases().into_iter().find(|case| case.0 == path).unwrap();
    claim["metadata"] = json!({"name": "fixed"});
    post(&server, path, &claim).await;
    let change = json!({"spec": {"devices": {"requests": []}}});
    let (code, answer) = patch(&server, &format!("{path}/fixed"), MERGE, &change).await;
    assert_eq!(code, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("field is immutable"), "{answer}");
    let status = json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "allocation": {"devices": {"results": []}}}});
    let (code, answer) = patch(&server, &format!("{path}/fixed/status"), MERGE, &status).await;
    assert_eq!((code, &answer["status"]["reservedFor"][0]["name"]), (200, &json!("p")), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_is_the_same_in_both_versions() {
    let server = Server::start().await;
    let path =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/wktest/horizontalpodautoscalers");
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3});
    let old = post(&server, &path("v1"), &json!({"metadata": {"name": "a"}, "spec": spec})).await;
    assert_eq!(
        (&old["spec"]["minReplicas"], &old["spec"]["targetCPUUtilizationPercentage"]),
        (&json!(1), &json!(80))
    );
    let (code, new) = get(&server, &format!("{}/a", path("v2"))).await;
    assert_eq!((code, &new["apiVersion"]), (200, &json!("autoscaling/v2")), "{new}");
    assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    let memory = json!({"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let change = json!({"spec": {"metrics": [memory]}});
    let (code, answer) = patch(&server, &format!("{}/a", path("v2")), MERGE, &change).await;
    assert_eq!(code, 200, "{answer}");
    let (_, old) = get(&server, &format!("{}/a", path("v1"))).await;
    let note: Value = serde_json::from_str(
        old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str().unwrap(),
    )
    .unwrap();
    let shown = json!([{"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}]);
    assert_eq!((note, old["spec"].get("targetCPUUtilizationPercentage")), (shown, None), "{old}");
    // A write of the old version keeps what it has no fields for.
    let (code, answer) =
        patch(&server, &format!("{}/a", path("v1")), MERGE, &json!({"spec": {"maxReplicas": 5}})).await;
    assert_eq!(code, 200, "{answer}");
    let (_, new) = get(&server, &format!("{}/a", path("v2"))).await;
    assert_eq!((&new["spec"]["metrics"], &new["spec"]["maxReplicas"]), (&json!([memory]), &json!(5)));
    assert_eq!(new["metadata"].get("annotations"), None);
    let (_, group) = get(&server, "/apis/autoscaling").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    for version in ["v1", "v2"] {
        let (_, list) = get(&server, &format!("/apis/autoscaling/{version}")).await;
        assert_eq!(list["resources"][0]["storageVersionHash"], "qwQve8ut294=", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_the_control_plane_are_healthy() {
    let server = Server::start().await;
    let path = "/api/v1/componentstatuses";
    let (code, list) = get(&server, path).await;
    assert_eq!((code, &list["kind"]), (200, &json!("ComponentStatusList")), "{list}");
    assert!(names(&list).contains(&"scheduler"), "{list}");
    let (code, one) = get(&server, &format!("{path}/etcd-0")).await;
    assert_eq!(
        (code, &one["kind"], &one["metadata"]["name"]),
        (200, &json!("ComponentStatus"), &json!("etcd-0"))
    );
    assert_eq!(
        (&one["conditions"][0]["type"], &one["conditions"][0]["status"]),
        (&json!("Healthy"), &json!("True"))
    );
    assert_eq!(get(&server, &format!("{path}/none")).await.0, 404);
    for (method, path) in [("POST", path), ("DELETE", path), ("DELETE", "/api/v1/componentstatuses/etcd-0")] {
        assert_eq!(call(&server, method, path, &json!({})).await.0, 405, "{method} {path}");
    }
    assert_eq!(get(&server, &format!("{path}?watch=true")).await.0, 405);
    let (_, none) = get(&server, &format!("{path}?labelSelector=a%3Db")).await;
    assert!(none["items"].as_array().is_none_or(Vec::is_empty), "{none}");
    let (_, list) = get(&server, "/api/v1").await;
    let mut resources = list["resources"].as_array().unwrap().iter();
    let found = resources.find(|it| it["name"] == "componentstatuses").unwrap();
    assert_eq!((&found["verbs"], &found["shortNames"]), (&json!(["get", "list"]), &json!(["cs"])));
}

#[tokio::test(start_paused = true)]
async fn addresses_and_ranges_are_checked() {
    let server = Server::start().await;
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let (code, own) = get(&server, &format!("{ranges}/kubernetes")).await;
    assert_eq!((code, &own["status"]["conditions"][0]["type"]), (200, &json!("Ready")), "{own}");
    let range = |cidrs: Value| json!({"metadata": {"name": "wktest-range"}, "spec": {"cidrs": cidrs}});
    for (cidrs, why) in [
        (json!([]), "spec.cidrs: Required value: at least one CIDR required"),
        (json!(["a"]), "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        (json!(["10.98.0.0/24", "10.99.0.0/24"]), "may specify no more than one IP for each IP family"),
    ] {
        let (code, answer) = call(&server, "POST", ranges, &range(cidrs)).await;
        assert_eq!(code, 422, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
    }
    post(&server, ranges, &range(json!(["10.98.0.0/24"]))).await;
    let change = json!({"spec": {"cidrs": ["10.98.1.0/24"]}});
    let (code, answer) = patch(&server, &format!("{ranges}/wktest-range"), MERGE, &change).await;
    assert_eq!(code, 422, "{answer}");
    assert!(
        answer["message"].as_str().unwrap().contains("spec.cidrs[0]: Invalid value: \"10.98.1.0/24\""),
        "{answer}"
    );
    call(&server, "DELETE", &format!("{ranges}/wktest-range"), &Value::Null).await;
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let address =
        |name: &str, parent: Value| json!({"metadata": {"name": name}, "spec": {"parentRef": parent}});
    let parent = json!({"resource": "services", "name": "s", "namespace": "wktest"});
    for (object, why) in [
        (address("odd", parent.clone()), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        (address("192.168.7.7", Value::Null), "spec.parentRef: Required value"),
        (address("192.168.7.7", json!({"name": "s"})), "spec.parentRef.resource: Required value"),
    ] {
        let (code, answer) = call(&server, "POST", addresses, &object).await;
        assert_eq!(code, 422, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
    }
    let made = post(&server, addresses, &address("2001:db8::7", parent.clone())).await;
    assert_eq!(made["metadata"]["name"], "2001:db8::7");
    call(&server, "DELETE", &format!("{addresses}/2001:db8::7"), &Value::Null).await;
    let made = post(&server, addresses, &address("192.168.7.7", parent)).await;
    let (code, answer) = patch(
        &server,
        &format!("{addresses}/192.168.7.7"),
        MERGE,
        &json!({"spec": {"parentRef": {"name": "t"}}}),
    )
    .await;
    assert_eq!((code, &made["spec"]["parentRef"]["name"]), (422, &json!("s")), "{answer}");
    assert_eq!(call(&server, "DELETE", &format!("{addresses}/192.168.7.7"), &Value::Null).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_signing_request_names_the_user_who_makes_it() {
    let server = Server::start().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let spec = json!({"request": REQUEST, "signerName": "wktest.io/signer", "usages": ["client auth"],
        "username": "somebody else", "groups": ["others"]});
    let body = json!({"metadata": {"name": "wktest-own"}, "spec": spec}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", "jane"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-team", "blue"),
    ];
    let (code, made) = raw(&server, "POST", path, &headers, &body).await;
    assert_eq!(code, 201, "{made}");
    let spec = &made["spec"];
    assert_eq!((&spec["username"], &spec["extra"]), (&json!("jane"), &json!({"team": ["blue"]})), "{made}");
    assert!(spec["groups"].as_array().unwrap().contains(&json!("system:masters")), "{made}");
    assert!(!spec["groups"].as_array().unwrap().contains(&json!("others")), "{made}");
    let change = json!({"spec": {"username": "mallory"}});
    let (code, after) = patch(&server, &format!("{path}/wktest-own"), MERGE, &change).await;
    assert_eq!((code, &after["spec"]), (200, spec), "what is requested never changes");
    call(&server, "DELETE", &format!("{path}/wktest-own"), &Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn approval_and_status_of_a_signing_request_are_written_apart() {
    let server = Server::embedded(|settings| settings).await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let spec = json!({"request": "LS0t", "signerName": "wktest.io/signer", "usages": ["client auth"]});
    post(&server, path, &json!({"metadata": {"name": "one"}, "spec": spec})).await;
    let own = format!("{path}/one");
    let types = |object: &Value| -> Vec<String> {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        conditions.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "wktest"});
    assert_eq!(get(&server, &format!("{own}/approval")).await.1["kind"], "CertificateSigningRequest");
    let approved = json!({"status": {"conditions": [condition("Approved")], "certificate": "LS0t"}});
    let (code, answer) = patch(&server, &format!("{own}/approval"), MERGE, &approved).await;
    assert_eq!((code, types(&answer)), (200, vec!["Approved".to_owned()]), "{answer}");
    assert_eq!(answer["status"].get("certificate"), None, "only the signer issues it");
    let signed =
        json!({"status": {"conditions": [condition("Denied"), condition("Seen")], "certificate": "LS0t"}});
    let (code, answer) = patch(&server, &format!("{own}/status"), MERGE, &signed).await;
    assert_eq!((code, types(&answer)), (200, vec!["Approved".to_owned(), "Seen".to_owned()]), "{answer}");
    assert_eq!(answer["status"]["certificate"], "LS0t");
    let managers = answer["metadata"]["managedFields"].as_array().unwrap();
    let parts: Vec<_> =
        managers.iter().map(|entry| entry["subresource"].as_str().unwrap_or_default()).collect();
    assert!(parts.contains(&"approval") && parts.contains(&"status"), "{parts:?}");
    let (_, resources) = get(&server, "/apis/certificates.k8s.io/v1").await;
    let named = resources["resources"].as_array().unwrap().iter();
    let named: Vec<_> = named.map(|resource| resource["name"].as_str().unwrap()).collect();
    assert!(named.contains(&"certificatesigningrequests/approval"), "{named:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_a_duration() {
    let server = Server::start().await;
    for path in ["/version", "/api/v1/namespaces"] {
        let (code, answer) = get(&server, &format!("{path}?timeout=invalid")).await;
        assert_eq!((code, &answer["reason"]), (400, &json!("BadRequest")), "{answer}");
        let message = "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
        assert!(answer["message"].as_str().unwrap().contains(message), "{answer}");
        for timeout in ["3m", "0s"] {
            assert_eq!(get(&server, &format!("{path}?timeout={timeout}")).await.0, 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_tells_the_stored_version_by_its_hash() {
    let server = Server::start().await;
    for (path, resource, hash) in
        [("/api/v1", "pods", "xPOwRZ+Yhw8="), ("/apis/apps/v1", "deployments", "8aSe+NMegvE=")]
    {
        let (_, list) = get(&server, path).await;
        let found = list["resources"].as_array().unwrap().iter().find(|it| it["name"] == resource).unwrap();
        assert_eq!(found["storageVersionHash"], hash, "{resource}");
    }
}
