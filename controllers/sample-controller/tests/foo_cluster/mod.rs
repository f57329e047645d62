//! The environment of the end-to-end tests: a server, a controller that runs on it, and an observer.
//!
//! With `WATCHKEEPER_TEST_KUBECONFIG` the server of the tests over a socket is the one which that file names, `WATCHKEEPER_TEST_RESTART`
//! is a command that restarts it, and `WATCHKEEPER_TEST_COMPACT` one that makes it forget its history.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Config;
use kube_client::config::Kubeconfig;
use kube_core::params::Patch;
use sample_controller::api::{self, Foo, FooSpec};
use sample_controller::{Options, Program};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::explain::{ControllerView, ExplainSource, KeyView};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::process::{ClientArgs, Pages};
use watchkeeper::queue::QueueKind;
use watchkeeper::source::Api;
use watchkeeper::wire::Class;
use watchkeeper::{Client, Env, Kind, Object, ObjectName, SharedInformer, SharedInformerFactory};
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening};
use watchkeeper_controllers::garbage_collector;
use watchkeeper_sim::Net;

/// How the controller reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    /// The embedded server, or the one of `WATCHKEEPER_TEST_KUBECONFIG`.
    Socket,
}

/// One controller at a time on a server that others use too: each looks after the Foos of all namespaces.
static CLUSTER: Mutex<()> = Mutex::const_new(());

/// A server, the controller on it, and an observer whose own connection nothing disturbs.
pub(crate) struct FooCluster {
    pub(crate) controller_env: Env,
    admin: Client,
    namespace: String,
    factory: SharedInformerFactory,
    changed: Arc<Notify>,
    explain: Arc<dyn ExplainSource>,
    link: Link,
    stop: CancellationToken,
    controller: JoinHandle<()>,
    collector: JoinHandle<()>,
}

/// The server, and the controller's connection to it, which a test can break.
enum Link {
    InProcess { server: ApiServer, net: Net },
    Loopback { server: ApiServer, options: ListenOptions, listening: Option<Listening> },
    Cluster { _alone: MutexGuard<'static, ()> },
}

impl FooCluster {
    pub(crate) async fn start(transport: Transport, queue: QueueKind) -> Self {
        let env = match transport {
            Transport::InProcess => Env::simulated(1),
            Transport::Socket => Env::system(),
        };
        let controller_env = Env::new(env.clock.clone(), env.generator.fork("controller"));
        let (link, admin, client) = match (transport, std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG")) {
            (Transport::InProcess, _) => Link::in_process(&env, &controller_env),
            (Transport::Socket, None) => Link::loopback(&env, &controller_env).await,
            (Transport::Socket, Some(path)) => Link::cluster(path.into(), &env, &controller_env).await,
        };
        let namespace = format!("foos-{}", &env.generator.uuid()[..8]);
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        admin.api::<Namespace>().create(&object).await.unwrap();
        match admin.api::<CustomResourceDefinition>().create(&api::crd()).await {
            Err(error) if error.class() == Class::AlreadyExists => {}
            created => drop(created.unwrap()),
        }

        // A report is something to look at, too.
        let changed = Arc::new(Notify::new());
        let reported = changed.clone();
        controller_env.reporter.add_hook(move |_| reported.notify_waiters());
        let stop = CancellationToken::new();
        let (token, options) = (stop.clone(), Options { queue, ..Options::default() });
        let mut pages = Pages::default();
        let program = Program::new(&client, &options, &mut pages).unwrap();
        let explain = pages.explain.unwrap();
        let controller = tokio::spawn(async move { program.run(token).await.unwrap() });

        let factory = SharedInformerFactory::builder(&admin).namespace(&namespace).build();
        observe::<Foo>(&factory, &changed);
        observe::<Deployment>(&factory, &changed);
        observe::<Event>(&factory, &changed);
        factory.start(&stop);
        factory.wait_for_sync(&stop).await.unwrap();
        let (theirs, token) = (admin.clone(), stop.clone());
        let collector = tokio::spawn(async move { garbage_collector::run(&theirs, token).await });
        Self {
            controller_env,
            admin,
            namespace,
            factory,
            changed,
            explain,
            link,
            stop,
            controller,
            collector,
        }
    }

