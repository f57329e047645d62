//! Mutating and validating webhooks, called over HTTPS.

use serde_json::{Value, json};

use crate::common::{CONFIG_MAPS, MERGE, OURS, Server, call, get, patch, post, send};
use crate::hook::{Answer, GROUP, Webhook, patching, register};
use crate::{own, pod, refused};

/// A ConfigMap that the webhook of this name sees.
fn labelled(name: &str, hook: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {OURS: hook}}, "data": {"a": "b"}})
}

/// Waits until a webhook is called: a real server learns of it a moment later. `name` is that of ConfigMaps that it sees.
async fn until_called(server: &Server, webhook: &Webhook, name: &str) {
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let called = async || {
        call(server, "POST", &path, &labelled("probe", name)).await;
        (!webhook.seen().is_empty()).then_some(())
    };
    server.until(name, called).await;
}

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_stored() {
    let server = Server::with_admission().await;
    let changes = json!([{"op": "add", "path": "/data/c", "value": "d"}]);
    let webhook = Webhook::always(patching(&changes)).await;
    register(&server, "mutating", "adds", &[webhook.config("adds")]).await;
    until_called(&server, &webhook, "adds").await;
    let created = post(&server, CONFIG_MAPS, &labelled("a", "adds")).await;
    assert_eq!(created["data"], json!({"a": "b", "c": "d"}));
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a")).await.1["data"]["c"], "d");
    let seen = webhook.seen().pop().unwrap();
    assert_eq!(seen["operation"], "CREATE");
    assert_eq!((&seen["name"], &seen["dryRun"]), (&json!("a"), &json!(false)));
    assert_eq!(seen["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(seen["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(seen["object"]["data"], json!({"a": "b"}));
    assert_eq!((&seen["oldObject"], &seen["object"]["metadata"]["uid"]), (&json!(null), &json!(null)));
    assert_eq!(seen["options"]["kind"], "CreateOptions");
    // A name that is generated is not known yet.
    let mut unnamed = labelled("", "adds");
    unnamed["metadata"] = json!({"generateName": "a-", "labels": {OURS: "adds"}});
    let created = post(&server, CONFIG_MAPS, &unnamed).await;
    assert_eq!(created["data"]["c"], "d");
    assert_eq!(webhook.seen().pop().unwrap()["name"], json!(null));
}

#[tokio::test]
async fn a_validating_webhook_refuses_with_its_own_words() {
    let server = Server::with_admission().await;
    let refuse = |request: &Value| match request["operation"].as_str() {
        Some("DELETE") => Answer::Response(json!({"allowed": false})),
        Some("UPDATE") => Answer::Response(json!({"allowed": false, "status": {
            "code": 422, "message": "not so", "reason": "Invalid"}})),
        _ => Answer::Response(json!({"allowed": true, "warnings": ["mind this"]})),
    };
    let webhook = Webhook::start(refuse).await;
    register(&server, "validating", "refuses", &[webhook.config("refuses")]).await;
    until_called(&server, &webhook, "refuses").await;
    let body = labelled("a", "refuses").to_string();
    let answer = send(&server, "POST", CONFIG_MAPS, &[("content-type", "application/json")], body).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["warning"], "299 - \"mind this\"");
    let at = format!("{CONFIG_MAPS}/a");
    let (code, answer) = patch(&server, &at, MERGE, &json!({"data": {"a": "c"}})).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")));
    assert_eq!(answer["message"], "admission webhook \"refuses.wktest.dev\" denied the request: not so");
    let seen = webhook.seen().pop().unwrap();
    assert_eq!((&seen["object"]["data"]["a"], &seen["oldObject"]["data"]["a"]), (&json!("c"), &json!("b")));
    assert_eq!(
        refused(call(&server, "DELETE", &at, &Value::Null).await, 400),
        "admission webhook \"refuses.wktest.dev\" denied the request without explanation"
    );
    let seen = webhook.seen().pop().unwrap();
    assert_eq!((&seen["object"], &seen["oldObject"]["data"]["a"]), (&json!(null), &json!("b")));
    let all = format!("{CONFIG_MAPS}?labelSelector={OURS}%3Drefuses");
    assert_eq!(call(&server, "DELETE", &all, &Value::Null).await.0, 400);
    assert_eq!(get(&server, &at).await.0, 200, "nothing was deleted");
}

#[tokio::test]
async fn a_webhook_that_fails_is_treated_by_its_policy() {
    let server = Server::with_admission().await;
    let webhook = Webhook::start(|request| match request["name"].as_str() {
        Some("garbage") => Answer::Raw(200, "{".to_owned()),
        Some("empty") => Answer::Raw(200, json!({"kind": "AdmissionReview"}).to_string()),
        Some("stranger") => {
            let response = json!({"uid": "x", "allowed": true});
            let review =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Answer::Raw(200, review.to_string())
        }
        Some("down") => Answer::Raw(500, "oh no".to_owned()),
        Some("elsewhere") => Answer::Raw(302, String::new()),
        Some("silent") => Answer::Nothing,
        Some("patches") => Answer::Response(patching(&json!([{"op": "remove", "path": "/data"}]))),
        _ => Answer::Response(json!({"allowed": true})),
    })
    .await;
    let (mut fail, mut ignore) = (webhook.config("fails"), webhook.config("ignored"));
    fail["timeoutSeconds"] = 1.into();
    ignore["timeoutSeconds"] = 1.into();
    ignore["failurePolicy"] = "Ignore".into();
    register(&server, "validating", "fails", &[fail, ignore]).await;
    until_called(&server, &webhook, "fails").await;
    for (name, expected) in [
        ("empty", "received invalid webhook response: webhook response was absent"),
        (
            "down",
            "failed to call webhook: an error on the server (\"oh no\") has prevented the request from succeeding",
        ),
        ("silent", "context deadline exceeded"),
        ("stranger", "received invalid webhook response: expected response.uid="),
        ("patches", "received invalid webhook response: validating webhook may not return response.patch"),
        ("garbage", ""),
        ("elsewhere", ""),
    ] {
        let message = refused(call(&server, "POST", CONFIG_MAPS, &labelled(name, "fails")).await, 500);
        let begin = "Internal error occurred: failed calling webhook \"fails.wktest.dev\": ";
        assert!(message.starts_with(begin) && message.contains(expected), "{name}: {message}");
        post(&server, CONFIG_MAPS, &labelled(name, "ignored")).await;
    }
    post(&server, CONFIG_MAPS, &labelled("fine", "fails")).await;
}

#[tokio::test]
async fn a_webhook_that_is_not_there_or_not_trusted_is_not_called() {
    let server = Server::with_admission().await;
    let webhook = Webhook::always(json!({"allowed": true})).await;
    let other = Webhook::always(json!({"allowed": true})).await;
    let (mut gone, mut strange) = (webhook.config("gone"), webhook.config("strange"));
    gone["clientConfig"]["url"] = "https://127.0.0.1:1/".into();
    strange["clientConfig"]["caBundle"] = other.config("")["clientConfig"]["caBundle"].clone();
    register(&server, "validating", "unreached", &[webhook.config("there"), gone, strange]).await;
    until_called(&server, &webhook, "there").await;
    assert_eq!(
        refused(call(&server, "POST", CONFIG_MAPS, &labelled("a", "gone")).await, 500),
        "Internal error occurred: failed calling webhook \"gone.wktest.dev\": failed to call webhook: Post \
         \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    let message = refused(call(&server, "POST", CONFIG_MAPS, &labelled("a", "strange")).await, 500);
    assert!(message.contains("tls: failed to verify certificate: x509: "), "{message}");
}

#[tokio::test]
async fn a_dry_run_is_refused_by_side_effects_and_told_to_others() {
    let server = Server::with_admission().await;
    let webhook = Webhook::always(json!({"allowed": true})).await;
    register(&server, "validating", "dry", &[webhook.config("dry")]).await;
    until_called(&server, &webhook, "dry").await;
    assert_eq!(webhook.seen()[0]["dryRun"], true);
    let mut bad = webhook.config("some");
    bad["sideEffects"] = "Some".into();
    let body = json!({"metadata": {"name": own("some")}, "webhooks": [bad]});
    let message =
        refused(call(&server, "POST", &format!("{GROUP}/validatingwebhookconfigurations"), &body).await, 422);
    assert!(message.contains("webhooks[0].sideEffects: Unsupported value: \"Some\""), "{message}");
}

#[tokio::test]
async fn webhooks_run_in_order_and_again_when_the_object_changes_after_them() {
    let server = Server::with_admission().await;
    let webhook = Webhook::start(|request| {
        let data = &request["object"]["data"];
        let count = data.as_object().map_or(0, serde_json::Map::len);
        // Each call adds a field, up to four.
        match count {
            ..4 => Answer::Response(patching(
                &json!([{"op": "add", "path": format!("/data/n{count}"), "value": ""}]),
            )),
            _ => Answer::Response(json!({"allowed": true})),
        }
    })
    .await;
    let [mut first, mut second] = ["b", "a"].map(|_| webhook.config("again"));
    first["name"] = "first.wktest.dev".into();
    first["reinvocationPolicy"] = "IfNeeded".into();
    second["name"] = "second.wktest.dev".into();
    register(&server, "mutating", "again", &[first, second]).await;
    until_called(&server, &webhook, "again").await;
    let before = webhook.seen().len();
    let created = post(&server, CONFIG_MAPS, &labelled("a", "again")).await;
    assert_eq!(created["data"], json!({"a": "b", "n1": "", "n2": "", "n3": ""}));
    assert_eq!(webhook.seen().len() - before, 3, "the first is called again, the second is not");
}

#[tokio::test]
async fn selectors_and_conditions_decide_which_writes_a_webhook_sees() {
    let server = Server::with_admission().await;
    let webhook = Webhook::always(json!({"allowed": false})).await;
    let mut by_condition = webhook.config("conditions");
    by_condition["matchConditions"] = json!([
        {"name": "create", "expression": "request.operation == 'CREATE'"},
        {"name": "named", "expression": "object.metadata.name != 'free'"},
    ]);
    let mut failing = webhook.config("failing");
    failing["matchConditions"] = json!([{"name": "fails", "expression": "object.data.none == 'x'"}]);
    let mut elsewhere = webhook.config("elsewhere");
    elsewhere["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    register(&server, "validating", "selects", &[by_condition, failing, elsewhere]).await;
    until_called(&server, &webhook, "conditions").await;
    assert_eq!(call(&server, "POST", CONFIG_MAPS, &labelled("a", "conditions")).await.0, 400);
    post(&server, CONFIG_MAPS, &labelled("free", "conditions")).await;
    let (code, _) = call(&server, "DELETE", &format!("{CONFIG_MAPS}/free"), &Value::Null).await;
    assert_eq!(code, 200);
    post(&server, CONFIG_MAPS, &labelled("elsewhere", "elsewhere")).await;
    post(&server, CONFIG_MAPS, &labelled("other", "other")).await;
    let message = refused(call(&server, "POST", CONFIG_MAPS, &labelled("b", "failing")).await, 403);
    assert!(
        message.contains("configmaps \"b\" is forbidden: ") && message.contains("no such key"),
        "{message}"
    );
}

#[tokio::test]
async fn a_webhook_sees_subresources_that_its_rules_name() {
    let server = Server::with_admission().await;
    let webhook = Webhook::start(|request| match request["object"]["spec"]["replicas"].as_i64() {
        Some(7) => {
            Answer::Response(patching(&json!([{"op": "replace", "path": "/spec/replicas", "value": 5}])))
        }
        _ => Answer::Response(json!({"allowed": true})),
    })
    .await;
    let mut config = webhook.config("scale");
    let deployments = "/apis/apps/v1/namespaces/wktest/deployments";
    config["rules"] = json!([
        {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployments/scale"]},
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    config["objectSelector"] = json!({});
    config["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": OURS}});
    register(&server, "mutating", "scale", &[config]).await;
    until_called(&server, &webhook, "scale").await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", &json!({}))["spec"]});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    post(&server, deployments, &json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let path = format!("{deployments}/d/scale");
    let (code, scaled) = patch(&server, &path, MERGE, &json!({"spec": {"replicas": 7}})).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)));
    let seen = webhook.seen().pop().unwrap();
    assert_eq!(seen["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(
        (&seen["subResource"], &seen["resource"]["resource"]),
        (&json!("scale"), &json!("deployments"))
    );
}

#[tokio::test]
async fn no_webhook_sees_webhook_configurations() {
    let server = Server::with_admission().await;
    let webhook = Webhook::always(json!({"allowed": false})).await;
    let mut config = webhook.config("all");
    config["rules"]
        .as_array_mut()
        .unwrap()
        .push(json!({"operations": ["*"], "apiGroups": ["admissionregistration.k8s.io"],
        "apiVersions": ["*"], "resources": ["*/*"]}));
    config["objectSelector"] = json!({"matchLabels": {OURS: "all"}});
    register(&server, "validating", "all", &[config]).await;
    until_called(&server, &webhook, "all").await;
    let at = format!("{GROUP}/validatingwebhookconfigurations/{}", own("all"));
    let labels = json!({"metadata": {"labels": {OURS: "all"}}});
    assert_eq!(patch(&server, &at, MERGE, &labels).await.0, 200);
    assert_eq!(call(&server, "DELETE", &at, &Value::Null).await.0, 200);
}

/// On the embedded server alone: its Services are where their EndpointSlices say.
#[tokio::test]
async fn a_webhook_behind_a_service_is_found_by_its_endpoints() {
    let server = Server::embedded_with_admission("*").await;
    let webhook = Webhook::always(patching(&json!([{"op": "add", "path": "/data/c", "value": "d"}]))).await;
    let mut config = webhook.config("hook");
    let authority = config["clientConfig"]["caBundle"].take();
    config["clientConfig"] = json!({"service": {"name": "hook", "namespace": OURS}, "caBundle": authority});
    register(&server, "mutating", "service", &[config]).await;
    let begin = "Internal error occurred: failed calling webhook \"hook.wktest.dev\": failed to call webhook: Post \
                 \"https://hook.wktest.svc:443/?timeout=10s\": ";
    let refused = async || refused(call(&server, "POST", CONFIG_MAPS, &labelled("a", "hook")).await, 500);
    assert_eq!(refused().await, format!("{begin}service \"hook\" not found"));
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    post(&server, "/api/v1/namespaces/wktest/services", &service).await;
    assert_eq!(refused().await, format!("{begin}no endpoints available for service \"hook\""));
    let slice = json!({
        "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": webhook.port}],
    });
    post(&server, "/apis/discovery.k8s.io/v1/namespaces/wktest/endpointslices", &slice).await;
    let created = post(&server, CONFIG_MAPS, &labelled("a", "hook")).await;
    assert_eq!(created["data"]["c"], "d");
}

#[tokio::test]
async fn a_write_waits_for_no_other_while_a_webhook_is_called() {
    let server = Server::embedded_with_admission("*").await;
    let webhook = Webhook::start(|_| Answer::Nothing).await;
    let mut config = webhook.config("slow");
    config["timeoutSeconds"] = 2.into();
    register(&server, "validating", "slow", &[config]).await;
    let (slow_map, other) = (labelled("a", "slow"), labelled("b", "other"));
    let (slow, quick) = tokio::join!(call(&server, "POST", CONFIG_MAPS, &slow_map), async {
        post(&server, CONFIG_MAPS, &other).await;
        (get(&server, &format!("{CONFIG_MAPS}/b")).await.0, get(&server, &format!("{CONFIG_MAPS}/a")).await.0)
    });
    assert_eq!((slow.0, quick), (500, (200, 404)));
}
