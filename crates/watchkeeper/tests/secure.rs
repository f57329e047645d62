//! Protected admin pages, on real sockets with TLS. The API server's reviews are scripted.
#![cfg(all(feature = "admin", feature = "prometheus"))]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use prometheus_client::metrics::counter::Counter;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use watchkeeper::explain::{Explain, ProgramPhase};
use watchkeeper::process::{AdminAddress, AdminArgs, AdminError, Pages};
use watchkeeper::report::WithCauses;
use watchkeeper::{Client, Env};

/// A client of an API server that knows two users: `reader`, who may get everything, and `guest`, who may not.
fn judging(env: &Env) -> Client {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let spec = review["spec"].clone();
        review["status"] = match spec["token"].as_str() {
            Some(token @ ("reader" | "guest")) => {
                json!({"authenticated": true, "user": {"username": token}})
            }
            Some(_) => json!({"user": {}, "error": "invalid bearer token"}),
            None => json!({"allowed": spec["user"] == "reader"}),
        };
        let answer = Response::builder().status(201).body(Full::from(review.to_string()));
        Ok::<_, Infallible>(answer.unwrap())
    });
    Client::from_kube(kube_client::Client::new(service, "default"), env)
}

/// Flags with free ports.
fn args(metrics: [u8; 4]) -> AdminArgs {
    let mut args = AdminArgs::default();
    args.metrics_bind_address = AdminAddress::At(SocketAddr::from((metrics, 0)));
    args
}

const EVERYWHERE: [u8; 4] = [0, 0, 0, 0];
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// Admin pages that are served.
struct Served {
    /// By which they are reached from here.
    addresses: Vec<SocketAddr>,
    stop: CancellationToken,
    run: JoinHandle<()>,
}

impl Served {
    async fn start(args: &AdminArgs, env: &Env) -> Result<Self, AdminError> {
        let mut pages = Pages::default();
        pages.metrics.register("my_things", "Things of mine", Counter::<u64>::default());
        pages.ready.gate("caches").open();
        let explain = Explain::new("tester", env);
        explain.set_phase(ProgramPhase::Running);
        pages.explain = Some(Arc::new(explain));
        let server = args.bind(pages, &judging(env)).await?;
        let addresses = server.addresses().map(|at| SocketAddr::from((LOOPBACK, at.port()))).collect();
        let stop = CancellationToken::new();
        Ok(Self { addresses, run: tokio::spawn(server.run(stop.clone())), stop })
    }

    /// The status and the text of the whole answer, over TLS.
    async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        ask(tls(self.addresses[0]).await, path, token).await
    }
}

async fn ask(stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, token: Option<&str>) -> (u16, String) {
    send(stream, "GET", path, token).await
}

async fn send(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

async fn plain(address: SocketAddr, path: &str) -> (u16, String) {
    ask(TcpStream::connect(address).await.unwrap(), path, None).await
}

/// Accepts any certificate, as scrapers without an authority do.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

async fn tls(address: SocketAddr) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream
}

#[tokio::test]
async fn what_a_program_explains_is_protected_as_its_metrics_are() {
    let mut args = args(EVERYWHERE);
    args.admin_actions = true;
    let served = Served::start(&args, &Env::system()).await.unwrap();
    for path in [
        "/",
        "/informers",
        "/controllers/foos",
        "/explain?kind=Foo&key=a/b",
        "/page.js",
        "/debug/controllers",
        "/debug/informers",
        "/debug/explain?kind=Foo&key=a/b",
        "/debug/controllers/foos/keys",
    ] {
        assert_eq!(served.get(path, None).await.0, 401, "{path}");
        let (code, answer) = served.get(path, Some("guest")).await;
        assert!(code == 403 && !answer.contains("tester"), "{path}: {answer}");
        let code = served.get(path, Some("reader")).await.0;
        assert!(code == 200 || code == 404, "{path}: {code}");
    }
    let path = "/controllers/foos/reconcile?key=a/b";
    for (token, expected) in [(None, 401), (Some("guest"), 403), (Some("reader"), 404)] {
        let (code, answer) = send(tls(served.addresses[0]).await, "POST", path, token).await;
        assert_eq!(code, expected, "{answer}");
    }
    served.stop.cancel();
    served.run.await.unwrap();
}