    /// What the controller says of a Foo.
    pub(crate) fn explained(&self, name: &str) -> KeyView {
        self.explain.explain("Foo", &self.key(name).to_string()).unwrap().views.remove(0)
    }

    /// What the controller says of itself.
    pub(crate) fn overview(&self) -> ControllerView {
        self.explain.overview().controllers.remove(0)
    }

    /// Waits until what the observer sees is as `wanted`, as long as anything changes.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let patience = Duration::from_secs(300);
        loop {
            let changed = self.changed.notified();
            if wanted(self) {
                return;
            }
            let in_time = self.controller_env.clock.timeout(patience, changed).await;
            assert!(in_time.is_ok(), "not seen, and no change for {patience:?}: {what}");
        }
    }

    /// The controller ends by itself and without errors of its own.
    pub(crate) async fn stop(self) {
        if let Link::Cluster { .. } = self.link {
            self.clean_up().await;
        }
        self.stop.cancel();
        self.controller.await.unwrap();
        self.collector.await.unwrap();
        self.factory.join().await.unwrap();
        if let Link::Loopback { listening: Some(listening), .. } = self.link {
            listening.stop().await;
        }
        assert_eq!(self.controller_env.reporter.panics(), 0);
    }

    /// What is left would be found by the next controller on this server.
    async fn clean_up(&self) {
        let foos = self.seen::<Foo>().indexer().snapshot();
        let deletes = stream::iter(foos.iter().map(Object::key));
        deletes.for_each_concurrent(16, |key| async move { self.foos().delete(&key).await.unwrap() }).await;
    }

    /// Ends all watches, as a server does now and then.
    pub(crate) async fn cut_watches(&self) {
        match &self.link {
            Link::InProcess { server, .. } | Link::Loopback { server, .. } => server.end_watches(),
            Link::Cluster { .. } => run("WATCHKEEPER_TEST_RESTART").await,
        }
    }

    /// Cuts the controller off from the server; a cluster's it does not lose before it is restarted.
    pub(crate) async fn lose_server(&mut self) {
        match &mut self.link {
            Link::InProcess { net, .. } => net.cut_off(),
            Link::Loopback { listening, .. } => listening.take().unwrap().stop().await,
            Link::Cluster { .. } => {}
        }
    }

    /// Lets the controller reach the server again, at the same address; the server has forgotten its history.
    pub(crate) async fn find_server_again(&mut self) {
        match &mut self.link {
            Link::InProcess { server, net } => {
                server.compact_now();
                net.restore();
            }
            Link::Loopback { server, options, listening } => {
                server.compact_now();
                let again = server.listen(options.clone()).await.unwrap();
                assert_eq!(again.address(), options.address);
                *listening = Some(again);
            }
            Link::Cluster { .. } => {
                run("WATCHKEEPER_TEST_COMPACT").await;
                run("WATCHKEEPER_TEST_RESTART").await;
            }
        }
    }

    pub(crate) fn key(&self, name: &str) -> ObjectName {
        ObjectName::namespaced(&self.namespace, name)
    }

