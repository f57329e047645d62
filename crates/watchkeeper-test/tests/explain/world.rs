//! A manager on the embedded server, on a paused clock, whose keys are explained.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Action, Controller, Error, Manager, ManagerBuilder, ManagerError};
use watchkeeper::explain::{Explain, ExplainSource, Explained, Explanation, ProgramPhase};
use watchkeeper::workqueue::limiter;
use watchkeeper::{
    Client, Env, ObjectName, RateLimitingQueue, ResourceVersion, SharedInformer, SharedInformerFactory,
};
use watchkeeper_apiserver::{ApiServer, Authorization, User};

use crate::net::{Net, Way};

pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) server: ApiServer,
    pub(crate) net: Net,
    /// The user's client, which no fault concerns.
    pub(crate) user: Client,
    /// As whom the program makes its requests, if the server has roles.
    operator: Option<User>,
    pub(crate) explain: Option<Explain>,
    /// Of a program without a manager.
    factory: Option<SharedInformerFactory>,
    stop: CancellationToken,
    run: Option<JoinHandle<Result<(), ManagerError>>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let user = Client::from_kube(server.client(), &env);
        Self {
            env,
            server,
            net: Net::new(),
            user,
            operator: None,
            explain: None,
            factory: None,
            stop: CancellationToken::new(),
            run: None,
        }
    }

    /// Replaces the server by one with roles, where the program may do what these rules permit, and nothing else.
    pub(crate) async fn permit(&mut self, rules: Value) {
        self.server = ApiServer::builder(&self.env).authorization(Authorization::Rbac).build();
        self.user = Client::from_kube(self.server.client_as(User::admin()), &self.env);
        self.operator = Some(User::new("operator"));
        let role = json!({"metadata": {"name": "operator"}, "rules": rules});
        self.user.api::<ClusterRole>().create(&serde_json::from_value(role).unwrap()).await.unwrap();
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "operator"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "operator"}],
        });
        self.user
            .api::<ClusterRoleBinding>()
            .create(&serde_json::from_value(binding).unwrap())
            .await
            .unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        let service = self.server.service();
        let service = match &self.operator {
            Some(user) => service.as_user(user.clone()),
            None => service,
        };
        self.net.client(service, &self.env)
    }

    /// Builds a manager, which is not run.
    pub(crate) fn build(
        &mut self,
        build: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
        register: impl FnOnce(&mut Manager),
    ) -> Manager {
        let mut manager = build(Manager::builder("tester", &self.client())).build();
        register(&mut manager);
        self.explain = Some(manager.explain().clone());
        manager
    }

    /// Starts a manager, and waits a second.
    pub(crate) async fn start_with(
        &mut self,
        build: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
        register: impl FnOnce(&mut Manager),
    ) {
        let manager = self.build(build, register);
        self.run = Some(tokio::spawn(manager.run(self.stop.clone())));
        self.pass(1_000).await;
    }

    pub(crate) async fn start(&mut self, register: impl FnOnce(&mut Manager)) {
        self.start_with(|builder| builder, register).await;
    }

    /// Starts a controller of ConfigMaps, whose runs do what `work` says.
    pub(crate) async fn work(&mut self, work: impl Fn() -> Result<Action, Error> + Send + Sync + 'static) {
        self.start(|manager| {
            let outcome = move |_, _| {
                let outcome = work();
                async { outcome }
            };
            Controller::<ConfigMap>::new(manager).reconcile(outcome).unwrap();
        })
        .await;
    }

    /// Starts an informer of ConfigMaps and a queue without a handler that would add their keys, as in a program of
    /// low-level parts, and waits for the cache.
    pub(crate) async fn low_level(&mut self) -> RateLimitingQueue<ObjectName> {
        self.low_level_with(|_, explained| explained).await
    }

    /// The same with handlers and more to explain.
    pub(crate) async fn low_level_with(
        &mut self,
        with: impl FnOnce(&SharedInformer<ConfigMap>, Explained<ConfigMap>) -> Explained<ConfigMap>,
    ) -> RateLimitingQueue<ObjectName> {
        let queue = self.low_level_unsynced(with);
        if let Some(factory) = &self.factory {
            factory.wait_for_sync(&self.stop).await.unwrap();
        }
        queue
    }

    /// The same without waiting for the cache.
    pub(crate) fn low_level_unsynced(
        &mut self,
        with: impl FnOnce(&SharedInformer<ConfigMap>, Explained<ConfigMap>) -> Explained<ConfigMap>,
    ) -> RateLimitingQueue<ObjectName> {
        let queue = RateLimitingQueue::new("configmap", limiter::default_controller(), &self.env);
        let factory = SharedInformerFactory::builder(&self.client()).build();
        let explain = Explain::new("tester", &self.env);
        explain.informers(&factory);
        let informer = factory.informer::<ConfigMap>();
        explain.add(with(&informer, Explained::new("configmap", &queue, &informer)));
        explain.set_phase(ProgramPhase::Running);
        self.explain = Some(explain);
        factory.start(&self.stop);
        self.factory = Some(factory);
        queue
    }

    /// Returns the version of a ConfigMap.
    pub(crate) async fn version(&self, name: &str) -> ResourceVersion {
        let name = ObjectName::namespaced("default", name);
        let map = self.user.api::<ConfigMap>().get(&name).await.unwrap();
        map.metadata.resource_version.unwrap().as_str().into()
    }

    pub(crate) async fn pass(&self, millis: u64) {
        self.env.clock.sleep(Duration::from_millis(millis)).await;
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Closes the way to the server, and ends what is open.
    pub(crate) fn close(&self, way: Way, paths: &'static str) {
        self.net.set(way, paths);
        self.server.end_watches();
    }

    pub(crate) async fn map(&self, name: &str) {
        self.create_map(json!({"name": name, "namespace": "default"})).await;
    }

    pub(crate) async fn create_map(&self, metadata: Value) {
        let map = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        self.user.api::<ConfigMap>().create(&map).await.unwrap();
    }

    pub(crate) async fn secret(&self, metadata: Value) {
        let secret = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        self.user.api::<Secret>().create(&secret).await.unwrap();
    }

    pub(crate) fn explain(&self, kind: &str, key: &str) -> Explanation {
        self.explain.as_ref().unwrap().explain(kind, key).unwrap()
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        self.net.set(Way::Open, "");
        if let Some(factory) = self.factory.take() {
            factory.join().await.ok();
        }
        if let Some(run) = self.run.take() {
            run.abort();
            run.await.ok();
        }
    }
}
