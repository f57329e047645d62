//! What a manager does while caches are out of date, and what its checks say of parts that are dead.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{
    Action, Controller, Manager, ManagerBuilder, ManagerError, ManagerHandle, OnStale, Watch,
};
use watchkeeper::leader::LeaderElection;
use watchkeeper::process::{AdminAddress, Checks};
use watchkeeper::reflector::Cause;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;

use crate::refusing::refusing;

const AFTER: Duration = Duration::from_secs(300);

/// A manager whose ConfigMap controller reads Secrets, the permission for which can be taken, and whose Namespace controller
/// does not.
struct Running {
    env: Env,
    server: ApiServer,
    user: Client,
    is_forbidden: Arc<AtomicBool>,
    handle: ManagerHandle,
    maps: Arc<AtomicUsize>,
    namespaces: Arc<AtomicUsize>,
    ready: Checks,
    stop: CancellationToken,
    run: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    async fn start(build: impl FnOnce(ManagerBuilder) -> ManagerBuilder) -> Self {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let (client, is_forbidden) =
            refusing(&server, &env, |request| request.uri().path().contains("/secrets"));
        let mut manager = build(Manager::builder("tester", &client)).build();
        let (maps, namespaces) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let count = maps.clone();
        Controller::<ConfigMap>::new(&mut manager)
            .owns(Watch::<Secret>::new())
            .reconcile(move |_, _| {
                count.fetch_add(1, SeqCst);
                async { Ok(Action::done()) }
            })
            .unwrap();
        let count = namespaces.clone();
        Controller::<Namespace>::new(&mut manager)
            .reconcile(move |_, _| {
                count.fetch_add(1, SeqCst);
                async { Ok(Action::done()) }
            })
            .unwrap();
        let (handle, ready, stop) =
            (manager.handle(), manager.pages().ready.clone(), CancellationToken::new());
        let run = tokio::spawn(manager.run(stop.clone()));
        handle.wait_until_running().await;
        env.clock.sleep(Duration::from_secs(1)).await;
        let user = Client::from_kube(server.client(), &env);
        Self { env, server, user, is_forbidden, handle, maps, namespaces, ready, stop, run }
    }

    /// Takes the permission to read Secrets.
    fn take_permission(&self) {
        self.is_forbidden.store(true, SeqCst);
        self.server.end_watches();
    }

    /// Makes a ConfigMap and a Namespace; returns whether each was reconciled soon.
    async fn touch(&self, name: &str) -> (bool, bool) {
        let before = (self.maps.load(SeqCst), self.namespaces.load(SeqCst));
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        self.user.api::<ConfigMap>().create(&serde_json::from_value(map).unwrap()).await.unwrap();
        let namespace = json!({"metadata": {"name": name}});
        self.user.api::<Namespace>().create(&serde_json::from_value(namespace).unwrap()).await.unwrap();
        self.env.clock.sleep(Duration::from_secs(1)).await;
        (self.maps.load(SeqCst) > before.0, self.namespaces.load(SeqCst) > before.1)
    }

