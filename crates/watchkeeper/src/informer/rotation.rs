//! Informers on a server whose certificates and tokens all change every five minutes, for a day.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response};
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
    tls: TlsAcceptor,
    /// The number of changes of the object, each of which is one more version.
    version: usize,
    /// The tokens of open watches.
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
        let state =
            State { number: 0, rotated, files, tls, version, watches, watches_opened: 0, refusals: 0 };
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

    fn accepts(&self, token: &str) -> bool {
        let number = self.state.lock().number;
        // The next token of the plugin is valid already.
        let valid = [format!("file-{number}"), format!("exec-{number}"), format!("exec-{}", number + 1)];
        valid.iter().any(|valid| token == format!("Bearer {valid}"))
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let tls = self.state.lock().tls.clone();
        // A client that distrusts the server, or is distrusted, tries again.
        let Ok(stream) = tls.accept(stream).await else { return };
        let answer = service_fn(|request| {
            let town = self.clone();
            async move { Ok::<_, Infallible>(town.answer(&request)) }
        });
        let _gone = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    fn answer(self: Arc<Self>, request: &Request<Incoming>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let whole = |text: String| Full::from(text).boxed_unsync();
        let token = request.headers().get(AUTHORIZATION).map(|token| token.to_str().unwrap().to_owned());
        let Some(token) = token.filter(|token| self.accepts(token)) else {
            self.state.lock().refusals += 1;
            return Response::builder().status(401).body(whole(String::new())).unwrap();
        };
        let version = self.state.lock().version;
        let query: BTreeMap<_, _> =
            form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).collect();
        if query.get("watch").is_some_and(|watch| watch == "true") {
            let after = query["resourceVersion"].parse().unwrap();
            let timeout = Duration::from_secs(query["timeoutSeconds"].parse().unwrap());
            return Response::new(self.watch(token, after, timeout));
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
        token: String,
        after: usize,
        timeout: Duration,
    ) -> UnsyncBoxBody<Bytes, Infallible> {
        let id = {
            let mut state = self.state.lock();
            state.watches_opened += 1;
            let id = state.watches_opened;
            state.watches.insert(id, token);
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

    fn run(&self, _: Command) -> io::Result<Output> {
        let (mut number, mut expires) = {
            let state = self.0.state.lock();
            (state.number, state.rotated + PERIOD)
        };
        if self.0.clock.wall() + EARLY > expires {
            (number, expires) = (number + 1, expires + PERIOD);
        }
        let printed = format!("{{status: {{token: exec-{number}, expirationTimestamp: '{expires}'}}}}");
        Ok(Output { status: ExitStatus::from_raw(0), stdout: printed.into_bytes(), stderr: Vec::new() })
    }

    fn has_terminal(&self) -> bool {
        false
    }

    fn ask(&self, _: Config, _: Request<Body>) -> BoxFuture<'static, Result<Response<Bytes>, BoxError>> {
        Box::pin(async { Err("there is no identity provider".into()) })
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
    let plugin = AuthInfo {
        exec: Some(ExecConfig {
            api_version: None,
            command: Some("login".into()),
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
    let programs = [files, plugin].map(|user| start(client(&town, &env, user), &stop));

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
    stop.cancel();
}
