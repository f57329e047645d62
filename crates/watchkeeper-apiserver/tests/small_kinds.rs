//! Kinds that are objects only, and parameters that every path has.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

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
