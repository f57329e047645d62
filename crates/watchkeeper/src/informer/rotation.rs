//! Informers on a server whose certificates and tokens all change every five minutes, for a day.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::client::Body;
use kube_client::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::{Change, SharedInformer, SharedInformerFactory, on_change};
use crate::clock::Clock;
use crate::env::Env;
use crate::object::ObjectName;
use crate::reflector::ListMode;
use crate::source::{Client, Outside, Route, Socket, Tls};

/// The time between two rotations.
const PERIOD: Duration = Duration::from_secs(300);
/// The time between two changes of the object.
const TICK: Duration = Duration::from_secs(30);
/// When a simulated clock starts, in seconds since the epoch.
const START: u64 = 1_767_225_600;
/// A plugin gives the next token so long before the current one ends.
const EARLY: Duration = Duration::from_secs(90);

/// A server of one object, and the machine of its clients: their files and their plugin.
struct Town {
    clock: Clock,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// The number of the rotation, and when it was.
    number: u32,
    rotated: Timestamp,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// The number of refresh tokens issued so far: only the last one is accepted, and only once.
    refreshed: u32,
    tls: TlsAcceptor,
    /// The number of changes of the object, each of which is one more version.
    version: usize,
    /// Who has opened the open watches: see `accepts`.
    watches: BTreeMap<u32, String>,
    watches_opened: u32,
    refusals: u32,
}

/// An open watch.
struct Open(Arc<Town>, u32);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state.lock().watches.remove(&self.1);
    }
}

/// A new authority, and the certificate and key that it issues for `name`.
fn issue(name: &str) -> (rcgen::Certificate, rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (authority, certificate, key)
}

/// Everything that changes in the rotation `number`: TLS of the server, and the files of its clients.
fn issue_all(number: u32) -> (TlsAcceptor, BTreeMap<PathBuf, Vec<u8>>) {
    let (authority, certificate, key) = issue("api.test");
    let (client_authority, client_certificate, client_key) = issue("me");
    let mut roots = RootCertStore::empty();
    roots.add(client_authority.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    let files = [
        ("/ca", authority.pem()),
        ("/crt", client_certificate.pem()),
        ("/key", client_key.serialize_pem()),
        ("/token", format!("file-{number}\n")),
    ];
    let files = files.map(|(file, text)| (PathBuf::from(file), text.into_bytes()));
    (TlsAcceptor::from(Arc::new(tls)), files.into())
}

impl Town {
    fn new(clock: &Clock) -> Self {
        let (tls, files) = issue_all(0);
        let rotated = clock.wall();
        let (watches, version) = (BTreeMap::new(), 1);
        let state = State {
            number: 0,
            rotated,
            files,
            refreshed: 0,
            tls,
            version,
            watches,
            watches_opened: 0,
            refusals: 0,
        };
        Self { clock: clock.clone(), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Replaces everything. Nothing old is accepted from now on, except on connections that are open.
    fn rotate(&self) {
        let mut state = self.state.lock();
        state.number += 1;
        state.rotated = self.clock.wall();
        (state.tls, state.files) = issue_all(state.number);
    }

    fn change(&self) {
        self.state.lock().version += 1;
        self.changed.notify_waiters();
    }

    /// Returns the number and the end of the token that is issued now: the next one is issued, and valid, a while before.
    fn issued(&self) -> (u32, Timestamp) {
        let state = self.state.lock();
        let (number, end) = (state.number, state.rotated + PERIOD);
        if self.clock.wall() + EARLY > end { (number + 1, end + PERIOD) } else { (number, end) }
    }

    /// Returns whether `who`, a header or `certificate-N`, is of this rotation.
    fn accepts(&self, who: &str) -> bool {
        let number = self.state.lock().number;
        let mut valid = vec![format!("certificate-{number}"), format!("Bearer file-{number}")];
        for number in [number, number + 1] {
            valid.extend([format!("Bearer exec-{number}"), format!("Bearer {}", jwt(number))]);
        }
        valid.iter().any(|valid| who == valid)
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let (tls, number) = {
            let state = self.state.lock();
            (state.tls.clone(), state.number)
        };
        // A client that distrusts the server, or is distrusted, tries again.
        let Ok(stream) = tls.accept(stream).await else { return };
        let is_known = stream.get_ref().1.peer_certificates().is_some();
        let certificate = is_known.then(|| format!("certificate-{number}"));
        let answer = service_fn(|request| {
            let (town, certificate) = (self.clone(), certificate.clone());
            async move { Ok::<_, Infallible>(town.answer(&request, certificate)) }
        });
        let _gone = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    /// Answers a client that has proved its certificate, if it has one, with the connection.
    fn answer(
        self: Arc<Self>,
        request: &Request<Incoming>,
        certificate: Option<String>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let whole = |text: String| Full::from(text).boxed_unsync();
        let token = request.headers().get(AUTHORIZATION).map(|token| token.to_str().unwrap().to_owned());
        let Some(who) = token.or(certificate).filter(|who| self.accepts(who)) else {
            self.state.lock().refusals += 1;
            return Response::builder().status(401).body(whole(String::new())).unwrap();
        };
        let version = self.state.lock().version;
        let query: BTreeMap<_, _> =
            form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).collect();
        if query.get("watch").is_some_and(|watch| watch == "true") {
            let after = query["resourceVersion"].parse().unwrap();
            let timeout = Duration::from_secs(query["timeoutSeconds"].parse().unwrap());
            return Response::new(self.watch(who, after, timeout));
        }
        if request.uri().path().ends_with("/tick") {
            return Response::new(whole(object(version)));
        }
        let list = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
            object(version)
        );
        Response::new(whole(list))
    }

    /// Returns the events after a version, until the time is up.
    fn watch(
        self: Arc<Self>,
        who: String,
        after: usize,
        timeout: Duration,
    ) -> UnsyncBoxBody<Bytes, Infallible> {
        let id = {
            let mut state = self.state.lock();
            state.watches_opened += 1;
            let id = state.watches_opened;
            state.watches.insert(id, who);
            id
        };
        let end = self.clock.now() + timeout;
        let events = futures::stream::unfold((Open(self, id), after), move |(open, after)| async move {
            let town = open.0.clone();
            loop {
                let changed = town.changed.notified();
                if town.state.lock().version > after {
                    let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", object(after + 1));
                    return Some((Ok(Frame::data(Bytes::from(event))), (open, after + 1)));
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = town.clock.sleep_until(end) => return None,
                }
            }
        });
        StreamBody::new(events.boxed()).boxed_unsync()
    }
}

/// The ID token of a rotation.
fn jwt(number: u32) -> String {
    let expires = START + u64::from(number + 1) * PERIOD.as_secs();
    format!("h.{}.s", BASE64_URL_SAFE_NO_PAD.encode(json!({"exp": expires}).to_string()))
}

fn object(version: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"tick","namespace":"default","uid":"u","resourceVersion":"{version}"}}}}"#
    )
}