#[tokio::test]
async fn elsewhere_than_on_loopback_the_metrics_are_for_users_who_may_get_them() {
    let served = Served::start(&args(EVERYWHERE), &Env::system()).await.unwrap();
    let (code, answer) = served.get("/metrics", None).await;
    assert!(code == 401 && answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    let (code, answer) = served.get("/metrics", Some("invented")).await;
    assert!(code == 401 && !answer.contains("my_things"), "{answer}");
    let (code, answer) = served.get("/metrics", Some("guest")).await;
    assert!(code == 403 && !answer.contains("my_things"), "{answer}");
    let (code, answer) = served.get("/metrics", Some("reader")).await;
    assert!(code == 200 && answer.contains("my_things_total 0"), "{answer}");
    // The kubelet has no token; reasons are not for everybody.
    for (path, expected) in
        [("/healthz", 200), ("/readyz?verbose", 200), ("/readyz/caches", 401), ("/", 401), ("/x", 401)]
    {
        assert_eq!(served.get(path, None).await.0, expected, "{path}");
    }
    assert_eq!(served.get("/readyz/caches", Some("reader")).await.0, 200);
    assert_eq!(served.get("/x", Some("reader")).await.0, 404);
    served.stop.cancel();
    served.run.await.unwrap();
}

#[tokio::test]
async fn plain_http_where_tls_is_spoken_is_answered_and_closed() {
    let served = Served::start(&args(EVERYWHERE), &Env::system()).await.unwrap();
    let (code, answer) = plain(served.addresses[0], "/metrics").await;
    assert!(code == 400 && answer.ends_with("this port speaks HTTPS only\n"), "{answer}");
    let mut garbage = TcpStream::connect(served.addresses[0]).await.unwrap();
    // It looks like TLS and is not.
    garbage.write_all(&[22, 3, 1, 0, 5, 9, 9, 9, 9, 9]).await.unwrap();
    let mut rest = Vec::new();
    garbage.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() < 10, "an alert at most: {rest:?}");
    assert_eq!(served.get("/healthz", None).await.0, 200, "others go on");
}

#[tokio::test]
async fn probes_have_an_address_of_their_own_in_plain_http() {
    let mut args = args(EVERYWHERE);
    args.health_probe_bind_address = Some(AdminAddress::At(SocketAddr::from((LOOPBACK, 0))));
    let served = Served::start(&args, &Env::system()).await.unwrap();
    let [_, probes] = served.addresses[..] else { panic!("two addresses") };
    assert_eq!(plain(probes, "/healthz").await.0, 200);
    assert_eq!(plain(probes, "/readyz/caches").await.0, 200);
    assert!(!plain(probes, "/metrics").await.1.contains("my_things"));
}

#[tokio::test]
async fn on_loopback_and_where_it_is_wished_the_metrics_are_plain() {
    let mut wished = args(EVERYWHERE);
    wished.metrics_secure = Some(false);
    for args in [args(LOOPBACK), wished] {
        let served = Served::start(&args, &Env::system()).await.unwrap();
        let (code, answer) = plain(served.addresses[0], "/metrics").await;
        assert!(code == 200 && answer.contains("my_things_total 0"), "{answer}");
    }
    let mut secure = args(LOOPBACK);
    secure.metrics_secure = Some(true);
    let served = Served::start(&secure, &Env::system()).await.unwrap();
    assert_eq!(served.get("/metrics", None).await.0, 401);
}

#[test]
fn which_addresses_are_protected() {
    let is_secure = |address: &str, secure: Option<bool>, folder: Option<&str>| {
        let mut args = AdminArgs::default();
        args.metrics_bind_address = address.parse().unwrap();
        (args.metrics_secure, args.metrics_cert_path) = (secure, folder.map(Into::into));
        args.is_secure()
    };
    for (address, expected) in [
        ("127.0.0.1:1", false),
        ("127.9.9.9:1", false),
        ("[::1]:1", false),
        ("[::ffff:127.0.0.1]:1", false),
        ("0.0.0.0:1", true),
        ("[::]:1", true),
        ("10.0.0.7:1", true),
        ("off", false),
    ] {
        assert_eq!(is_secure(address, None, None), expected, "{address}");
    }
    assert!(is_secure("127.0.0.1:1", Some(true), None) && is_secure("127.0.0.1:1", None, Some("x")));
    assert!(!is_secure("0.0.0.0:1", Some(false), Some("x")) && !is_secure("off", Some(true), None));
}

/// Writes a new certificate and its key, or only one of them, to a folder; returns the certificate.
fn write(folder: &std::path::Path, files: &[&str]) -> Vec<u8> {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for file in files {
        let text = if *file == "tls.crt" { pair.cert.pem() } else { pair.signing_key.serialize_pem() };
        fs::write(folder.join(file), text).unwrap();
    }
    pair.cert.der().to_vec()
}

const BOTH: [&str; 2] = ["tls.crt", "tls.key"];

