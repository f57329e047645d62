//! A cluster for tests: the embedded server, its built-in controllers, and the operator under test.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Manager, ManagerError, ManagerHandle, SetupError};
use watchkeeper::informer::{Change, SharedInformer, SharedInformerFactory, on_change};
use watchkeeper::source::Selection;
use watchkeeper::store::Snapshot;
use watchkeeper::{Client, Env, Kind, Object, ObjectName};
use watchkeeper_apiserver::{Admission, ApiServer, Authorization, User};
#[cfg(feature = "workloads")]
use watchkeeper_controllers::{cluster, service_account};
use watchkeeper_controllers::{garbage_collector, namespace_controller};

use crate::manifest;
use crate::permissions::Permissions;

/// How long [`TestCluster::eventually`] waits by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// An embedded API server with its built-in controllers, and an operator on it; all in this process.
///
/// Its methods panic, with what a reader needs to know, where a test has failed. When it is dropped, everything ends.
///
/// On a paused clock (`#[tokio::test(start_paused = true)]` and [`TestClusterBuilder::env`] with [`Env::simulated`]) time passes only
/// while everything waits, so hours take no time.
#[derive(Debug)]
pub struct TestCluster {
    server: ApiServer,
    client: Client,
    /// The operator's user; `None` if it may do everything.
    user: Option<User>,
    permissions: Permissions,
    patience: Duration,
    _plane: Plane,
    operator: Option<Operator>,
}

/// The built-in controllers.
#[derive(Debug)]
struct Plane {
    _stop: tokio_util::sync::DropGuard,
}

/// An operator that runs.
#[derive(Debug)]
struct Operator {
    stop: CancellationToken,
    handle: ManagerHandle,
    run: JoinHandle<Result<(), ManagerError>>,
    ended: CancellationToken,
}

/// Settings of a [`TestCluster`].
#[derive(Clone, Debug)]
#[must_use = "a cluster is started with start"]
pub struct TestClusterBuilder {
    env: Env,
    manifests: Vec<String>,
    patience: Duration,
    #[cfg(feature = "workloads")]
    nodes: usize,
    operator: Option<User>,
    roles: Vec<String>,
    admission: Admission,
}

impl TestClusterBuilder {
    /// Takes time and randomness from `env`; the system's by default.
    pub fn env(mut self, env: &Env) -> Self {
        self.env = env.clone();
        self
    }

    /// Applies the objects of a YAML text, such as CRDs, before the operator starts.
    pub fn manifest(mut self, yaml: &str) -> Self {
        self.manifests.push(yaml.to_owned());
        self
    }

    /// Waits so long for what should happen eventually; 30 s by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs the controllers of workloads, a scheduler, and so many fake nodes on which Pods pretend to run.
    ///
    /// Without it, objects stay as they are written, and the test plays these parts itself. The garbage collector and the
    /// namespace controller run in any case.
    #[cfg(feature = "workloads")]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Runs the operator as `user`, with RBAC: it may do what roles allow, and is refused anything else as by a real cluster.
    ///
    /// The roles come from [`role`](Self::role), or are applied by the test. Without either method, the operator may do everything.
    pub fn as_user(mut self, user: User) -> Self {
        self.operator = Some(user);
        self
    }

    /// Runs the operator under the Roles and ClusterRoles of a YAML text, such as the manifest it is deployed with.
    ///
    /// Each is applied and bound to the operator's user: the one of [`as_user`](Self::as_user), or else the service account `operator` of the namespace
    /// `default`. A ClusterRole is bound in the whole cluster, a Role in its namespace. Other objects of the text are ignored.
    ///
    /// ```
    /// use watchkeeper_test::TestCluster;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let role = "
    /// apiVersion: rbac.authorization.k8s.io/v1
    /// kind: ClusterRole
    /// metadata: {name: operator}
    /// rules:
    /// - {apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}
    /// ";
    /// let cluster = TestCluster::builder().role(role).without_operator().await;
    /// let client = cluster.recorded_client();
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::ObjectName;
    /// let name = ObjectName::namespaced("default", "a");
    /// assert!(client.api::<ConfigMap>().get_opt(&name).await.unwrap().is_none());
    /// let error = client.api::<Secret>().get_opt(&name).await.unwrap_err();
    /// assert!(error.to_string().contains("cannot get resource \"secrets\""));
    /// # }
    /// ```
    pub fn role(mut self, yaml: &str) -> Self {
        self.roles.push(yaml.to_owned());
        self
    }

    /// Lets these admission plugins complete or refuse what is written; none by default.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Starts the cluster, and the operator that `register` registers.
    ///
    /// # Panics
    ///
    /// If the operator cannot be registered.
    pub async fn start(self, register: impl FnOnce(&mut Manager) -> Result<(), SetupError>) -> TestCluster {
        let mut cluster = self.without_operator().await;
        cluster.start_operator(register).await;
        cluster
    }