    async fn pass(&self, time: Duration) {
        self.env.clock.sleep(time).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_cache_is_stale_is_paused_and_others_go_on() {
    let running = Running::start(|builder| builder.on_stale(AFTER, OnStale::Pause)).await;
    running.take_permission();
    running.pass(AFTER - Duration::from_secs(60)).await;
    assert_eq!(running.touch("early").await, (true, true));
    running.pass(Duration::from_secs(70)).await;
    assert_eq!(running.handle.paused(), ["configmap"]);
    assert_eq!(running.touch("late").await, (false, true));
    running.is_forbidden.store(false, SeqCst);
    let before = running.maps.load(SeqCst);
    running.pass(Duration::from_secs(70)).await;
    assert!(running.handle.paused().is_empty() && running.maps.load(SeqCst) > before);
    assert_eq!(running.touch("again").await, (true, true));
    running.stop.cancel();
    running.run.await.unwrap().unwrap();
}

/// The lines of a metric on the page at `address`.
async fn metric(address: SocketAddr, name: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn the_metrics_tell_which_controllers_are_paused_and_which_caches_are_degraded() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let at = AdminAddress::At(address);
    let running = Running::start(|builder| builder.on_stale(AFTER, OnStale::Pause).admin(at, at)).await;
    let paused = async || metric(address, "watchkeeper_controller_paused").await;
    let line = |controller: &str, value: &str| {
        format!("watchkeeper_controller_paused{{controller=\"{controller}\"}} {value}")
    };
    assert_eq!(paused().await, [line("configmap", "0.0"), line("namespace", "0.0")]);
    assert!(metric(address, "informer_degraded_seconds").await.is_empty());
    running.take_permission();
    running.pass(AFTER + Duration::from_secs(10)).await;
    assert_eq!(paused().await, [line("configmap", "1.0"), line("namespace", "0.0")]);
    let degraded = metric(address, "informer_degraded_seconds").await;
    assert!(degraded.len() == 1 && degraded[0].contains("cause=\"no_permission\""), "{degraded:?}");
    running.is_forbidden.store(false, SeqCst);
    running.pass(Duration::from_secs(70)).await;
    assert_eq!(paused().await, [line("configmap", "0.0"), line("namespace", "0.0")]);
    assert!(metric(address, "informer_degraded_seconds").await.is_empty());
    running.stop.cancel();
    running.run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_paused_stops_at_once() {
    let running = Running::start(|builder| builder.on_stale(AFTER, OnStale::Pause)).await;
    running.take_permission();
    running.pass(AFTER + Duration::from_secs(10)).await;
    running.touch("late").await;
    let before = running.env.clock.now();
    running.stop.cancel();
    running.run.await.unwrap().unwrap();
    assert!(running.env.clock.now() - before < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_manager_may_end_when_a_cache_is_stale_and_names_it() {
    let running = Running::start(|builder| builder.on_stale(AFTER, OnStale::Exit)).await;
    let began = running.env.clock.now();
    running.take_permission();
    let error = running.run.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("the cache of secrets has been out of date for 300s: cannot list secrets"),
        "{text}"
    );
    let lasted = running.env.clock.now() - began;
    assert!((AFTER..AFTER + Duration::from_secs(10)).contains(&lasted), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn by_default_controllers_go_on_and_readiness_names_the_kind_and_the_cause() {
    let running = Running::start(|builder| builder).await;
    assert!(running.ready.failing().is_empty());
    running.take_permission();
    running.pass(Duration::from_secs(600)).await;
    assert_eq!((running.touch("late").await, running.handle.paused().len()), ((true, true), 0));
    assert_eq!(running.ready.failing(), ["cache/secrets"]);
    let states = running.handle.caches();
    let secrets = states.iter().find(|state| state.id == "secrets").unwrap();
    let degraded = secrets.degraded.as_ref().unwrap();
    assert_eq!(degraded.cause, Cause::NoPermission);
    let text = degraded.to_string();
    assert!(
        text.starts_with("degraded since 20")
            && text.contains("Z: no permission: cannot list secrets: it is forbidden"),
        "{text}"
    );
    running.is_forbidden.store(false, SeqCst);
    running.pass(Duration::from_secs(70)).await;
    assert!(running.ready.failing().is_empty());
    running.stop.cancel();
    running.run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_the_rest_of_a_program_ends_liveness_names_the_part_that_died() {
    for is_everywhere in [false, true] {
        let error = die_slowly(is_everywhere).await;
        assert_eq!(error.to_string(), "the runnable flaky failed");
    }
}

/// Runs a manager with a part that dies, of the leader or of all replicas, while a reconcile is under way.
async fn die_slowly(is_everywhere: bool) -> ManagerError {
    let env = Env::simulated(1);
    let client = Client::from_kube(ApiServer::new(&env).client(), &env);
    let mut manager = Manager::builder("tester", &client).build();
    Controller::<Namespace>::new(&mut manager)
        .reconcile(|_, cx| async move {
            cx.env().clock.sleep(Duration::from_secs(15)).await;
            Ok(Action::done())
        })
        .unwrap();
    let clock = env.clock.clone();
    let flaky = move |_| async move {
        clock.sleep(Duration::from_secs(5)).await;
        Err::<(), _>(std::io::Error::other("out of luck"))
    };
    match is_everywhere {
        true => manager.add_on_all_replicas("flaky", flaky),
        false => manager.add("flaky", flaky),
    }
    let live = manager.pages().live.clone();
    let (handle, run) = (manager.handle(), tokio::spawn(manager.run(CancellationToken::new())));
    handle.wait_until_running().await;
    assert!(live.failing().is_empty());
    env.clock.sleep(Duration::from_secs(6)).await;
    assert_eq!(live.failing(), ["parts"]);
    assert!(!run.is_finished(), "a reconcile is under way");
    run.await.unwrap().unwrap_err()
}

/// Adds an election to a manager, as a candidate of that name.
fn candidate(manager: ManagerBuilder, client: &Client, name: &str) -> ManagerBuilder {
    let election = LeaderElection::builder(client, "default", "tester").identity(name).build();
    manager.leader_election(election.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_standby_ends_because_of_a_stale_cache_only_after_it_has_taken_over() {
    let env = Env::simulated(1);
    let server = ApiServer::new(&env);
    let user = Client::from_kube(server.client(), &env);
    let (leader, stop) = (Manager::builder("tester", &user), CancellationToken::new());
    let leader = candidate(leader, &user, "leader").build();
    let leads = leader.handle();
    let leader = tokio::spawn(leader.run(stop.clone()));
    leads.wait_until_running().await;

    let (client, is_forbidden) = refusing(&server, &env, |request| request.uri().path().contains("/secrets"));
    let standby = Manager::builder("tester", &client).on_stale(AFTER, OnStale::Exit);
    let mut standby = candidate(standby, &client, "standby").build();
    Controller::<Secret>::new(&mut standby).reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
    let (live, works) = (standby.pages().live.clone(), standby.handle());
    let standby = tokio::spawn(standby.run(CancellationToken::new()));
    env.clock.sleep(Duration::from_secs(5)).await;
    let forbid = |is_now| {
        is_forbidden.store(is_now, SeqCst);
        server.end_watches();
    };
    forbid(true);
    env.clock.sleep(3 * AFTER).await;
    assert!(!standby.is_finished() && live.failing().is_empty(), "{:?}", live.failing());

    forbid(false);
    stop.cancel();
    leader.await.unwrap().unwrap();
    works.wait_until_running().await;
    forbid(true);
    let error = standby.await.unwrap().unwrap_err();
    assert!(matches!(&error, ManagerError::Stale { cache, .. } if cache == "secrets"), "{error}");
    assert_eq!(live.failing(), ["parts"]);
}
