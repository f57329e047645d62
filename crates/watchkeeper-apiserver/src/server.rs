//! The server: its builder, and the tower service that serves requests in process.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use kube_client::Client;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::Service;
use watchkeeper::Env;

use crate::access::authenticate::Caller;
use crate::access::authorize::{Authorization, Authorizer};
use crate::access::tokens::Tokens;
use crate::access::user::User;
use crate::admission::selection::Admission;
use crate::http::flow::FlowControl;
use crate::http::handler::handle;
use crate::http::reply::ReplyBody;
use crate::http::shared::{BOOKMARK_PERIOD, BookmarkPeriod, Shared};
use crate::http::watch::LONGEST_WATCH;
use crate::persist::disk::{DataDirError, Disk};
use crate::persist::durable::Durable;
use crate::persist::restore::restore;
use crate::persist::secret;
use crate::state::checkpoint::Checkpoint;
use crate::state::core::Core;

/// An API server. Clones share one state.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::{Client, Env};
/// use watchkeeper_apiserver::ApiServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let env = Env::system();
/// let server = ApiServer::new(&env);
/// let client = Client::from_kube(server.client(), &env);
/// let mut map = ConfigMap::default();
/// (map.metadata.name, map.metadata.namespace) = (Some("settings".into()), Some("default".into()));
/// let created = client.api::<ConfigMap>().create(&map).await?;
/// assert!(created.metadata.uid.is_some());
/// server.compact_now(); // older watches now get a 410
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
}

impl ApiServer {
    /// Returns a new server in memory with default settings. It has the default namespaces, and every
    /// request is allowed.
    pub fn new(env: &Env) -> Self {
        Self::builder(env).build()
    }

    /// Returns a builder for a server.
    pub fn builder(env: &Env) -> ApiServerBuilder {
        ApiServerBuilder {
            env: env.clone(),
            history: 10_000,
            bookmark_period: BOOKMARK_PERIOD,
            streaming_lists: true,
            authorization: Authorization::default(),
            admission: Admission::default(),
            flow_control: false,
        }
    }

    /// Returns the server as a tower service. It runs in process, without a socket, task or thread.
    pub fn service(&self) -> ApiService {
        self.service_with(None)
    }

    /// Returns the service of a listener: its watches end with `stop`.
    pub(crate) fn service_until(&self, stop: &CancellationToken) -> ApiService {
        self.service_with(Some(stop.clone()))
    }

    fn service_with(&self, stop: Option<CancellationToken>) -> ApiService {
        ApiService { shared: self.shared.clone(), bookmark_period: None, user: None, stop }
    }

    /// Returns a client of this server, in process. Must be called within a tokio runtime.
    pub fn client(&self) -> Client {
        Client::new(self.service(), "default")
    }

    /// Returns a client of this server, in process, whose requests are made as `user`. Must be called within a tokio
    /// runtime.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kube_client::Api;
    /// use watchkeeper::Env;
    /// use watchkeeper_apiserver::{ApiServer, Authorization, User};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = ApiServer::builder(&Env::simulated(1)).authorization(Authorization::Rbac).build();
    /// let secrets: Api<Secret> = Api::default_namespaced(server.client_as(User::new("jane")));
    /// let error = secrets.get("password").await.unwrap_err();
    /// assert!(error.to_string().contains(r#"User "jane" cannot get resource "secrets""#));
    /// # }
    /// ```
    pub fn client_as(&self, user: User) -> Client {
        Client::new(self.service().as_user(user), "default")
    }

    /// Returns the revision of the newest change.
    pub fn revision(&self) -> u64 {
        self.shared.core.lock().store.revision()
    }

    /// Compacts the history: lists and watches at older resourceVersions are answered with 410.
    ///
    /// An open watch that has caught up continues; one that lags behind ends with 410.
    pub fn compact_now(&self) {
        self.shared.run(|core| core.store.compact());
    }

