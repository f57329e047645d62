//! The parts of a program: waiting for caches in process, the admin pages over a loopback socket.
#![cfg(all(feature = "admin", feature = "prometheus"))]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Synced, on_apply, wait_for_sync};
use watchkeeper::process::{AdminAddress, AdminServer, Gate, Pages, metrics};
use watchkeeper::record::{EventBroadcaster, EventType};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::{Env, Informer, Object, SharedInformer};

fn empty_list() -> Reply {
    Reply::body(r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[]}"#)
}

/// A source with an empty list, and the watch that follows it.
fn answering() -> (ScriptedSource, impl Sized) {
    let (source, (watch, feed)) = (ScriptedSource::new(), Reply::live());
    source.on_list(empty_list()).on_watch(watch);
    (source, feed)
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_every_cache_by_name() {
    let env = Env::simulated(1);
    let ((shared, _feed), (unshared, _other_feed)) = (answering(), answering());
    let shared = SharedInformer::<ConfigMap>::builder(shared, &env).build();
    let handler = shared.add_handler(on_apply(|_: &Object<ConfigMap>| {})).unwrap();
    let (_, unshared) = Informer::<ConfigMap>::builder(unshared, &env).build();
    let stop = CancellationToken::new();
    let caches: [(&str, &dyn Synced); 3] =
        [("shared", &shared), ("handler", &handler), ("unshared", &unshared)];
    assert!(wait_for_sync(&caches, &stop).now_or_never().is_none(), "nothing runs yet");
    let test = async {
        wait_for_sync(&caches, &stop).await.unwrap();
        stop.cancel();
        wait_for_sync(&caches, &stop).await.unwrap();
    };
    tokio::join!(shared.run(stop.clone()), unshared.run(stop.clone()), test);
}

#[tokio::test(start_paused = true)]
async fn caches_that_did_not_sync_before_the_stop_are_named() {
    let env = Env::simulated(1);
    let (source, _feed) = answering();
    let good = SharedInformer::<ConfigMap>::builder(source, &env).build();
    let (_, never_run) = Informer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    let stop = CancellationToken::new();
    let test = async {
        let stop_later = async {
            env.clock.sleep(Duration::from_secs(10)).await;
            stop.cancel();
        };
        let caches: [(&str, &dyn Synced); 3] = [("foos", &never_run), ("bars", &good), ("bazs", &never_run)];
        let (result, ()) = tokio::join!(wait_for_sync(&caches, &stop), stop_later);
        result.unwrap_err()
    };
    let (error, ()) = tokio::join!(test, good.run(stop.clone()));
    assert_eq!(error.to_string(), "failed to sync all caches: foos, bazs");
    // One that has stopped without ever having synced is not waited for.
    let stopped = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    stopped.run(stop).await;
    let error = wait_for_sync(&[("quxs", &stopped)], &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.unsynced.iter().map(|cache| cache.name.as_str()).collect::<Vec<_>>(), ["quxs"]);
}

#[tokio::test(start_paused = true)]
async fn what_will_never_sync_is_not_waited_for() {
    let env = Env::simulated(1);
    let shared = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    let add = || shared.add_handler(on_apply(|_: &Object<ConfigMap>| {})).unwrap();
    let (removed, removed_later, kept) = (add(), add(), add());
    let (_, unshared) = Informer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    shared.remove_handler(&removed);
    let (never, stop) = (CancellationToken::new(), CancellationToken::new());
    let unsynced = async |caches: &[(&str, &dyn Synced)]| {
        let waited = env.clock.timeout(Duration::from_secs(60), wait_for_sync(caches, &never)).await;
        waited.expect("waits for ever").unwrap_err().unsynced.len()
    };
    let test = async {
        assert_eq!(unsynced(&[("removed", &removed)]).await, 1);
        let remove = async {
            env.clock.sleep(Duration::from_secs(1)).await;
            shared.remove_handler(&removed_later);
        };
        let later: [(&str, &dyn Synced); 1] = [("later", &removed_later)];
        assert_eq!(tokio::join!(unsynced(&later), remove).0, 1);
        let end = async {
            env.clock.sleep(Duration::from_secs(1)).await;
            stop.cancel();
        };
        let caches: [(&str, &dyn Synced); 2] = [("handler", &kept), ("unshared", &unshared)];
        assert_eq!(tokio::join!(unsynced(&caches), end).0, 2);
        assert_eq!(unsynced(&caches).await, 2);
    };
    tokio::join!(shared.run(stop.clone()), unshared.run(stop.clone()), test);
}

/// The admin pages of a program that is not ready until its gate is opened.
struct AdminPages {
    address: SocketAddr,
    caches: Gate,
    stop: CancellationToken,
    served: JoinHandle<()>,
    env: Env,
}

impl AdminPages {
    async fn new(metrics: Registry, env: Env) -> Self {
        let mut pages = Pages::default();
        pages.metrics = metrics;
        let caches = pages.ready.gate("caches");
        let free = AdminAddress::At(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = AdminServer::bind(free, pages, &env).await.unwrap();
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let served = tokio::spawn(server.run(stop.clone()));
        Self { address, caches, stop, served, env }
    }

    /// The whole answer to a request.
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// The status and body of a page.
    async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.ask(&format!("GET {path}")).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}

#[tokio::test]
async fn health_and_readiness_are_served_with_each_check_by_name() {
    let admin = AdminPages::new(Registry::default(), Env::system()).await;
    let pages = [
        "/healthz",
        "/healthz?verbose",
        "/readyz",
        "/readyz/caches",
        "/readyz/other",
        "/nothing",
        "/metrics/x",
    ];
    let mut answers = Vec::new();
    for page in pages {
        answers.push(admin.get(page).await);
    }
    let codes: Vec<_> = answers.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [200, 200, 500, 500, 404, 404, 404]);
    assert_eq!(answers[1].1, "[+]ping ok\nhealthz check passed\n");
    assert_eq!(answers[2].1, "[-]caches failed: reason withheld\nreadyz check failed\n");
    admin.caches.open();
    assert_eq!(admin.get("/readyz").await, (200, "ok".to_owned()));
    assert_eq!(admin.get("/readyz/").await, (200, "ok".to_owned()));
    assert_eq!(admin.get("/readyz/caches").await, (200, "ok".to_owned()));
    assert!(admin.get("/").await.1.contains("/metrics\n"));
    admin.stop.cancel();
    admin.served.await.unwrap();
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let admin = AdminPages::new(Registry::default(), Env::system()).await;
    let refused = admin.ask("POST /healthz").await.to_lowercase();
    assert!(refused.starts_with("http/1.1 405") && refused.contains("allow: get, head"), "{refused}");
    let head = admin.ask("HEAD /healthz").await.to_lowercase();
    assert!(head.contains("200 ok") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn metrics_are_served_as_open_metrics() {
    let (mut registry, env) = (Registry::default(), Env::system());
    let own: Counter = Counter::default();
    registry.register("my_things", "Things of mine", own.clone());
    metrics::register_reports(&mut registry, &env.reporter);
    let events = EventBroadcaster::new(&env);
    metrics::register_events(&mut registry, &events.recorder("me"));
    own.inc();
    env.reporter.error("events", "x", &std::fmt::Error);
    env.reporter.guard("handler", "x", || std::panic::resume_unwind(Box::new("oh")));
    events.recorder("me").event(&Node::default(), EventType::Normal, "Why", "because");
    let admin = AdminPages::new(registry, env).await;
    let answer = admin.ask("GET /metrics").await;
    assert!(
        answer.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{answer}"
    );
    for line in [
        "my_things_total 1",
        "watchkeeper_handled_errors_total{part=\"events\"} 1",
        "watchkeeper_caught_panics_total{part=\"handler\"} 1",
        "watchkeeper_events_recorded_total 1",
        "watchkeeper_events_dropped_total 1",
        "watchkeeper_events_filtered_total 0",
        "watchkeeper_events_written_total 0",
        "watchkeeper_events_failed_total 0",
        "# EOF",
    ] {
        assert!(answer.lines().any(|found| found == line), "{line} is not in\n{answer}");
    }
}

#[tokio::test]
async fn a_request_that_names_no_path_is_answered() {
    let admin = AdminPages::new(Registry::default(), Env::system()).await;
    assert_eq!((admin.get("a:80").await.0, admin.get("*").await.0), (200, 404));
    assert!(admin.ask("OPTIONS *").await.starts_with("HTTP/1.1 405"));
    assert_eq!(admin.env.reporter.panics(), 0);
}

#[derive(Debug)]
struct Bad;

impl Collector for Bad {
    fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        std::panic::resume_unwind(Box::new("oh"))
    }
}

#[tokio::test]
async fn a_collector_that_panics_does_not_end_the_server() {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Bad));
    let admin = AdminPages::new(registry, Env::system()).await;
    assert_eq!((admin.get("/metrics").await.0, admin.env.reporter.panics()), (500, 1));
    assert_eq!(admin.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_stop_ends_connections_that_are_open() {
    let admin = AdminPages::new(Registry::default(), Env::system()).await;
    let mut idle = TcpStream::connect(admin.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    admin.stop.cancel();
    admin.served.await.unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(TcpStream::connect(admin.address).await.is_err());
}

#[tokio::test]
async fn a_probe_is_answered_though_many_clients_say_nothing() {
    let admin = AdminPages::new(Registry::default(), Env::system()).await;
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(admin.address).await.unwrap());
    }
    assert_eq!(admin.get("/healthz").await.0, 200);
    // It replaced the oldest connection, without waiting for a timeout.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
    assert!(silent[40].read(&mut [0]).now_or_never().is_none());
}

#[tokio::test]
async fn a_probe_is_answered_though_many_clients_do_not_read_their_page() {
    let mut registry = Registry::default();
    // More than a socket takes at once.
    registry.register("long", "x".repeat(4 << 20), Counter::<u64>::default());
    let admin = AdminPages::new(registry, Env::system()).await;
    let probe = async {
        let mut stuck = Vec::new();
        for _ in 0..80 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket.connect(admin.address).await.unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            // The answer has begun, and is read no further.
            stream.read_exact(&mut [0; 12]).await.unwrap();
            stuck.push(stream);
        }
        admin.get("/healthz").await.0
    };
    // If no connection were closed, it would wait forever.
    assert_eq!(admin.env.clock.timeout(Duration::from_secs(120), probe).await.ok(), Some(200));
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_and_none_can_be_chosen() {
    let env = Env::system();
    let admin = AdminPages::new(Registry::default(), env.clone()).await;
    let error = AdminServer::bind(AdminAddress::At(admin.address), Pages::default(), &env).await.unwrap_err();
    let text =
        format!("cannot serve the admin pages at {}: choose another --metrics-bind-address", admin.address);
    assert!(error.to_string().starts_with(&text), "{error}");
    let off = AdminServer::bind(AdminAddress::Off, Pages::default(), &env).await.unwrap();
    assert_eq!(off.address(), None);
    let stop = CancellationToken::new();
    let mut running = Box::pin(off.run(stop.clone()));
    assert!(running.as_mut().now_or_never().is_none());
    stop.cancel();
    running.await;
}

#[test]
fn the_address_is_on_loopback_unless_said_otherwise() {
    assert_eq!(AdminAddress::default().to_string(), "127.0.0.1:8080");
    assert_eq!("0.0.0.0:1".parse(), Ok(AdminAddress::At(SocketAddr::from(([0, 0, 0, 0], 1)))));
    for off in ["off", "0", ""] {
        assert_eq!(off.parse(), Ok(AdminAddress::Off));
    }
    assert_eq!(AdminAddress::Off.to_string(), "off");
    assert!("8080".parse::<AdminAddress>().unwrap_err().contains("127.0.0.1:8080"));
}
