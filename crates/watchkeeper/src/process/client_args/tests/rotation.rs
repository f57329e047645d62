//! Credentials that change while a client runs, on real sockets with TLS.

use std::sync::Arc;
use std::time::Duration;

use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::informer::{SharedInformer, on_apply};
use crate::object::Object;
use crate::source::{ApiSource, Scope};

/// An authority, with a certificate that it has issued for 127.0.0.1.
struct Issued {
    authority: rcgen::Certificate,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

fn issue() -> Issued {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Issued { authority, certificate, key }
}

/// A server that is known by one authority, and may accept the clients of another only.
async fn tls(own: &Issued, clients: Option<&Issued>) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = match clients {
        None => builder.unwrap().with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.authority.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.unwrap().with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivatePkcs8KeyDer::from(own.key.serialize_der());
    let config = builder.with_single_cert(vec![own.certificate.der().clone()], key.into()).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Answers one request on the next connection, and returns its head; `None` if the two sides do not trust each other.
async fn answer(server: &TcpListener, tls: &TlsAcceptor, code: u16, body: &str) -> Option<String> {
    let (stream, _) = server.accept().await.unwrap();
    let mut stream = tls.accept(stream).await.ok()?;
    let head = head(&mut stream).await;
    let length = body.len();
    let answer = format!("HTTP/1.1 {code} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.ok();
    Some(head)
}

/// Accepts a watch on the next connection, and sends one event; returns the head of the request and the open connection.
async fn open_watch(server: &TcpListener, tls: &TlsAcceptor, event: &str) -> (String, TlsStream<TcpStream>) {
    let (stream, _) = server.accept().await.unwrap();
    let mut stream = tls.accept(stream).await.unwrap();
    let head = head(&mut stream).await;
    let answer = format!("HTTP/1.1 200 x\r\nconnection: close\r\n\r\n{event}\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    (head, stream)
}

async fn ask(client: &Client) -> Result<String, kube_client::Error> {
    client.kube().request_text(http::Request::get("/hello").body(Vec::new()).unwrap()).await
}

/// A client of the server at that socket, by a kubeconfig with these settings of the cluster and of the user.
async fn client(machine: &mut Machine, server: &TcpListener, cluster: &str, user: &str) -> Client {
    let url = format!("https://{}", server.local_addr().unwrap());
    let text = simple(&url).replace("tls-server-name: t", cluster).replace("token: hunter2", user);
    machine.args.kubeconfig = Some(machine.write("file", &text));
    Client::from_config(machine.config().await, &Env::simulated(1)).unwrap()
}

#[tokio::test]
async fn a_new_authority_is_trusted_after_one_failure() {
    let (mut machine, server) = (Machine::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (old, new) = (issue(), issue());
    machine.write("ca", &old.authority.pem());
    let client = client(&mut machine, &server, "certificate-authority: ca", "token: t").await;
    let before = tls(&old, None).await;
    let (asked, _) = tokio::join!(ask(&client), answer(&server, &before, 200, "hi"));
    assert_eq!(asked.unwrap(), "hi");

    let after = tls(&new, None).await;
    let serve = async { answer(&server, &after, 200, "not yet").await };
    let (asked, refused) = tokio::join!(ask(&client), serve);
    assert!(asked.is_err() && refused.is_none(), "nobody knows the new authority");
    machine.write("ca", &new.authority.pem());
    let serve = async {
        assert!(answer(&server, &after, 200, "not yet").await.is_none());
        assert!(answer(&server, &after, 200, "again").await.is_some());
    };
    let (asked, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(asked.unwrap(), "again");
    assert_eq!(client.credentials().unwrap().reloads, 1);
}

#[tokio::test]
async fn a_new_client_certificate_is_presented_after_one_failure() {
    let (mut machine, server) = (Machine::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (own, old, new) = (issue(), issue(), issue());
    let write = |machine: &Machine, issued: &Issued| {
        machine.write("crt", &issued.certificate.pem());
        machine.write("key", &issued.key.serialize_pem());
    };
    write(&machine, &old);
    machine.write("ca", &own.authority.pem());
    let user = "client-certificate: crt, client-key: key";
    let client = client(&mut machine, &server, "certificate-authority: ca", user).await;
    let (before, after) = (tls(&own, Some(&old)).await, tls(&own, Some(&new)).await);
    let (asked, _) = tokio::join!(ask(&client), answer(&server, &before, 200, "hi"));
    assert_eq!(asked.unwrap(), "hi");
    write(&machine, &new);
    let serve = async {
        assert!(answer(&server, &after, 200, "not yet").await.is_none());
        assert!(answer(&server, &after, 200, "again").await.is_some());
    };
    let (asked, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(asked.unwrap(), "again");
}

#[tokio::test]
async fn a_program_gives_a_new_token_after_a_refusal_and_a_new_certificate_after_a_failure() {
    let (mut machine, server) = (Machine::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (own, old, new) = (issue(), issue(), issue());
    let print = |machine: &Machine, token: &str, issued: &Issued| {
        let (certificate, key) = (issued.certificate.pem(), issued.key.serialize_pem());
        let status = json!({"token": token, "clientCertificateData": certificate, "clientKeyData": key});
        let version = "client.authentication.k8s.io/v1";
        let answer = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
        machine.write("answer", &answer.to_string())
    };
    machine.write("ca", &own.authority.pem());
    let file = print(&machine, "one", &old);
    let user = format!("exec: {{command: cat, args: ['{}'], interactiveMode: Never}}", file.display());
    let client = client(&mut machine, &server, "certificate-authority: ca", &user).await;
    let (before, after) = (tls(&own, Some(&old)).await, tls(&own, Some(&new)).await);
    let serve = async {
        print(&machine, "two", &old);
        let refused = answer(&server, &before, 401, "").await.unwrap();
        assert!(refused.contains("authorization: bearer one\r\n"), "{refused}");
        let accepted = answer(&server, &before, 200, "hi").await.unwrap();
        assert!(accepted.contains("authorization: bearer two\r\n"), "{accepted}");
    };
    let (asked, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(asked.unwrap(), "hi");
    print(&machine, "two", &new);
    let serve = async {
        assert!(answer(&server, &after, 200, "not yet").await.is_none());
        assert!(answer(&server, &after, 200, "again").await.is_some());
    };
    let (asked, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(asked.unwrap(), "again");
    assert_eq!(client.credentials().unwrap().reloads, 2);
}

#[tokio::test]
async fn a_token_file_is_read_again_after_a_refusal() {
    let (mut machine, server) = (Machine::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let own = issue();
    machine.write("ca", &own.authority.pem());
    machine.write("token", "one");
    let client = client(&mut machine, &server, "certificate-authority: ca", "tokenFile: token").await;
    let tls = tls(&own, None).await;
    let serve = async {
        machine.write("token", "two");
        let refused = answer(&server, &tls, 401, "").await.unwrap();
        assert!(refused.contains("authorization: bearer one\r\n"), "{refused}");
        let accepted = answer(&server, &tls, 200, "hi").await.unwrap();
        assert!(accepted.contains("authorization: bearer two\r\n"), "{accepted}");
    };
    let (asked, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(asked.unwrap(), "hi");
    assert_eq!(client.credentials().unwrap().reloads, 1);
}

#[tokio::test]
async fn a_running_watch_moves_to_the_new_token_of_a_program_before_the_old_one_expires() {
    let (mut machine, server) = (Machine::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let own = issue();
    // The clock of the client starts with the year.
    let print = |machine: &Machine, token: &str, expires: &str| {
        let status = json!({"token": token, "expirationTimestamp": expires});
        let version = "client.authentication.k8s.io/v1";
        let answer = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
        machine.write("answer", &answer.to_string())
    };
    machine.write("ca", &own.authority.pem());
    let file = print(&machine, "one", "2026-01-01T00:00:20Z");
    let user = format!("exec: {{command: cat, args: ['{}'], interactiveMode: Never}}", file.display());
    let client = client(&mut machine, &server, "certificate-authority: ca", &user).await;
    let source = ApiSource::new::<ConfigMap>(&client, &(), &Scope::Cluster);
    let informer = SharedInformer::<ConfigMap>::builder(source, client.env()).build();
    let (applied, mut versions) = mpsc::unbounded_channel();
    let note = on_apply(move |map: &Object<ConfigMap>| applied.send(map.version().as_number()).unwrap());
    informer.add_handler(note).unwrap();
    let (running, stop) = (informer.clone(), CancellationToken::new());
    let token = stop.clone();
    let run = tokio::spawn(async move { running.run(token).await });

    let tls = tls(&own, None).await;
    let map = |kind: &str, version: &str| {
        let metadata = json!({"name": "a", "namespace": "ns", "resourceVersion": version});
        json!({"type": kind, "object": {"metadata": metadata}}).to_string()
    };
    let streamed =
        answer(&server, &tls, 422, r#"{"kind": "Status", "reason": "Invalid", "code": 422}"#).await;
    assert!(streamed.unwrap().contains("sendinitialevents=true"));
    let listed = answer(&server, &tls, 200, r#"{"metadata": {"resourceVersion": "5"}, "items": []}"#).await;
    assert!(listed.unwrap().contains("authorization: bearer one\r\n"));
    let (first, _open) = open_watch(&server, &tls, &map("ADDED", "7")).await;
    assert!(first.contains("resourceversion=5&") && first.contains("bearer one\r\n"), "{first}");
    assert_eq!(versions.recv().await, Some(Some(7)));

    print(&machine, "two", "2026-01-01T01:00:00Z");
    // Not yet expired, but due: a fifth of its life before.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(17)).await;
    tokio::time::resume();
    let (second, _open) = open_watch(&server, &tls, &map("MODIFIED", "9")).await;
    assert!(second.contains("resourceversion=7&") && second.contains("bearer two\r\n"), "{second}");
    assert_eq!(versions.recv().await, Some(Some(9)));
    let health = informer.health();
    assert_eq!((health.lists, health.degraded), (1, None));
    stop.cancel();
    run.await.unwrap();
}

#[tokio::test]
async fn an_expired_id_token_is_replaced_by_its_provider() {
    let (mut machine, server) = (Machine::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let own = issue();
    machine.write("ca", &own.authority.pem());
    let url = format!("https://{}", server.local_addr().unwrap());
    let jwt =
        |expires: u64| format!("h.{}.s", BASE64_URL_SAFE_NO_PAD.encode(json!({"exp": expires}).to_string()));
    let authority = BASE64_STANDARD.encode(own.authority.pem());
    let user = format!(
        "auth-provider: {{name: oidc, config: {{idp-issuer-url: '{url}', client-id: me, client-secret: hunter2, \
         refresh-token: r, id-token: {}, idp-certificate-authority-data: {authority}}}}}",
        jwt(1)
    );
    let client = client(&mut machine, &server, "certificate-authority: ca", &user).await;
    let tls = tls(&own, None).await;
    let serve = async {
        let discovery = json!({"token_endpoint": format!("{url}/token")}).to_string();
        let asked = answer(&server, &tls, 200, &discovery).await.unwrap();
        assert!(asked.starts_with("get /.well-known/openid-configuration "), "{asked}");
        let issued = json!({"id_token": jwt(4_000_000_000)}).to_string();
        let asked = answer(&server, &tls, 200, &issued).await.unwrap();
        assert!(asked.starts_with("post /token "), "{asked}");
        let asked = answer(&server, &tls, 200, "hi").await.unwrap();
        let token = format!("authorization: bearer {}\r\n", jwt(4_000_000_000)).to_lowercase();
        assert!(asked.contains(&token), "{asked}");
    };
    let (asked, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(asked.unwrap(), "hi");
}