    /// Returns the objects and kinds of this moment: see [`ApiServerBuilder::build_from`] and [`ApiServer::restore`].
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::of(&self.shared.core.lock())
    }

    /// Returns to an earlier state, as a cluster does whose etcd is restored from a backup: later changes are lost, and
    /// revisions are used again. Every open watch ends. For servers in memory.
    ///
    /// # Panics
    ///
    /// If the server has a data folder.
    pub fn restore(&self, checkpoint: &Checkpoint) {
        self.assert_in_memory();
        self.shared.run(|core| checkpoint.restore(core));
    }

    /// Uses up so many revisions, as changes of other objects do that nobody here looks at. For servers in memory.
    ///
    /// # Panics
    ///
    /// If the server has a data folder.
    pub fn skip_revisions(&self, count: u64) {
        self.assert_in_memory();
        self.shared.run(|core| core.store.skip_revisions(count));
    }

    fn assert_in_memory(&self) {
        assert!(self.shared.durable.is_none(), "a server with a data folder cannot change its revision");
    }

    /// Returns every object as its group and resource, such as `/pods` or `apps/deployments`, and its JSON in the stored version; in
    /// the order of resources, namespaces and names.
    pub fn objects(&self) -> Vec<(String, Bytes)> {
        let core = self.shared.core.lock();
        let objects = core.store.objects();
        objects.map(|(id, stored)| (id.as_str().to_owned(), stored.bytes.clone())).collect()
    }

    /// Ends every open watch without an error, as a restarting server does.
    pub fn end_watches(&self) {
        self.shared.run(|core| core.store.end_watches());
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

const SHORTEST_BOOKMARK_PERIOD: Duration = Duration::from_millis(1);

/// The settings of an [`ApiServer`].
#[derive(Clone, Debug)]
pub struct ApiServerBuilder {
    env: Env,
    history: usize,
    bookmark_period: Duration,
    streaming_lists: bool,
    authorization: Authorization,
    admission: Admission,
    flow_control: bool,
}

impl ApiServerBuilder {
    /// The number of changes per resource kept for watches to resume from. The default is 10,000; fewer are kept if
    /// they exceed 256 MiB in total.
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// The interval of bookmarks on an idle watch that allows them. The default is 60 s.
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.bookmark_period = period;
        self
    }

    /// Whether a watch may start with a streamed list (`sendInitialEvents`). The default is true. If false, such a
    /// watch is refused with 422, as by a real server without the WatchList feature, and clients fall back to a list.
    pub fn streaming_lists(mut self, allowed: bool) -> Self {
        self.streaming_lists = allowed;
        self
    }

    /// How requests are authorized. The default is [`Authorization::AlwaysAllow`].
    ///
    /// With [`Authorization::Rbac`], default roles and role bindings that do not exist are created at the start. Requests in
    /// process are made by a member of `system:masters`, unless [`ApiService::as_user`] or [`ApiServer::client_as`] says
    /// otherwise.
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// The admission plugins, which complete or refuse what clients write. The default is none.
    ///
    /// With `Priority`, the priority classes of the system are created at the start.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Whether requests are classified by FlowSchemas, as with `--enable-priority-and-fairness` of kube-apiserver. The default
    /// is false.
    ///
    /// If true, the default FlowSchemas and PriorityLevelConfigurations that do not exist are created at the start, and the
    /// headers of a response name those of its request. No request is delayed or refused.
    pub fn priority_and_fairness(mut self, enabled: bool) -> Self {
        self.flow_control = enabled;
        self
    }

    /// Builds a new server in memory.
    pub fn build(self) -> ApiServer {
        let mut core = Core::new(&self.env, self.history);
        core.create_defaults();
        self.create_for_settings(&mut core);
        self.with(Arc::new(Mutex::new(core)), None)
    }

    /// Builds a server in memory with the objects and kinds of a checkpoint. Definitions are not compiled again.
    ///
    /// ```
    /// # use watchkeeper::Env;
    /// # use watchkeeper_apiserver::ApiServer;
    /// let checkpoint = ApiServer::new(&Env::simulated(1)).checkpoint();
    /// let server = ApiServer::builder(&Env::simulated(2)).build_from(&checkpoint);
    /// assert_eq!(server.revision(), checkpoint.revision());
    /// ```
    pub fn build_from(self, checkpoint: &Checkpoint) -> ApiServer {
        let core = checkpoint.core(&self.env);
        self.with(Arc::new(Mutex::new(core)), None)
    }

    /// Opens the server stored in `folder`; a new or empty folder gives a new server.
    ///
    /// Every response is sent after the changes that it reports are on disk, so a crash loses none of them: revisions
    /// continue, and watches resume as far as the history reaches. The folder is accessible to its owner only. One
    /// server at a time can use it, until its last clone and its last open watch are dropped. Blocks while it reads the
    /// folder.
    ///
    /// ```
    /// # use watchkeeper::Env;
    /// # use watchkeeper_apiserver::ApiServer;
    /// # let parent = tempfile::tempdir().unwrap();
    /// let folder = parent.path().join("data");
    /// let server = ApiServer::builder(&Env::system()).open(&folder)?;
    /// let before = server.revision();
    /// drop(server);
    /// assert_eq!(ApiServer::builder(&Env::system()).open(&folder)?.revision(), before);
    /// # Ok::<(), watchkeeper_apiserver::DataDirError>(())
    /// ```
    pub fn open(self, folder: impl AsRef<Path>) -> Result<ApiServer, DataDirError> {
        let (disk, kept) = Disk::open(folder.as_ref())?;
        let is_fresh = kept.state.is_none();
        let mut core = restore(&self.env, self.history, kept).map_err(|problem| disk.damaged(&problem))?;
        if is_fresh {
            core.create_defaults();
        }
        self.create_for_settings(&mut core);
        core.resume_duties();
        let core = Arc::new(Mutex::new(core));
        let secret = secret::kept_in(folder.as_ref(), &self.env.generator.fork("apiserver tokens"))?;
        let durable = Durable::start(disk, &core)?;
        Ok(self.with_secret(core, Some(durable), &secret))
    }

    /// Creates the objects that the settings need.
    fn create_for_settings(&self, core: &mut Core) {
        core.create_service_range();
        if self.admission.needs_priorities() {
            core.create_priority_classes();
        }
        if self.authorization == Authorization::Rbac {
            core.create_default_roles();
        }
        if self.flow_control {
            core.create_flow_control();
        }
    }

    pub(crate) fn with(self, core: Arc<Mutex<Core>>, durable: Option<Durable>) -> ApiServer {
        let mut secret = [0; 32];
        self.env.generator.fork("apiserver tokens").fill(&mut secret);
        self.with_secret(core, durable, &secret)
    }

    /// `secret` is that of service account tokens.
    fn with_secret(self, core: Arc<Mutex<Core>>, durable: Option<Durable>, secret: &[u8; 32]) -> ApiServer {
        let tokens = Tokens::new(secret, &self.env.clock);
        let mut shared = Shared::new(&self.env, core, durable, tokens);
        shared.authorizer = Authorizer::new(self.authorization);
        shared.flow_control = self.flow_control.then(FlowControl::default);
        shared.admission = Arc::new(self.admission.chain());
        shared.bookmark_period = self.bookmark_period.clamp(SHORTEST_BOOKMARK_PERIOD, LONGEST_WATCH);
        shared.streaming_lists = self.streaming_lists;
        ApiServer { shared: Arc::new(shared) }
    }
}