#[tokio::test]
async fn a_new_certificate_is_used_from_the_next_connection_on() {
    let (folder, env) = (tempfile::tempdir().unwrap(), Env::system());
    let first = write(folder.path(), &BOTH);
    let mut args = args(LOOPBACK);
    args.metrics_cert_path = Some(folder.path().to_owned());
    let served = Served::start(&args, &env).await.unwrap();
    let shown = async || {
        let stream = tls(served.addresses[0]).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    assert!(shown().await == first);
    let mut open = tls(served.addresses[0]).await;
    let second = write(folder.path(), &BOTH);
    assert!(shown().await == second);
    // A connection that is open goes on.
    open.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    open.read_exact(&mut [0; 12]).await.unwrap();
    // In the middle of a change, the last pair stays, and the problem is reported once.
    write(folder.path(), &["tls.key"]);
    assert!(shown().await == second && shown().await == second);
    assert_eq!(env.reporter.errors(), 1);
    fs::remove_file(folder.path().join("tls.crt")).unwrap();
    assert!(shown().await == second);
    assert_eq!(env.reporter.errors(), 2);
    let third = write(folder.path(), &BOTH);
    assert!(shown().await == third);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = args(EVERYWHERE);
    args.metrics_cert_path = Some(folder.path().to_owned());
    let error = async |args: &AdminArgs| {
        let error = Served::start(args, &Env::system()).await.err().unwrap();
        WithCauses(&error).to_string()
    };
    assert!(error(&args).await.contains("tls.crt"), "{}", error(&args).await);
    write(folder.path(), &["tls.crt"]);
    assert!(error(&args).await.contains("tls.key"), "{}", error(&args).await);
    write(folder.path(), &["tls.key"]);
    assert!(error(&args).await.contains("is not the key of the certificate"), "{}", error(&args).await);
    fs::write(folder.path().join("tls.key"), "hunter2").unwrap();
    let text = error(&args).await;
    assert!(text.contains("has no private key in PEM format") && !text.contains("hunter2"), "{text}");
    write(folder.path(), &BOTH);
    args.metrics_cert_name = "own.crt".into();
    assert!(error(&args).await.contains("own.crt"), "{}", error(&args).await);
}

#[tokio::test]
async fn a_probe_is_answered_though_many_clients_do_not_begin() {
    let served = Served::start(&args(EVERYWHERE), &Env::system()).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(served.addresses[0]).await.unwrap());
    }
    assert_eq!(served.get("/healthz", None).await.0, 200);
    // It replaced the oldest connection, without waiting for a timeout.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_its_handshake_is_closed() {
    let env = Env::simulated(1);
    let served = Served::start(&args(EVERYWHERE), &env).await.unwrap();
    for begun in [&b""[..], &[22, 3, 1]] {
        let before = env.clock.now();
        let mut stream = TcpStream::connect(served.addresses[0]).await.unwrap();
        stream.write_all(begun).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
        assert!(env.clock.now() - before >= Duration::from_secs(10));
    }
}

#[cfg(feature = "clap")]
#[test]
fn the_flags_have_the_names_and_values_of_kubebuilder() {
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        admin: AdminArgs,
    }
    let parse = |flags: &[&str]| {
        Program::try_parse_from(["program"].iter().chain(flags)).map(|program| program.admin)
    };
    let default = parse(&[]).unwrap();
    assert_eq!(format!("{default:?}"), format!("{:?}", AdminArgs::default()));
    for (flags, expected) in [
        (&["--metrics-bind-address=0.0.0.0:8443"][..], true),
        (&["--metrics-bind-address=0.0.0.0:8443", "--metrics-secure=false"], false),
        (&["--metrics-secure"], true),
        (&["--metrics-secure=true"], true),
        (&["--metrics-cert-path=/tls"], true),
        (&["--admin-address=0.0.0.0:8080"], true),
        (&["--metrics-bind-address=0", "--metrics-secure"], false),
    ] {
        assert_eq!(parse(flags).unwrap().is_secure(), expected, "{flags:?}");
    }
    let files = ["--metrics-cert-path=/tls", "--metrics-cert-name=a.crt", "--metrics-cert-key=a.key"];
    let args = parse(&files).unwrap();
    assert_eq!(
        (args.metrics_cert_name.to_str(), args.metrics_cert_key.to_str()),
        (Some("a.crt"), Some("a.key"))
    );
    let probes = parse(&["--health-probe-bind-address=0.0.0.0:8081"]).unwrap().health_probe_bind_address;
    assert_eq!(probes.unwrap().to_string(), "0.0.0.0:8081");
    // A value follows an equals sign, so that a flag of the program may follow this one.
    assert!(parse(&["--metrics-secure", "false"]).is_err() && parse(&["--metrics-secure=maybe"]).is_err());
}