/// What the clients of a town see of it.
struct Resident(Arc<Town>);

impl Outside for Resident {
    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        self.0.state.lock().files.get(file).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn run(&self, program: Command) -> BoxFuture<'static, io::Result<Output>> {
        let (number, expires) = self.0.issued();
        let status = match program.get_program().to_str() {
            Some("login") => json!({"token": format!("exec-{number}"), "expirationTimestamp": expires}),
            Some("login-for-good") => json!({"token": format!("exec-{}", self.0.state.lock().number)}),
            _ => {
                let state = self.0.state.lock();
                let file = |name: &str| String::from_utf8(state.files[Path::new(name)].clone()).unwrap();
                json!({
                    "clientCertificateData": file("/crt"),
                    "clientKeyData": file("/key"),
                    "expirationTimestamp": state.rotated + PERIOD,
                })
            }
        };
        let version = "client.authentication.k8s.io/v1";
        let printed = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
        let stdout = printed.to_string().into_bytes();
        Box::pin(async { Ok(Output { status: ExitStatus::from_raw(0), stdout, stderr: Vec::new() }) })
    }

    fn has_terminal(&self) -> bool {
        false
    }

    fn ask(
        &self,
        _: Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, BoxError>> {
        let town = self.0.clone();
        Box::pin(async move {
            if request.method() == Method::GET {
                let found = json!({"token_endpoint": "https://idp.test/token"});
                return Ok(Response::new(Bytes::from(found.to_string())));
            }
            let form = request.into_body().collect().await?.to_bytes();
            let (number, _) = town.issued();
            let mut state = town.state.lock();
            let last = ("refresh_token".into(), format!("refresh-{}", state.refreshed).into());
            if !form_urlencoded::parse(&form).any(|pair| pair == last) {
                return Ok(Response::builder().status(400).body(Bytes::new())?);
            }
            state.refreshed += 1;
            let refresh = format!("refresh-{}", state.refreshed);
            let issued = json!({"id_token": jwt(number), "refresh_token": refresh});
            Ok(Response::new(Bytes::from(issued.to_string())))
        })
    }
}

impl Route for Resident {
    fn reach(&self, _: &Tls) -> BoxFuture<'static, Result<Socket, BoxError>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(self.0.clone().serve(theirs));
        Box::pin(async { Ok(Box::new(ours) as Socket) })
    }
}