    /// Starts the cluster without an operator.
    pub async fn without_operator(self) -> TestCluster {
        let Self { env, manifests, patience, operator: user, roles, admission, .. } = self;
        let has_user = user.is_some() || !roles.is_empty();
        let mode = if has_user { Authorization::Rbac } else { Authorization::AlwaysAllow };
        let user = user.or_else(|| has_user.then(|| User::service_account("default", "operator")));
        #[cfg(feature = "workloads")]
        let has_accounts = admission.names().any(|name| name == "ServiceAccount");
        let server = ApiServer::builder(&env).authorization(mode).admission(admission).build();
        let client = Client::from_kube(server.client(), &env);
        let stop = CancellationToken::new();
        let (plane, token) = (client.clone(), stop.clone());
        tokio::spawn(async move {
            let collector = garbage_collector::run(&plane, token.clone());
            tokio::join!(collector, namespace_controller::run(&plane, token.clone()))
        });
        #[cfg(feature = "workloads")]
        if self.nodes > 0 {
            run_workloads(self.nodes, has_accounts, &client, &stop);
        }
        let cluster = TestCluster {
            server,
            client,
            user,
            permissions: Permissions::default(),
            patience,
            _plane: Plane { _stop: stop.drop_guard() },
            operator: None,
        };
        for yaml in &manifests {
            cluster.apply(yaml).await;
        }
        for yaml in &roles {
            cluster.grant(yaml).await;
        }
        cluster
    }
}

#[cfg(feature = "workloads")]
fn run_workloads(nodes: usize, has_accounts: bool, client: &Client, stop: &CancellationToken) {
    let (client, stop) = (client.clone(), stop.clone());
    let mut workloads = cluster::Options::default();
    workloads.nodes = nodes;
    let mut identity = service_account::Options::default();
    identity.accounts = has_accounts;
    tokio::spawn(async move {
        let workloads = cluster::run(&client, &workloads, stop.clone());
        tokio::join!(workloads, service_account::run(&client, &identity, stop.clone()))
    });
}

impl TestCluster {
    /// Starts a cluster on the real clock, and the operator that `register` registers.
    ///
    /// # Panics
    ///
    /// If the operator cannot be registered.
    pub async fn start(register: impl FnOnce(&mut Manager) -> Result<(), SetupError>) -> Self {
        Self::builder().start(register).await
    }

    /// A cluster with other settings.
    pub fn builder() -> TestClusterBuilder {
        TestClusterBuilder {
            env: Env::system(),
            manifests: Vec::new(),
            patience: PATIENCE,
            #[cfg(feature = "workloads")]
            nodes: 0,
            operator: None,
            roles: Vec::new(),
            admission: Admission::none(),
        }
    }

    /// A client of the cluster, beside the operator's.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A client for a program without a [`Manager`]: what its requests need counts as [needed](Self::permissions).
    pub fn recorded_client(&self) -> Client {
        let service = match &self.user {
            Some(user) => self.server.service().as_user(user.clone()),
            None => self.server.service(),
        };
        let kube = kube_client::Client::new(self.permissions.record(service), "default");
        Client::from_kube(kube, self.client.env())
    }

    /// The embedded server.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// The permissions that the operator needs: those that it declares, and those that it has used so far.
    pub fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// The operator, to ask what it does.
    ///
    /// # Panics
    ///
    /// If no operator runs.
    #[track_caller]
    pub fn operator(&self) -> &ManagerHandle {
        match &self.operator {
            Some(operator) => &operator.handle,
            None => panic!("no operator runs: it was stopped, or never started"),
        }
    }

    /// Starts an operator, where none runs, and waits until its caches have synced and its controllers have started.
    ///
    /// # Panics
    ///
    /// If one runs, or the operator cannot be registered or started.
    pub async fn start_operator(&mut self, register: impl FnOnce(&mut Manager) -> Result<(), SetupError>) {
        assert!(self.operator.is_none(), "an operator runs already: stop it first");
        let client = self.recorded_client().program("operator", "test");
        let mut manager = Manager::builder("operator", &client).build();
        if let Err(error) = register(&mut manager) {
            panic!("the operator cannot be registered: {}", watchkeeper::report::WithCauses(&error));
        }
        self.permissions.declare(&manager.role());
        let (handle, stop) = (manager.handle(), CancellationToken::new());
        let ended = CancellationToken::new();
        let (token, end) = (stop.clone(), ended.clone());
        let run = tokio::spawn(async move {
            let _end = end.drop_guard();
            manager.run(token).await
        });
        let running = handle.clone();
        self.operator = Some(Operator { stop, handle, run, ended });
        let is_running = tokio::select! {
            biased;
            () = running.wait_until_running() => true,
            () = self.operator_ended() => false,
        };
        if !is_running {
            self.stop_operator().await;
        }
    }