/// The server as a [`tower::Service`], for `kube_client::Client::new` and for tests that speak HTTP.
#[derive(Clone, Debug)]
pub struct ApiService {
    shared: Arc<Shared>,
    /// `None` for the server's own.
    bookmark_period: Option<Duration>,
    /// The user of all requests; `None` for the user of each request, which is the admin in process.
    user: Option<Caller>,
    /// Ends watches.
    stop: Option<CancellationToken>,
}

impl ApiService {
    /// The interval of bookmarks on watches that are opened through this service, instead of the server's own.
    #[must_use]
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.bookmark_period = Some(period.clamp(SHORTEST_BOOKMARK_PERIOD, LONGEST_WATCH));
        self
    }

    /// Makes all requests as `user`, instead of a member of `system:masters`.
    #[must_use]
    pub fn as_user(mut self, user: User) -> Self {
        self.user = Some(Caller(Arc::new(user)));
        self
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (shared, stop) = (self.shared.clone(), self.stop.clone());
        if let Some(period) = self.bookmark_period {
            request.extensions_mut().insert(BookmarkPeriod(period));
        }
        if let Some(user) = &self.user {
            request.extensions_mut().insert(user.clone());
        }
        Box::pin(async move { Ok(handle(shared, request, stop).await) })
    }
}
