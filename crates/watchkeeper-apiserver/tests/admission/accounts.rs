//! `ServiceAccount`: on the embedded server alone, because the reference is started without this plugin.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Server, call, get, post};
use crate::{PODS, pod, refused};

const ACCOUNTS: &str = "/api/v1/namespaces/wktest/serviceaccounts";
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

async fn server() -> Server {
    Server::embedded_with_admission("ServiceAccount").await
}

/// The names of the volumes of a Pod.
fn volumes(pod: &Value) -> Vec<&str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.map(|volume| volume["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_default_account_with_a_token() {
    let server = server().await;
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]});
    post(&server, ACCOUNTS, &account).await;
    let init = json!({"initContainers": [{"name": "i", "image": "i"}]});
    let created = post(&server, PODS, &pod("a", &init)).await;
    let spec = &created["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
    let name = volumes(&created)[0];
    let suffix = name.strip_prefix("kube-api-access-").unwrap();
    assert_eq!(suffix.len(), 5);
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    assert_eq!(
        spec["volumes"],
        json!([{"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ]}}])
    );
    for containers in ["containers", "initContainers"] {
        let mounts = json!([{"name": name, "readOnly": true, "mountPath": PATH}]);
        assert_eq!(spec[containers][0]["volumeMounts"], mounts, "{containers}");
    }
    let (_, stored) = get(&server, &format!("{PODS}/a")).await;
    assert_eq!(stored, created);
}

// e2e: ServiceAccounts should allow opting out of API token automount
#[tokio::test(start_paused = true)]
async fn the_pod_decides_about_its_token_and_then_the_account() {
    let server = server().await;
    for (name, mounts) in [("default", json!(null)), ("mount", json!(true)), ("nomount", json!(false))] {
        let account = json!({"metadata": {"name": name}, "automountServiceAccountToken": mounts});
        post(&server, ACCOUNTS, &account).await;
        for own in [None, Some(true), Some(false)] {
            let mut spec = json!({"serviceAccountName": name});
            if let Some(own) = own {
                spec["automountServiceAccountToken"] = own.into();
            }
            let sent =
                pod(&format!("{name}-{}", own.map_or("unset".to_owned(), |own| own.to_string())), &spec);
            let created = post(&server, PODS, &sent).await;
            let is_mounted = own.unwrap_or(mounts != json!(false));
            assert_eq!(volumes(&created).len(), usize::from(is_mounted), "{sent}");
            assert_eq!(created["spec"]["containers"][0].get("volumeMounts").is_some(), is_mounted, "{sent}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_says_itself_is_kept() {
    let server = server().await;
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]});
    post(&server, ACCOUNTS, &account).await;
    let mount = |volume: &str| json!([{"name": volume, "mountPath": PATH}]);
    let own = json!({
        "imagePullSecrets": [{"name": "own"}],
        "volumes": [{"name": "empty", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": mount("empty")}],
    });
    let created = post(&server, PODS, &pod("own", &own)).await;
    assert_eq!(volumes(&created), ["empty"]);
    assert_eq!(created["spec"]["imagePullSecrets"], own["imagePullSecrets"]);
    let copied = json!({
        "volumes": [{"name": "kube-api-access-other", "emptyDir": {}}],
        "containers": [{"name": "a", "image": "i", "volumeMounts": mount("kube-api-access-other")},
            {"name": "b", "image": "i"}],
    });
    let created = post(&server, PODS, &pod("copied", &copied)).await;
    assert_eq!(volumes(&created), ["kube-api-access-other"]);
    assert_eq!(created["spec"]["containers"][1]["volumeMounts"][0]["name"], "kube-api-access-other");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_does_not_exist_is_refused() {
    let server = server().await;
    let begin = "pods \"a\" is forbidden: error looking up service account wktest";
    let other = pod("a", &json!({"serviceAccountName": "other"}));
    assert_eq!(
        refused(call(&server, "POST", PODS, &other).await, 403),
        format!("{begin}/other: serviceaccount \"other\" not found")
    );
    let before = server.env.clock.now();
    assert_eq!(
        refused(call(&server, "POST", PODS, &pod("a", &json!({}))).await, 403),
        format!("{begin}/default: serviceaccount \"default\" not found")
    );
    let waited = server.env.clock.now() - before;
    assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_default_account_of_its_namespace() {
    let server = server().await;
    let body = pod("a", &json!({}));
    let (created, ()) = tokio::join!(call(&server, "POST", PODS, &body), async {
        server.env.clock.sleep(Duration::from_millis(300)).await;
        // Another change does not end the wait.
        post(&server, ACCOUNTS, &json!({"metadata": {"name": "other"}})).await;
        server.env.clock.sleep(Duration::from_millis(300)).await;
        post(&server, ACCOUNTS, &json!({"metadata": {"name": "default"}})).await;
    });
    assert_eq!((created.0, &created.1["spec"]["serviceAccountName"]), (201, &json!("default")));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_of_a_pod_needs_no_account_and_may_have_none() {
    let server = server().await;
    let mirror = |spec: &Value| {
        let mut pod = pod("a", spec);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod
    };
    let secret = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let projected = json!({"volumes": [{"name": "v", "projected": {"sources": [token]}}]});
    for (spec, why) in [
        (json!({"serviceAccountName": "x"}), "a mirror pod may not reference service accounts"),
        (secret, "a mirror pod may not reference secrets"),
        (projected, "a mirror pod may not use ServiceAccountToken volume projections"),
    ] {
        let message = refused(call(&server, "POST", PODS, &mirror(&spec)).await, 403);
        assert_eq!(message, format!("pods \"a\" is forbidden: {why}"));
    }
    let created = post(&server, PODS, &mirror(&json!({}))).await;
    assert_eq!(created["spec"].get("serviceAccountName"), None);
}
