//! Listening: clients reach the server over TLS and survive its restart.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_client::api::{ListParams, PostParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper_apiserver::{ApiServer, Credentials, ListenOptions, Listening, ServeError};

async fn client(listening: &Listening) -> Client {
    client_of(&listening.kubeconfig()).await
}

async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn a_client_survives_a_restart_on_the_same_port() {
    let server = ApiServer::new(&Env::system());
    let credentials = Credentials::generate().unwrap();
    let options = ListenOptions { credentials: Some(credentials.clone()), ..ListenOptions::default() };
    let listening = server.listen(options.clone()).await.unwrap();
    let address = listening.address();
    let client = client(&listening).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();

    // A watch is open when the server stops: it ends without an error, and nothing hangs.
    let start = server.revision();
    let path = format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={start}");
    let request = Request::get(path).body(Vec::new()).unwrap();
    let mut lines = client.request_stream(request).await.unwrap().lines();
    maps.create(&PostParams::default(), &config_map("b")).await.unwrap();
    let line = lines.try_next().await.unwrap().unwrap();
    assert!(line.contains("ADDED") && line.contains("\"b\""), "{line}");
    listening.stop().await;
    assert_eq!(lines.try_next().await.unwrap(), None);

    let listening = server.listen(ListenOptions { address, ..options }).await.unwrap();
    assert_eq!(listening.address(), address);
    // The client may first find its pooled connection closed.
    let list = match maps.list(&Default::default()).await {
        Ok(list) => list,
        Err(_) => maps.list(&Default::default()).await.unwrap(),
    };
    assert_eq!(list.items.len(), 2);
    listening.stop().await;
}

#[tokio::test]
async fn the_socket_and_the_process_see_one_state() {
    let server = ApiServer::new(&Env::system());
    let listening = server.listen(ListenOptions::default()).await.unwrap();
    let outside: Api<ConfigMap> = Api::default_namespaced(client(&listening).await);
    let inside: Api<ConfigMap> = Api::default_namespaced(server.client());
    outside.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert_eq!(inside.get("a").await.unwrap(), outside.get("a").await.unwrap());
    listening.stop().await;
}

#[tokio::test]
async fn a_request_without_the_token_is_unauthorized() {
    let server = ApiServer::new(&Env::system());
    let credentials = Credentials::generate().unwrap();
    let options = ListenOptions { credentials: Some(credentials.clone()), ..ListenOptions::default() };
    let listening = server.listen(options).await.unwrap();
    let kubeconfig = listening.kubeconfig();
    assert!(!format!("{listening:?} {credentials:?}").contains(credentials.token()));
    for text in [
        kubeconfig.replace(credentials.token(), "wrong"),
        kubeconfig.replace(&format!("token: {}", credentials.token()), "username: x"),
    ] {
        let error = client_of(&text).await.apiserver_version().await.unwrap_err();
        let kube_client::Error::Api(status) = error else { panic!("{error}") };
        assert_eq!(
            (status.code, status.reason.as_str(), status.message.as_str()),
            (401, "Unauthorized", "Unauthorized")
        );
    }
    listening.stop().await;
}

#[tokio::test]
async fn a_clock_before_1970_does_no_harm() {
    let moon_landing = Clock::virtual_at("1969-07-20T20:17:40Z".parse().unwrap());
    let env = Env::new(moon_landing, Generator::seeded(1));
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path(), "own");
    let generated = Credentials::generate().unwrap();
    let own = generated.with_certificate(&certificate, &key).unwrap();
    for credentials in [generated, own] {
        let server = ApiServer::new(&env);
        let options = ListenOptions { credentials: Some(credentials), ..ListenOptions::default() };
        let listening = server.listen(options).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&listening).await);
        let made = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
        let created = made.metadata.creation_timestamp.unwrap().0;
        assert_eq!(created.strftime("%Y").to_string(), "1969");
        assert!(made.metadata.resource_version.unwrap().parse::<u64>().unwrap() > 1);
        listening.stop().await;
    }
}

