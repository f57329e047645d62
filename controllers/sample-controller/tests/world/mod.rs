//! What do the end-to-end tests look at? A server, a controller that runs on it, and an observer beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::config::Kubeconfig;
use kube_client::{Client, Config};
use kube_core::params::Patch;
use sample_controller::Options;
use sample_controller::api::{self, Foo, FooSpec};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, QueueKind, on_change};
use watchkeeper::source::Resources;
use watchkeeper::{Clients, Env, Kind, ObjectName, SharedInformer, SharedInformerFactory};
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening, collect_garbage};
use watchkeeper_sim::{Net, Trace};

/// How the controller reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    Loopback,
}

/// A server, the controller on it, and an observer whose own connection nothing disturbs.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) controller_env: Env,
    admin: Clients,
    factory: SharedInformerFactory,
    changed: Arc<Notify>,
    link: Link,
    stop: CancellationToken,
    controller: JoinHandle<()>,
    collector: JoinHandle<()>,
}

/// The controller's connection, which a test can break.
enum Link {
    InProcess(Net),
    Loopback { address: SocketAddr, options: ListenOptions, listening: Option<Listening> },
}

impl World {
    pub(crate) async fn start(transport: Transport, queue: QueueKind) -> Self {
        let env = match transport {
            Transport::InProcess => Env::simulated(1),
            Transport::Loopback => Env::system(),
        };
        let server = ApiServer::new(&env);
        let admin = Clients::from_client(server.client(), &env);
        admin.requests().of::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();

        let controller_env = Env::new(env.clock.clone(), env.generator.fork("controller"));
        // A report is something to look at, too.
        let changed = Arc::new(Notify::new());
        let reported = changed.clone();
        controller_env.reporter.add_hook(move |_| reported.notify_waiters());
        let (link, clients) = match transport {
            Transport::InProcess => {
                let net = Net::new(&server, &env.clock, env.generator.fork("net"), &Trace::new(&env.clock));
                let client = Client::new(net.service(), "default");
                (Link::InProcess(net), Clients::from_client(client, &controller_env))
            }
            Transport::Loopback => {
                let options = ListenOptions::default();
                let listening = server.listen(options.clone()).await.unwrap();
                let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
                let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
                let clients = Clients::from_config(config, &controller_env).unwrap();
                let credentials = listening.credentials().cloned();
                let address = listening.address();
                let options = ListenOptions { address, credentials, ..options };
                (Link::Loopback { address, options, listening: Some(listening) }, clients)
            }
        };
        let stop = CancellationToken::new();
        let (token, options) = (stop.clone(), Options { queue, ..Options::default() });
        let controller =
            tokio::spawn(async move { sample_controller::run(&clients, &options, &token).await.unwrap() });

        let factory = SharedInformerFactory::builder(&admin).build();
        observe::<Foo>(&factory, &changed);
        observe::<Deployment>(&factory, &changed);
        observe::<Event>(&factory, &changed);
        factory.start(&stop);
        factory.wait_for_sync(&stop).await.unwrap();
        let (theirs, token) = (admin.clone(), stop.clone());
        let collector = tokio::spawn(async move { collect_garbage(&theirs, &token).await });
        Self { server, controller_env, admin, factory, changed, link, stop, controller, collector }
    }

    /// Waits until what the observer sees is as `wanted`.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let seen = async {
            loop {
                let changed = self.changed.notified();
                if wanted(self) {
                    return;
                }
                changed.await;
            }
        };
        let patience = Duration::from_secs(60);
        let in_time = self.controller_env.clock.timeout(patience, seen).await;
        assert!(in_time.is_ok(), "not seen within {patience:?}: {what}");
    }

    /// The controller ends by itself and without errors of its own.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.controller.await.unwrap();
        self.collector.await.unwrap();
        self.factory.shut_down().await;
        if let Link::Loopback { listening: Some(listening), .. } = self.link {
            listening.stop().await;
        }
        assert_eq!(self.controller_env.reporter.panics(), 0);
    }

    /// Cuts the controller off from the server.
    pub(crate) async fn pause_transport(&mut self) {
        match &mut self.link {
            Link::InProcess(net) => net.cut_off(),
            Link::Loopback { listening, .. } => listening.take().unwrap().stop().await,
        }
    }

    /// Lets the controller reach the server again, at the same address.
    pub(crate) async fn resume_transport(&mut self) {
        match &mut self.link {
            Link::InProcess(net) => net.restore(),
            Link::Loopback { address, options, listening } => {
                let again = self.server.listen(options.clone()).await.unwrap();
                assert_eq!(again.address(), *address);
                *listening = Some(again);
            }
        }
    }

    pub(crate) fn key(&self, name: &str) -> ObjectName {
        ObjectName::namespaced("default", name)
    }

    pub(crate) fn foos(&self) -> Resources<'_, Foo> {
        self.admin.requests().of()
    }

    pub(crate) fn deployments(&self) -> Resources<'_, Deployment> {
        self.admin.requests().of()
    }

    pub(crate) async fn create_foo(&self, name: &str, deployment: &str, replicas: i32) {
        let mut foo =
            Foo::new(name, FooSpec { deployment_name: deployment.into(), replicas: Some(replicas) });
        foo.metadata.namespace = Some("default".into());
        self.foos().create(&foo).await.unwrap();
    }

    pub(crate) async fn scale_foo(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.foos().patch(&self.key(name), &patch).await.unwrap();
    }

    pub(crate) async fn set_available(&self, deployment: &str, replicas: i32) {
        let patch = Patch::Merge(json!({"status": {
            "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}}));
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