fn client(town: &Arc<Town>, env: &Env, user: AuthInfo) -> Client {
    let mut config = Config::new("https://api.test".parse().unwrap());
    config.root_cert_file = Some("/ca".into());
    config.auth_info = user;
    let resident = Arc::new(Resident(town.clone()));
    Client::simulated(config, env, resident.clone(), resident).unwrap()
}

/// An informer and a worker that reads each changed object from the server.
struct Program {
    factory: SharedInformerFactory,
    informer: SharedInformer<ConfigMap>,
    seen: Arc<Mutex<Vec<usize>>>,
    failures: Arc<Mutex<Vec<String>>>,
    client: Client,
}

fn start(client: Client, stop: &CancellationToken) -> Program {
    let factory = SharedInformerFactory::builder(&client).list_mode(ListMode::Paged).build();
    let informer = factory.informer::<ConfigMap>();
    let (seen, failures) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::<Mutex<Vec<String>>>::default());
    let (queue, mut work) = mpsc::unbounded_channel();
    let versions = seen.clone();
    let heard = move |change: Change<'_, ConfigMap>| {
        let object = change.last_known().unwrap();
        versions.lock().push(object.version().to_string().parse().unwrap());
        queue.send(()).unwrap();
    };
    informer.add_handler(on_change(heard)).unwrap();
    let (reader, failed) = (client.clone(), failures.clone());
    tokio::spawn(async move {
        while work.recv().await.is_some() {
            let tick = ObjectName::namespaced("default", "tick");
            if let Err(error) = reader.api::<ConfigMap>().get(&tick).await {
                failed.lock().push(error.to_string());
            }
        }
    });
    factory.start(stop);
    Program { factory, informer, seen, failures, client }
}

#[tokio::test(start_paused = true)]
async fn through_a_day_of_rotations_no_event_is_lost_and_nothing_is_listed_again() {
    let env = Env::simulated(1);
    let town = Arc::new(Town::new(&env.clock));
    let stop = CancellationToken::new();
    let (certificate, key) = (Some("/crt".to_owned()), Some("/key".to_owned()));
    let files = AuthInfo {
        client_certificate: certificate,
        client_key: key,
        token_file: Some("/token".into()),
        ..AuthInfo::default()
    };
    let plugin = |program: &str| AuthInfo {
        exec: Some(ExecConfig {
            api_version: None,
            command: Some(program.into()),
            args: None,
            env: None,
            drop_env: None,
            install_hint: None,
            interactive_mode: Some(ExecInteractiveMode::Never),
            provide_cluster_info: false,
            cluster: None,
            other: BTreeMap::new(),
        }),
        ..AuthInfo::default()
    };
    let settings = json!({
        "idp-issuer-url": "https://idp.test",
        "client-id": "me",
        "id-token": jwt(0),
        "refresh-token": "refresh-0",
    });
    let provider = serde_json::from_value(json!({"name": "oidc", "config": settings})).unwrap();
    let oidc = AuthInfo { auth_provider: Some(provider), ..AuthInfo::default() };
    let users = [files, plugin("login"), plugin("login-for-good"), plugin("login-with-certificate"), oidc];
    let programs = users.map(|user| start(client(&town, &env, user), &stop));

    // Files are read every 30 s from the start: not at the moment of a rotation, but after what was refused.
    env.clock.sleep(TICK / 4).await;
    let ticks_per_period = PERIOD.as_secs() / TICK.as_secs();
    let ticks = 24 * 3600 / TICK.as_secs();
    for tick in 1..=ticks {
        env.clock.sleep(TICK).await;
        town.change();
        if tick % ticks_per_period == 0 {
            town.rotate();
        }
        // A while after each rotation, all watches have moved.
        if tick > ticks_per_period && tick % ticks_per_period == 2 {
            let watches: Vec<_> = town.state.lock().watches.values().cloned().collect();
            assert_eq!(watches.len(), programs.len(), "{watches:?}");
            assert!(watches.iter().all(|token| town.accepts(token)), "{watches:?}");
        }
    }
    env.clock.sleep(TICK / 2).await;

    let rotations = 24 * 3600 / PERIOD.as_secs();
    for program in programs {
        let versions: Vec<_> = (1..=1 + usize::try_from(ticks).unwrap()).collect();
        assert_eq!(*program.seen.lock(), versions, "every version once, in order");
        assert_eq!(program.failures.lock()[..], [""; 0]);
        let health = program.informer.health();
        assert_eq!((health.lists, health.degraded), (1, None));
        let status = program.client.credentials().unwrap();
        assert!(status.reloads >= rotations && status.failures == 0, "{status:?}");
        drop(program.factory);
    }
    assert!(town.state.lock().refusals > 0, "something was refused, and tried again");
    assert_eq!(u64::from(town.state.lock().refreshed), rotations, "no refresh token was lost or wasted");
    stop.cancel();
}
