//! Credentials on a socket: the admin's token, tokens of service accounts, wrong ones, and none.

use http::Request;
use http_body_util::BodyExt as _;
use kube_client::client::Body;
use kube_client::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, Authorization, ListenOptions, Listening};

async fn listening(mode: Authorization) -> (ApiServer, Listening) {
    let server = ApiServer::builder(&Env::system()).authorization(mode).build();
    let listening = server.listen(ListenOptions::default()).await.unwrap();
    (server, listening)
}

/// A client with this token; with the admin's if none is given, with none if it is empty.
async fn client(listening: &Listening, token: Option<&str>) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    if let Some(token) = token {
        config.auth_info = AuthInfo::default();
        config.auth_info.token = (!token.is_empty()).then(|| token.to_owned().into());
    }
    Client::try_from(config).unwrap()
}

async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let response = client.send(request.body(Body::from(text.into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn get(client: &Client, path: &str) -> (u16, Value) {
    ask(client, "GET", path, &Value::Null).await
}

#[tokio::test]
async fn a_token_of_a_service_account_is_accepted_until_the_account_is_gone() {
    let (_server, listening) = listening(Authorization::Rbac).await;
    let admin = client(&listening, None).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ask(&admin, "POST", accounts, &json!({"metadata": {"name": "robot"}})).await;
    let (_, answer) = ask(&admin, "POST", &format!("{accounts}/robot/token"), &json!({"spec": {}})).await;
    let robot = client(&listening, answer["status"]["token"].as_str()).await;
    let (code, answer) = get(&robot, "/api/v1/namespaces/default/pods").await;
    assert_eq!(code, 403, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains(r#"User "system:serviceaccount:default:robot" cannot list"#)
    );
    let view = json!({
        "metadata": {"name": "robot"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(ask(&admin, "POST", bindings, &view).await.0, 201);
    assert_eq!(get(&robot, "/api/v1/namespaces/default/pods").await.0, 200);
    assert_eq!(get(&robot, "/api/v1/namespaces/default/secrets").await.0, 403);
    ask(&admin, "DELETE", &format!("{accounts}/robot"), &Value::Null).await;
    assert_eq!(get(&robot, "/api/v1/namespaces/default/pods").await.0, 401);
    listening.stop().await;
}

#[tokio::test]
async fn without_credentials_a_request_is_anonymous_only_if_roles_decide() {
    let (_server, secured) = listening(Authorization::Rbac).await;
    let anonymous = client(&secured, Some("")).await;
    assert_eq!(get(&anonymous, "/version").await.0, 200);
    let (code, answer) = get(&anonymous, "/api").await;
    assert_eq!(
        (code, &answer["message"]),
        (403, &json!(r#"forbidden: User "system:anonymous" cannot get path "/api""#))
    );
    assert_eq!(get(&client(&secured, Some("wrong")).await, "/version").await.0, 401);
    let (_server, open) = listening(Authorization::AlwaysAllow).await;
    assert_eq!(get(&client(&open, Some("")).await, "/version").await.0, 401);
    assert_eq!(get(&client(&open, None).await, "/api/v1/secrets").await.0, 200);
}

#[tokio::test]
async fn the_token_of_the_admin_can_be_reviewed_and_keys_are_published() {
    let (_server, listening) = listening(Authorization::Rbac).await;
    let admin = client(&listening, None).await;
    let token = listening.credentials().unwrap().token().to_owned();
    let review = json!({"spec": {"token": token}});
    let (_, answer) = ask(&admin, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(answer["status"]["user"]["groups"], json!(["system:masters", "system:authenticated"]));
    let (_, keys) = get(&admin, "/openid/v1/jwks").await;
    assert_eq!((&keys["keys"][0]["kty"], keys["keys"].as_array().unwrap().len()), (&json!("OKP"), 1));
    let (_, issuer) = get(&admin, "/.well-known/openid-configuration").await;
    assert_eq!(issuer["issuer"], "https://kubernetes.default.svc");
}

#[tokio::test]
async fn tokens_stay_valid_when_a_server_with_a_data_directory_restarts() {
    let (parent, env) = (tempfile::tempdir().unwrap(), Env::system());
    let folder = parent.path().join("data");
    let open = || ApiServer::builder(&env).authorization(Authorization::Rbac).open(&folder).unwrap();
    let server = open();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ask(&server.client(), "POST", accounts, &json!({"metadata": {"name": "robot"}})).await;
    let path = format!("{accounts}/robot/token");
    let (_, issued) = ask(&server.client(), "POST", &path, &json!({"spec": {}})).await;
    let (roles, _) = (server.objects().len(), drop(server));
    let server = loop {
        // The client's task holds the folder for a moment.
        tokio::task::yield_now().await;
        if let Ok(server) = ApiServer::builder(&env).authorization(Authorization::Rbac).open(&folder) {
            break server;
        }
    };
    assert_eq!(server.objects().len(), roles, "default roles are not created twice");
    let review = json!({"spec": {"token": issued["status"]["token"]}});
    let (_, answer) =
        ask(&server.client(), "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(answer["status"]["authenticated"], true, "{answer}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(folder.join("service-account.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
