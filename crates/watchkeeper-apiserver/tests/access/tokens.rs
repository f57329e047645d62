//! Tokens of service accounts: requested, reviewed, and invalid as soon as what they are bound to is gone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::common::{Server, call, post};
use crate::refused;

const ACCOUNTS: &str = "/api/v1/namespaces/wktest/serviceaccounts";
const ISSUER: &str = "https://kubernetes.default.svc";

async fn server() -> Server {
    let server = Server::with_roles().await;
    post(&server, ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    server
}

async fn request(server: &Server, spec: Value) -> (u16, Value) {
    call(server, "POST", &format!("{ACCOUNTS}/robot/token"), &json!({"spec": spec})).await
}

async fn token(server: &Server, spec: Value) -> String {
    let (code, answer) = request(server, spec).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(server: &Server, token: &str, audiences: &[&str]) -> Value {
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    let (code, mut answer) = call(server, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &body).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].take()
}

#[tokio::test(start_paused = true)]
async fn a_token_says_whose_it_is() {
    let server = server().await;
    let (_, answer) = request(&server, json!({"expirationSeconds": 700, "audiences": ["a", "b"]})).await;
    assert_eq!(
        answer["spec"],
        json!({"audiences": ["a", "b"], "expirationSeconds": 700, "boundObjectRef": null})
    );
    assert_eq!(answer["metadata"]["name"], "robot");
    let (_, account) = crate::common::get(&server, &format!("{ACCOUNTS}/robot")).await;
    let uid = &account["metadata"]["uid"];
    assert_eq!(answer["metadata"]["uid"], *uid);
    let token = answer["status"]["token"].as_str().unwrap();
    let part = token.split('.').nth(1).unwrap();
    let claims: Value =
        serde_json::from_str(&server.restore_names(&URL_SAFE_NO_PAD.decode(part).unwrap())).unwrap();
    let number = |claim: &str| claims[claim].as_i64().unwrap();
    assert_eq!((number("exp") - number("iat"), number("nbf")), (700, number("iat")));
    assert_eq!(claims["aud"], json!(["a", "b"]));
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!(ISSUER), &json!("system:serviceaccount:wktest:robot"))
    );
    assert_eq!(
        claims["kubernetes.io"],
        json!({"namespace": "wktest", "serviceaccount": {"name": "robot", "uid": uid}})
    );
    let status = review(&server, token, &["b", "c"]).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["b"])));
    let jti = format!("JTI={}", claims["jti"].as_str().unwrap());
    assert_eq!(
        status["user"],
        json!({
            "username": "system:serviceaccount:wktest:robot", "uid": uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:wktest", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [jti]},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_no_tokens_or_for_others_are_refused() {
    let server = server().await;
    let error = async |token: &str, audiences: &[&str]| {
        let status = review(&server, token, audiences).await;
        assert_eq!((&status["user"], status.get("authenticated")), (&json!({}), None), "{status}");
        status["error"].as_str().unwrap().to_owned()
    };
    for nonsense in ["abc", "a.b.c", "....", "e30.e30.e30"] {
        assert_eq!(error(nonsense, &[]).await, "invalid bearer token", "{nonsense}");
    }
    let own = token(&server, json!({})).await;
    assert_eq!(
        error(&own, &["x"]).await,
        format!(
            r#"[invalid bearer token, token audiences ["{ISSUER}"] is invalid for the target audiences ["x"]]"#
        )
    );
    let (signed, signature) = own.rsplit_once('.').unwrap();
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    bytes[5] ^= 1;
    let forged = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes));
    assert_eq!(
        error(&forged, &[]).await,
        "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
    );
    let empty = json!({"spec": {}});
    let answer = call(&server, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &empty).await;
    assert_eq!(refused(answer, 400), "token is required for TokenReview in authentication");
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_its_account_and_with_its_secret() {
    let server = server().await;
    let secrets = "/api/v1/namespaces/wktest/secrets";
    post(&server, secrets, &json!({"metadata": {"name": "s"}})).await;
    let reference = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}});
    let (bound, free) = (token(&server, reference).await, token(&server, json!({})).await);
    assert_eq!(review(&server, &bound, &[]).await["authenticated"], true);
    call(&server, "DELETE", &format!("{secrets}/s"), &Value::Null).await;
    // A real server caches for ten seconds, so another token is asked about.
    if server.inside().is_some() {
        let error = "[invalid bearer token, service account token has been invalidated]";
        assert_eq!(review(&server, &bound, &[]).await["error"], error);
        call(&server, "DELETE", &format!("{ACCOUNTS}/robot"), &Value::Null).await;
        let error = r#"[invalid bearer token, serviceaccounts "robot" not found]"#;
        assert_eq!(review(&server, &free, &[]).await["error"], error);
        post(&server, ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
        let error = review(&server, &free, &[]).await["error"].to_string();
        assert!(
            error.contains("service account UID (") && error.contains(") does not match claim ("),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_pod_names_the_pod_and_its_node() {
    let server = server().await;
    let pods = "/api/v1/namespaces/wktest/pods";
    let pod = |name: &str, account: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "serviceAccountName": account, "nodeName": "n", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}]}})
    };
    let created = post(&server, pods, &pod("p", "robot")).await;
    let reference = |name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name}});
    let status = review(&server, &token(&server, reference("p")).await, &[]).await;
    let extra = &status["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([created["metadata"]["uid"]]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n"]));
    post(&server, ACCOUNTS, &json!({"metadata": {"name": "other"}})).await;
    post(&server, pods, &pod("q", "other")).await;
    assert_eq!(
        refused(request(&server, reference("q")).await, 400),
        r#"cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name."#
    );
    let mut wrong = reference("p");
    wrong["boundObjectRef"]["uid"] = "7".into();
    assert_eq!(
        refused(request(&server, wrong).await, 409),
        r#"Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (7) does not match the UID in record. The object might have been deleted and then recreated"#
    );
}

#[tokio::test(start_paused = true)]
async fn requests_with_nonsense_are_refused() {
    let server = server().await;
    let invalid = |why: &str| {
        format!(r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: {why}"#)
    };
    for (seconds, why) in [
        (36_i64, "Invalid value: 36: may not specify a duration less than 10 minutes"),
        (360_000_000_000, "Invalid value: 360000000000: may not specify a duration larger than 2^32 seconds"),
    ] {
        assert_eq!(refused(request(&server, json!({"expirationSeconds": seconds})).await, 422), invalid(why));
    }
    let bound = |kind: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": "x"}});
    assert_eq!(refused(request(&server, bound("Pod")).await, 404), r#"pods "x" not found"#);
    assert_eq!(
        refused(request(&server, bound("ConfigMap")).await, 400),
        "cannot bind token to object of type /v1, Kind=ConfigMap"
    );
    let path = format!("{ACCOUNTS}/robot/token");
    let other = json!({"metadata": {"name": "x"}, "spec": {}});
    assert_eq!(
        refused(call(&server, "POST", &path, &other).await, 422),
        r#"TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "x": must match the service account name if specified"#
    );
    let other = json!({"metadata": {"uid": "7"}, "spec": {}});
    let message = refused(call(&server, "POST", &path, &other).await, 409);
    assert!(message.starts_with(r#"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (7) does not match"#), "{message}");
    assert_eq!(call(&server, "GET", &path, &Value::Null).await.0, 405);
    let absent = format!("{ACCOUNTS}/nobody/token");
    assert_eq!(
        refused(call(&server, "POST", &absent, &json!({"spec": {}})).await, 404),
        r#"serviceaccounts "nobody" not found"#
    );
}