    /// Stops the operator gracefully; the cluster goes on.
    ///
    /// # Panics
    ///
    /// If the operator has failed, or has read what it does not watch.
    pub async fn stop_operator(&mut self) {
        let Some(operator) = self.operator.take() else { return };
        operator.stop.cancel();
        let mistakes = operator.handle.mistakes();
        match operator.run.await {
            Ok(Ok(())) => assert!(mistakes.is_empty(), "the operator is wrong: {}", mistakes.join("; ")),
            Ok(Err(error)) => panic!("the operator failed: {}", watchkeeper::report::WithCauses(&error)),
            Err(error) => panic!("the operator panicked: {error}"),
        }
    }

    /// Ends the operator at once, as a crash does; the cluster goes on.
    pub async fn kill_operator(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.run.abort();
            let _aborted = operator.run.await;
        }
    }

    /// Stops the operator gracefully, and the cluster.
    ///
    /// # Panics
    ///
    /// As [`stop_operator`](Self::stop_operator).
    pub async fn stop(mut self) {
        self.stop_operator().await;
    }

    /// Applies the objects of a YAML text, as `kubectl apply --server-side` does. Objects without a namespace go to `default`. After a
    /// CRD, its kind is served.
    ///
    /// # Panics
    ///
    /// If the server refuses an object.
    pub async fn apply(&self, yaml: &str) {
        // One after the other: a kind is there only after its definition.
        let documents = yaml.split("\n---").filter(|document| !document.trim().is_empty());
        for document in documents {
            let objects = manifest::read(&self.client, document).await;
            for object in
                objects.unwrap_or_else(|error| panic!("cannot apply the manifest: {error}\n{document}"))
            {
                if let Err(error) = object.apply(&self.client).await {
                    panic!("cannot apply {} {}: {error}", object.kind.kind, object.key);
                }
            }
        }
    }

    /// Applies the roles of a YAML text, and binds each to the operator's user.
    async fn grant(&self, yaml: &str) {
        let is_role = |kind: &str| ["Role", "ClusterRole"].contains(&kind);
        let roles = manifest::read_where(&self.client, yaml, is_role).await;
        let roles = roles.unwrap_or_else(|error| panic!("cannot read the roles: {error}\n{yaml}"));
        assert!(!roles.is_empty(), "the manifest has no Role or ClusterRole:\n{yaml}");
        let user = self.user.as_ref().map(|user| user.name.as_str()).unwrap_or_default();
        for role in roles {
            let (kind, name) = (&role.kind.kind, role.key.name());
            let mut binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            });
            if let Some(namespace) = role.key.namespace() {
                binding["metadata"]["namespace"] = namespace.into();
            }
            self.apply(&role.value.to_string()).await;
            self.apply(&binding.to_string()).await;
        }
    }

    /// The object of that key, `namespace/name` or `name`; `None` if there is none.
    ///
    /// # Panics
    ///
    /// If the server does not know the kind.
    pub async fn get<K: Kind<DynamicType: Default>>(&self, key: &str) -> Option<K> {
        let found = self.client.api::<K>().get_opt(&name(key)).await;
        found.unwrap_or_else(|error| panic!("cannot read {}: {error}", describe::<K>(key)))
    }

    /// Deletes an object, as a user would.
    ///
    /// # Panics
    ///
    /// If there is no such object.
    pub async fn delete<K: Kind<DynamicType: Default>>(&self, key: &str) {
        if let Err(error) = self.client.api::<K>().delete(&name(key)).await {
            panic!("cannot delete {}: {error}", describe::<K>(key));
        }
    }

    /// Waits until an object is there and `is_met` holds for it; returns it.
    ///
    /// # Panics
    ///
    /// After the cluster's patience, with the object's last state and what the operator's queues know of its key; or as soon as the
    /// operator has failed.
    pub async fn eventually<K>(&self, key: &str, is_met: impl Fn(&K) -> bool) -> K
    where
        K: Kind<DynamicType: Default> + Clone,
    {
        let met = self.await_state::<K, _>(key, |state| state.filter(|object| is_met(object)).cloned()).await;
        met.unwrap_or_else(|state| self.fail::<K>(key, "is not as expected", state.as_ref()))
    }

    /// Waits until an object is gone.
    ///
    /// # Panics
    ///
    /// As [`eventually`](Self::eventually).
    pub async fn eventually_gone<K: Kind<DynamicType: Default> + Clone>(&self, key: &str) {
        let gone = self.await_state::<K, _>(key, |state| state.is_none().then_some(())).await;
        gone.unwrap_or_else(|state| self.fail::<K>(key, "is still there", state.as_ref()));
    }

    /// Waits until `is_met` holds for any object of a kind, in any namespace; returns it.
    ///
    /// # Panics
    ///
    /// As [`eventually`](Self::eventually).
    pub async fn eventually_any<K>(&self, is_met: impl Fn(&K) -> bool) -> K
    where
        K: Kind<DynamicType: Default> + Clone,
    {
        let factory = SharedInformerFactory::builder(&self.client).build();
        let found = self.find(&factory, factory.informer::<K>(), |snapshot| {
            let mut typed = snapshot.iter().filter_map(|object| object.get().ok());
            typed.find(|object| is_met(object)).map(|object| (*object).clone())
        });
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        found.await.unwrap_or_else(|| panic!("no {kind} is as expected after {:?}", self.patience))
    }

    /// Waits until `look` finds something in the states of an object; returns the last state, if it does not in time.
    async fn await_state<K, T>(
        &self,
        key: &str,
        look: impl Fn(Option<&K>) -> Option<T>,
    ) -> Result<T, Option<Object<K>>>
    where
        K: Kind<DynamicType: Default> + Clone,
    {
        let key = name(key);
        let selection = Selection { fields: format!("metadata.name={}", key.name()), ..Selection::default() };
        let factory = SharedInformerFactory::builder(&self.client).select(selection).build();
        let informer = match key.namespace() {
            Some(namespace) => factory.in_namespace(namespace).informer::<K>(),
            None => factory.informer::<K>(),
        };
        let store = informer.indexer().clone();
        let found = self.find(&factory, informer, |snapshot| {
            let typed = snapshot.get(&key).and_then(|object| object.get().ok());
            look(typed.as_deref())
        });
        found.await.ok_or_else(|| store.get(&key))
    }

    /// Waits until `look` finds something in a cache; nothing, if it does not in time or the operator ends.
    async fn find<K: Kind, T>(
        &self,
        factory: &SharedInformerFactory,
        informer: SharedInformer<K>,
        look: impl Fn(&Snapshot<K>) -> Option<T>,
    ) -> Option<T> {
        let (changed, mut changes) = watch::channel(());
        let handler = on_change(move |_: Change<'_, K>| {
            let _nobody_looks = changed.send(());
        });
        if let Err(error) = informer.add_handler(handler) {
            panic!("{error}");
        }
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        factory.start(&stop);
        let found = async {
            informer.wait_until_synced().await;
            loop {
                changes.mark_unchanged();
                if let Some(found) = look(&informer.indexer().snapshot()) {
                    return found;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            biased;
            found = self.client.env().clock.timeout(self.patience, found) => found.ok(),
            () = self.operator_ended() => None,
        }
    }

    /// Waits until the operator has ended by itself.
    async fn operator_ended(&self) {
        match &self.operator {
            Some(operator) => operator.ended.cancelled().await,
            None => std::future::pending().await,
        }
    }

    #[track_caller]
    fn fail<K: Kind<DynamicType: Default>>(&self, key: &str, problem: &str, state: Option<&Object<K>>) -> ! {
        let mut lines = vec![format!("{} {problem} after {:?}", describe::<K>(key), self.patience)];
        match state {
            Some(object) => lines.push(format!("its last state: {}", String::from_utf8_lossy(object.json()))),
            None => lines.push("it is not there".to_owned()),
        }
        match &self.operator {
            Some(operator) if operator.ended.is_cancelled() => {
                lines.push("the operator has ended".to_owned())
            }
            Some(operator) => lines.extend(knowledge(&operator.handle, &name(key))),
            None => lines.push("no operator runs".to_owned()),
        }
        panic!("{}", lines.join("\n"));
    }
}

/// What the operator knows of a key, and its mistakes.
fn knowledge(operator: &ManagerHandle, key: &ObjectName) -> Vec<String> {
    let mut lines: Vec<String> = operator
        .controllers()
        .map(|controller| match operator.explain(controller, key) {
            Some(record) => format!("controller {controller}: {record:?}"),
            None => format!("controller {controller}: has not heard of {key}"),
        })
        .collect();
    lines.extend(operator.mistakes());
    lines.extend(operator.troubles(Duration::ZERO));
    lines
}

fn describe<K: Kind<DynamicType: Default>>(key: &str) -> String {
    format!("{} {key}", K::kind(&K::DynamicType::default()))
}

#[track_caller]
fn name(key: &str) -> ObjectName {
    key.parse().unwrap_or_else(|error| panic!("{error}"))
}