#[tokio::test]
async fn another_ca_is_not_trusted() {
    let server = ApiServer::new(&Env::system());
    let (first, second) = (
        server.listen(ListenOptions::default()).await.unwrap(),
        server.listen(ListenOptions::default()).await.unwrap(),
    );
    let text = first.kubeconfig().replace(&first.url(), &second.url());
    let error = client_of(&text).await.apiserver_version().await.unwrap_err();
    assert!(!matches!(error, kube_client::Error::Api(_)), "{error}");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn credentials_of_a_folder_are_made_once_and_for_the_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) =
        (Credentials::kept_in(folder.path()).unwrap(), Credentials::kept_in(folder.path()).unwrap());
    assert_eq!((first.ca_pem(), first.token()), (second.ca_pem(), second.token()));
    // A client that trusts the first server is served by the second.
    let server = ApiServer::new(&Env::system());
    let listen = |credentials: &Credentials| {
        server.listen(ListenOptions { credentials: Some(credentials.clone()), ..ListenOptions::default() })
    };
    let (one, other) = (listen(&first).await.unwrap(), listen(&second).await.unwrap());
    let text = one.kubeconfig().replace(&one.url(), &other.url());
    client_of(&text).await.apiserver_version().await.unwrap();
    for name in ["ca.pem", "token"] {
        let file = folder.path().join(name);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(), 0o600, "{name}");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
            Credentials::kept_in(folder.path()).unwrap();
            assert_eq!(mode(), 0o600, "{name} is closed again");
        }
        std::fs::write(&file, "spoilt").unwrap();
        let error = Credentials::kept_in(folder.path()).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()) && error.contains("remove it"), "{error}");
        std::fs::remove_file(&file).unwrap();
        Credentials::kept_in(folder.path()).unwrap();
    }
}

/// Writes a certificate for the loopback address and its key to files.
fn certificate(folder: &std::path::Path, name: &str) -> (std::path::PathBuf, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

#[tokio::test]
async fn a_certificate_of_ones_own_is_shown_and_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, key) = certificate(folder.path(), "own");
    let credentials = Credentials::generate().unwrap().with_certificate(&file, &key).unwrap();
    let server = ApiServer::new(&Env::system());
    let options = ListenOptions { credentials: Some(credentials.clone()), ..ListenOptions::default() };
    let listening = server.listen(options).await.unwrap();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(credentials.ca_pem()), lines(&std::fs::read_to_string(&file).unwrap()));
    assert_eq!(client(&listening).await.apiserver_version().await.unwrap().minor, "36");
    listening.stop().await;
}

#[test]
fn a_key_in_the_same_file_as_the_certificate_is_not_given_away() {
    let folder = tempfile::tempdir().unwrap();
    let (file, key) = certificate(folder.path(), "own");
    let (certificate, secret) =
        (std::fs::read_to_string(&file).unwrap(), std::fs::read_to_string(&key).unwrap());
    std::fs::write(&file, format!("{secret}\n{certificate}\n{secret}")).unwrap();
    let credentials = Credentials::generate().unwrap().with_certificate(&file, &file).unwrap();
    assert_eq!(credentials.ca_pem().lines().collect::<Vec<_>>(), certificate.lines().collect::<Vec<_>>());
}

