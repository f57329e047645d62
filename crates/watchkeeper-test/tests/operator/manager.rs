//! How a manager starts and ends: in order, and with a cause that names what is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::refusing::refusing;
use crate::website::Website;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret};
use kube_derive::CustomResource;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{
    Action, Controller, Error, IndexKey, Manager, ManagerError, SetupError, Watch,
};
use watchkeeper::process::AdminAddress;
use watchkeeper::record::EventType;
use watchkeeper::report::WithCauses;
use watchkeeper::source::{ByteStream, ListOptions, ListerWatcher, Scope, Selection, WatchOptions};
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, Env, ObjectName};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_test::TestCluster;

fn client() -> Client {
    let env = Env::simulated(1);
    Client::from_kube(ApiServer::new(&env).client(), &env)
}

fn manager(client: &Client) -> Manager {
    Manager::builder("tester", client).sync_timeout(Duration::from_secs(30)).build()
}

/// A controller of ConfigMaps that does nothing.
fn idle(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<ConfigMap>::new(manager).reconcile(|_, _| async { Ok(Action::done()) })
}

fn text(error: &ManagerError) -> String {
    WithCauses(error).to_string()
}

#[tokio::test(start_paused = true)]
async fn it_runs_until_the_stop_and_finishes_what_is_under_way() {
    let client = client();
    let (started, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut manager = manager(&client);
    let (start, finish) = (started.clone(), finished.clone());
    Controller::<Namespace>::new(&mut manager)
        .reconcile(move |_, cx| {
            let (start, finish) = (start.clone(), finish.clone());
            async move {
                start.store(true, SeqCst);
                cx.env().clock.sleep(Duration::from_secs(15)).await;
                finish.store(true, SeqCst);
                Ok(Action::done())
            }
        })
        .unwrap();
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    let run = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    client.env().clock.sleep(Duration::from_secs(1)).await;
    assert!(started.load(SeqCst));
    let before = client.env().clock.now();
    stop.cancel();
    run.await.unwrap().unwrap();
    assert!(finished.load(SeqCst), "a reconcile under way finishes");
    assert_eq!((client.env().clock.now() - before).as_secs(), 14);
    let others = handle.figures()[0].reconciles[0].1;
    assert_eq!(others, 1, "no key was started after the stop");
}

#[tokio::test(start_paused = true)]
async fn events_of_a_reconcile_that_ends_after_the_stop_are_written_before_the_end() {
    let client = client();
    let mut manager = manager(&client);
    Controller::<Namespace>::new(&mut manager)
        .reconcile(|_, cx| async move {
            cx.env().clock.sleep(Duration::from_secs(15)).await;
            cx.event(EventType::Normal, "Finished", "just in time");
            Ok(Action::done())
        })
        .unwrap();
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    let run = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    client.env().clock.sleep(Duration::from_secs(1)).await;
    stop.cancel();
    run.await.unwrap().unwrap();
    let events = client.api::<Event>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
    let reasons: Vec<_> = events.into_parts().0.into_iter().filter_map(|event| event.reason).collect();
    assert_eq!(reasons, ["Finished"]);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_does_not_end_is_given_up_within_the_kubelets_patience() {
    let client = client();
    let mut manager = manager(&client);
    Controller::<Namespace>::new(&mut manager)
        .reconcile(|_, _| async { std::future::pending::<Result<Action, Error>>().await })
        .unwrap();
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    let run = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    client.env().clock.sleep(Duration::from_secs(1)).await;
    let before = client.env().clock.now();
    stop.cancel();
    run.await.unwrap().unwrap();
    assert!(
        (20..28).contains(&(client.env().clock.now() - before).as_secs()),
        "{:?}",
        (client.env().clock.now() - before)
    );
}

/// A source that panics.
struct Panics;

impl ListerWatcher for Panics {
    async fn list(&self, _: &ListOptions) -> Result<ByteStream, ApiError> {
        panic!("the source is broken")
    }

    async fn watch(&self, _: &WatchOptions) -> Result<ByteStream, ApiError> {
        panic!("the source is broken")
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_panics_ends_the_program_by_its_name() {
    let client = client();
    let mut manager = manager(&client);
    idle(&mut manager).unwrap();
    manager.factory().informer_with::<Pod>((), |builder| builder.source(Panics).build());
    let error = manager.run(CancellationToken::new()).await.unwrap_err();
    assert!(text(&error).contains("the informer of pods was ended by a panic"), "{}", text(&error));
    assert!(text(&error).contains("the source is broken"), "{}", text(&error));
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_fails_or_panics_ends_the_program_by_its_name() {
    for panics in [false, true] {
        let client = client();
        let mut manager = manager(&client);
        idle(&mut manager).unwrap();
        manager.add("brief", |_| async { Ok::<_, std::io::Error>(()) });
        manager.add("cleaner", move |_| async move {
            assert!(!panics, "no broom");
            Err(std::io::Error::other("no broom"))
        });
        let error = text(&manager.run(CancellationToken::new()).await.unwrap_err());
        let expected = if panics {
            "the runnable cleaner panicked: no broom"
        } else {
            "the runnable cleaner failed: no broom"
        };
        assert_eq!(error, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_its_definition_is_named_within_the_deadline() {
    let client = client();
    let mut manager = manager(&client);
    Controller::<Website>::new(&mut manager).reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
    let before = client.env().clock.now();
    let error = text(&manager.run(CancellationToken::new()).await.unwrap_err());
    assert_eq!((client.env().clock.now() - before).as_secs(), 30);
    assert!(error.contains("websites") && error.contains("is its CRD installed?"), "{error}");
}

#[tokio::test]
async fn an_admin_port_that_is_in_use_is_named() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let env = Env::system();
    let client = Client::from_kube(ApiServer::new(&env).client(), &env);
    let at = AdminAddress::At(address);
    let mut manager = Manager::builder("tester", &client).admin(at, at).build();
    idle(&mut manager).unwrap();
    let error = text(&manager.run(CancellationToken::new()).await.unwrap_err());
    assert!(error.contains(&address.to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_permission_is_taken_away_is_named_and_work_goes_on() {
    let env = Env::simulated(1);
    let server = ApiServer::new(&env);
    let (client, forbidden) = refusing(&server, &env, |request| request.uri().path().contains("/secrets"));
    let mut manager = manager(&client);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    Controller::<ConfigMap>::new(&mut manager)
        .owns(Watch::<Secret>::new())
        .reconcile(move |_, _| {
            counter.fetch_add(1, SeqCst);
            async { Ok(Action::done()) }
        })
        .unwrap();
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    let run = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    forbidden.store(true, SeqCst);
    server.end_watches();
    client.env().clock.sleep(Duration::from_secs(300)).await;
    let troubles = handle.troubles(Duration::from_secs(120));
    assert!(troubles.len() == 1 && troubles[0].contains("secrets"), "{troubles:?}");
    let before = count.load(SeqCst);
    let map = serde_json::from_value(serde_json::json!({"metadata": {"name": "a", "namespace": "default"}}))
        .unwrap();
    Client::from_kube(server.client(), &env).api::<ConfigMap>().create(&map).await.unwrap();
    client.env().clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(count.load(SeqCst), before + 1, "other kinds go on");
    forbidden.store(false, SeqCst);
    client.env().clock.sleep(Duration::from_secs(300)).await;
    assert!(handle.troubles(Duration::ZERO).is_empty());
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_kind_that_is_not_watched_is_a_terminal_mistake() {
    let env = Env::simulated(1);
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = tries.clone();
    let mut cluster = TestCluster::builder()
        .env(&env)
        .start(|manager| {
            Controller::<ConfigMap>::new(manager).reconcile(move |_, cx| {
                counter.fetch_add(1, SeqCst);
                async move {
                    cx.get::<Secret>("credentials")?;
                    Ok(Action::done())
                }
            })
        })
        .await;
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").await;
    let event =
        cluster.eventually_any::<Event>(|event| event.reason.as_deref() == Some("ProgramError")).await;
    let message = event.message.unwrap();
    assert!(message.contains("Secret is not cached: register it with owns or watches"), "{message}");
    env.clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(tries.load(SeqCst), 1);
    assert_eq!(cluster.operator().mistakes().len(), 1);
    cluster.kill_operator().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_controller_is_said_at_registration() {
    let client = client();
    let done = |_: Arc<ConfigMap>, _| async { Ok(Action::done()) };
    let refused = |build: &dyn Fn(Controller<'_, ConfigMap>) -> Result<(), SetupError>| {
        let mut manager = manager(&client);
        let error = build(Controller::new(&mut manager)).unwrap_err();
        WithCauses(&error).to_string()
    };
    let mut twice = manager(&client);
    idle(&mut twice).unwrap();
    let error = idle(&mut twice).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is a controller \"configmap\" already: give this one another name with Controller::named"
    );
    let error = refused(&|it| it.owns(Watch::<Node>::new()).reconcile(done));
    assert!(error.contains("ConfigMap is namespaced and cannot own Node"), "{error}");
    let error = refused(&|it| it.finalizer("bucket", done).reconcile(done));
    assert!(error.contains("\"bucket\" must be a domain and a name"), "{error}");
    let error = refused(&|it| it.timeout(Duration::ZERO).reconcile(done));
    assert_eq!(error, "controller configmap: the timeout must not be zero");
    let error = refused(&|it| it.workers(0).reconcile(done));
    assert_eq!(error, "controller configmap: the number of workers must not be zero");
    let error = refused(&|it| it.index(&IndexKey::field("x", "data..x")).reconcile(done));
    assert!(error.starts_with("controller configmap: cannot add an index: "), "{error}");
    let error = refused(&|it| it.index(&IndexKey::field("namespace", "data.x")).reconcile(done));
    assert!(error.contains("\"namespace\""), "{error}");
    let error = refused(&|it| it.owns(Watch::<Secret>::new().labels("a b")).reconcile(done));
    assert!(error.contains("cannot watch Secret: cannot read \"a b\""), "{error}");
    let error = refused(&|it| it.owns(Watch::<Secret>::new().namespaces([""; 0])).reconcile(done));
    assert!(error.contains("Secret is watched in no namespace"), "{error}");
    let error = refused(&|it| it.named("My Controller").reconcile(done));
    assert!(error.contains("\"My Controller\" cannot be the name"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn two_managers_live_in_one_process() {
    let client = client();
    let stop = CancellationToken::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let run = |name: &'static str| {
        let (mut manager, order) = (Manager::builder(name, &client).build(), order.clone());
        idle(&mut manager).unwrap();
        manager.add("log", move |stop| async move {
            stop.cancelled().await;
            order.lock().push(name);
            Ok::<_, std::io::Error>(())
        });
        let handle = manager.handle();
        (handle, tokio::spawn(manager.run(stop.clone())))
    };
    let ((first, one), (second, two)) = (run("one"), run("two"));
    tokio::join!(first.wait_until_running(), second.wait_until_running());
    stop.cancel();
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    order.lock().sort_unstable();
    assert_eq!(*order.lock(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn keys_from_a_channel_are_reconciled() {
    let env = Env::simulated(1);
    let (keys, receiver) = tokio::sync::mpsc::channel(4);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let cluster = TestCluster::builder()
        .env(&env)
        .start(|manager| {
            Controller::<ConfigMap>::new(manager)
                .events(receiver)
                .reconcile_deleted(move |key, _| {
                    log.lock().push(key.to_string());
                    async { Ok(Action::done()) }
                })
                .reconcile(|_, _| async { Ok(Action::done()) })
        })
        .await;
    keys.send(ObjectName::namespaced("default", "gone")).await.unwrap();
    env.clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(*seen.lock(), ["default/gone"]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_role_has_the_status_of_a_kind_that_is_reconciled_and_whose_definition_has_one() {
    fn site(manager: &mut Manager) {
        Controller::<Website>::new(manager).reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
    }
    let client = client();
    let has_status = |register: fn(&mut Manager)| {
        let mut manager = manager(&client);
        register(&mut manager);
        manager.role().allows("example.dev", "websites/status", "patch")
    };
    assert!(has_status(|manager| {
        site(manager);
        manager.crd::<Website>();
    }));
    assert!(!has_status(|manager| manager.crd::<Website>()), "nothing reconciles it");
    assert!(!has_status(site), "it is not known whether the kind has a status");
    assert!(has_status(|manager| {
        site(manager);
        manager.role_mut().add("example.dev", "websites/status", "patch");
    }));

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.dev", version = "v1", kind = "Plain", plural = "websites", namespaced)]
    #[kube(crates(kube_core = "watchkeeper::kube_core", k8s_openapi = "watchkeeper::k8s_openapi"))]
    struct PlainSpec {}
    assert!(!has_status(|manager| {
        site(manager);
        manager.crd::<Plain>();
    }));
}