    pub(crate) fn foos(&self) -> Api<'_, Foo> {
        self.admin.api()
    }

    pub(crate) fn deployments(&self) -> Api<'_, Deployment> {
        self.admin.api()
    }

    pub(crate) async fn create_foo(&self, name: &str, deployment: &str, replicas: i32) {
        let mut foo =
            Foo::new(name, FooSpec { deployment_name: deployment.into(), replicas: Some(replicas) });
        foo.metadata.namespace = Some(self.namespace.clone());
        self.foos().create(&foo).await.unwrap();
    }

    /// Foos `f0`, `f1` and so on, each with a Deployment of its name.
    pub(crate) async fn create_foos(&self, count: usize) {
        let names = stream::iter((0..count).map(|number| format!("f{number}")));
        names.for_each_concurrent(16, |name| async move { self.create_foo(&name, &name, 1).await }).await;
    }

    pub(crate) async fn scale_foo(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.foos().patch(&self.key(name), &patch).await.unwrap();
    }

    pub(crate) async fn set_available(&self, deployment: &str, replicas: i32) {
        let status = json!({"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        let patch = Patch::Merge(json!({"status": status}));
        self.deployments().patch_status(&self.key(deployment), &patch).await.unwrap();
    }

    pub(crate) fn foo(&self, name: &str) -> Option<Foo> {
        self.seen::<Foo>().lister().get(&self.key(name)).ok().map(|foo| (*foo).clone())
    }

    pub(crate) fn deployment(&self, name: &str) -> Option<Deployment> {
        self.seen::<Deployment>().lister().get(&self.key(name)).ok().map(|deployment| (*deployment).clone())
    }

    pub(crate) fn replicas(&self, deployment: &str) -> Option<i32> {
        self.deployment(deployment)?.spec?.replicas
    }

    pub(crate) fn has_event(&self, foo: &str, event: &str, reason: &str) -> bool {
        let events = self.seen::<Event>().indexer().snapshot();
        events.iter().map(|object| object.get().unwrap()).any(|found| {
            let about = (found.involved_object.kind.as_deref(), found.involved_object.name.as_deref());
            let says = (found.type_.as_deref(), found.reason.as_deref());
            (about, says) == ((Some("Foo"), Some(foo)), (Some(event), Some(reason)))
        })
    }

    fn seen<K: Kind<DynamicType: Default>>(&self) -> SharedInformer<K> {
        self.factory.informer()
    }
}

fn observe<K: Kind<DynamicType: Default>>(factory: &SharedInformerFactory, changed: &Arc<Notify>) {
    let changed = changed.clone();
    let handler = on_change(move |_: Change<'_, K>| changed.notify_waiters());
    factory.informer::<K>().add_handler(handler).unwrap();
}

impl Link {
    fn in_process(env: &Env, controller: &Env) -> (Self, Client, Client) {
        let server = ApiServer::new(env);
        let net = Net::new(&server, &env.clock);
        let client = Client::from_kube(kube_client::Client::new(net.service(), "default"), controller);
        let admin = Client::from_kube(server.client(), env);
        (Self::InProcess { server, net }, admin, client)
    }

    async fn loopback(env: &Env, controller: &Env) -> (Self, Client, Client) {
        let server = ApiServer::new(env);
        let listening = server.listen(ListenOptions::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        config.proxy_url = None;
        let client = Client::from_config(config, controller).unwrap();
        let admin = Client::from_kube(server.client(), env);
        let (address, credentials) = (listening.address(), listening.credentials().cloned());
        let options = ListenOptions { address, credentials, ..ListenOptions::default() };
        (Self::Loopback { server, options, listening: Some(listening) }, admin, client)
    }

    async fn cluster(kubeconfig: PathBuf, env: &Env, controller: &Env) -> (Self, Client, Client) {
        let alone = CLUSTER.lock().await;
        let args = ClientArgs { kubeconfig: Some(kubeconfig), ..ClientArgs::default() };
        let (admin, client) = (args.connect(env).await.unwrap(), args.connect(controller).await.unwrap());
        (Self::Cluster { _alone: alone }, admin, client)
    }
}

/// Runs the command that a variable of the environment names.
async fn run(variable: &str) {
    let command = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"));
    let status = tokio::process::Command::new("sh").args(["-c", &command]).status().await.unwrap();
    assert!(status.success(), "{variable}: {status}");
}