#[test]
fn a_wrong_certificate_or_key_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let ((file, key), (_, other)) = (certificate(folder.path(), "a"), certificate(folder.path(), "b"));
    let (absent, garbage) = (folder.path().join("absent"), folder.path().join("garbage"));
    std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    let spoilt = folder.path().join("spoilt");
    std::fs::write(&spoilt, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for (certificate, private, named, words) in [
        (&absent, &key, &absent, "cannot use the file"),
        (&file, &absent, &absent, "cannot use the file"),
        (&key, &key, &key, "has no certificate in PEM format"),
        (&garbage, &key, &garbage, "has no certificate in PEM format"),
        (&spoilt, &key, &spoilt, "has no usable certificate"),
        (&file, &file, &file, "has no unencrypted private key in PEM format"),
        (&file, &other, &other, "is not the key of the certificate in"),
    ] {
        let error = Credentials::generate().unwrap().with_certificate(certificate, private).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(named.to_str().unwrap()) && error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn beyond_loopback_there_are_tls_and_a_token() {
    let server = ApiServer::new(&Env::system());
    let everywhere = ListenOptions { address: "0.0.0.0:0".parse().unwrap(), ..ListenOptions::default() };
    let listening = server.listen(everywhere).await.unwrap();
    assert!(listening.url().starts_with("https://") && listening.credentials().is_some());
    assert_eq!(client(&listening).await.apiserver_version().await.unwrap().minor, "36");
    listening.stop().await;
    assert!(ListenOptions::default().address.ip().is_loopback());
}

#[tokio::test]
async fn plain_http_is_for_loopback_alone() {
    let server = ApiServer::new(&Env::system());
    let everywhere =
        ListenOptions { address: "0.0.0.0:0".parse().unwrap(), insecure_http: true, credentials: None };
    let error = server.listen(everywhere).await.unwrap_err();
    assert!(matches!(error, ServeError::NotLoopback(_)), "{error}");
    let listening =
        server.listen(ListenOptions { insecure_http: true, ..ListenOptions::default() }).await.unwrap();
    assert!(listening.url().starts_with("http://127.0.0.1:"));
    assert_eq!(client(&listening).await.apiserver_version().await.unwrap().minor, "36");
    listening.stop().await;
}

/// Returns the status code of the response to a raw request.
async fn status(listening: &Listening, head: &str, body: &str) -> u16 {
    let mut stream = tokio::net::TcpStream::connect(listening.address()).await.unwrap();
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let request = format!("{}\r\nconnection: close\r\n{length}\r\n{body}", head.replace('\n', "\r\n"));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn over_plain_http_a_web_page_neither_reads_nor_writes() {
    let server = ApiServer::new(&Env::system());
    let listening =
        server.listen(ListenOptions { insecure_http: true, ..ListenOptions::default() }).await.unwrap();
    let address = listening.address();
    let get = "GET /api/v1/secrets HTTP/1.1";
    for (code, head) in [
        (200, format!("{get}\nhost: {address}")),
        (200, format!("{get}\nhost: localhost")),
        (200, format!("{get}\nhost: [::1]:1")),
        (200, format!("{get}\nhost: {address}\norigin: http://{address}")),
        // DNS rebinding: the name of a web page resolves to this machine.
        (403, format!("{get}\nhost: rebound.example.com:{}", address.port())),
        (403, format!("GET http://rebound.example.com/api/v1/secrets HTTP/1.1\nhost: {address}")),
        (400, get.to_owned()),
        (400, format!("{get}\nhost: {address}\nhost: {address}")),
        (403, format!("{get}\nhost: {address}\norigin: https://example.com")),
        (403, format!("{get}\nhost: {address}\norigin: null")),
        (403, format!("{get}\nhost: {address}\norigin: http://{address}\norigin: http://example.com")),
    ] {
        assert_eq!(status(&listening, &head, "").await, code, "{head}");
    }
    let post = format!("POST /api/v1/namespaces/default/configmaps HTTP/1.1\nhost: {address}");
    assert_eq!(status(&listening, &post, &config_map_text("a")).await, 415);
    assert_eq!(
        status(&listening, &format!("{post}\ncontent-type: text/plain"), &config_map_text("b")).await,
        415
    );
    let json = format!("{post}\ncontent-type: application/json");
    assert_eq!(
        status(&listening, &format!("{json}\norigin: http://example.com"), &config_map_text("c")).await,
        403
    );
    assert_eq!(status(&listening, &json, &config_map_text("d")).await, 201);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let names = maps.list(&Default::default()).await.unwrap().items;
    assert_eq!(names.iter().map(|map| map.metadata.name.as_deref().unwrap()).collect::<Vec<_>>(), ["d"]);
    listening.stop().await;
}

fn config_map_text(name: &str) -> String {
    serde_json::to_string(&config_map(name)).unwrap()
}

#[tokio::test]
async fn a_stop_with_idle_connections_does_not_wait() {
    let env = Env::system();
    let server = ApiServer::new(&env);
    let listening = server.listen(ListenOptions::default()).await.unwrap();
    let client = client(&listening).await;
    client.apiserver_version().await.unwrap();
    let silent = tokio::net::TcpStream::connect(listening.address()).await.unwrap();
    // From here on time advances only while a test waits.
    tokio::time::pause();
    let before = env.clock.now();
    listening.stop().await;
    assert!(env.clock.now() - before < Duration::from_secs(4));
    drop(silent);
}

#[tokio::test]
async fn the_endpoints_of_the_kubernetes_service_are_the_listener() {
    let server = ApiServer::new(&Env::system());
    let listening = server.listen(ListenOptions::default()).await.unwrap();
    let (ip, port) = (listening.address().ip().to_string(), i32::from(listening.address().port()));
    let client = client(&listening).await;
    let endpoints: Api<Endpoints> = Api::default_namespaced(client.clone());
    let subsets = endpoints.get("kubernetes").await.unwrap().subsets.unwrap();
    assert_eq!(subsets[0].addresses.as_ref().unwrap()[0].ip, ip);
    assert_eq!(subsets[0].ports.as_ref().unwrap()[0].port, port);
    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    let of_service = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slice = &slices.list(&of_service).await.unwrap().items[0];
    assert_eq!(slice.endpoints.as_ref().unwrap()[0].addresses, [ip]);
    assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(port));
    // Another listener is another address; the same one changes nothing.
    listening.stop().await;
    let address = "127.0.0.1:0".parse().unwrap();
    let listening = server.listen(ListenOptions { address, ..ListenOptions::default() }).await.unwrap();
    let port = i32::from(listening.address().port());
    let client = self::client(&listening).await;
    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    assert_eq!(slices.get("kubernetes").await.unwrap().ports.unwrap()[0].port, Some(port));
}
