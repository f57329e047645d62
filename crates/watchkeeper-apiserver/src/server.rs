//! The server: its builder, and the tower service that answers requests in process.

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

use crate::http::handler;
use crate::http::reply::ReplyBody;
use crate::http::shared::{BOOKMARK_PERIOD, Shared};
use crate::persist::disk::{DataDirError, Disk};
use crate::persist::durable::Durable;
use crate::persist::restore::restore;
use crate::state::core::Core;

/// An API server. Clones share one state.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
}

impl ApiServer {
    /// A fresh server with the usual settings: the default namespaces, and nothing else.
    pub fn new(env: &Env) -> Self {
        Self::builder(env).build()
    }

    /// Sets up a server.
    pub fn builder(env: &Env) -> ApiServerBuilder {
        ApiServerBuilder {
            env: env.clone(),
            history: 10_000,
            bookmark_period: BOOKMARK_PERIOD,
            streaming_lists: true,
        }
    }

    /// The server as a tower service, in process: no socket, no task, no thread.
    pub fn service(&self) -> ApiService {
        ApiService { shared: self.shared.clone(), stop: None }
    }

    /// A client of this server, in process. Must be called within a tokio runtime.
    pub fn client(&self) -> Client {
        Client::new(self.service(), "default")
    }

    /// The version of the newest change.
    pub fn revision(&self) -> u64 {
        self.shared.core.lock().store.revision()
    }

    /// Forgets all history: lists and watches at older versions are answered with 410.
    ///
    /// An open watch that has been told everything goes on; one that lags behind is ended with 410.
    pub fn compact_now(&self) {
        self.shared.run(|core| core.store.compact());
    }

    /// Ends every open watch cleanly, as a server does that restarts.
    pub fn end_watches(&self) {
        self.shared.run(|core| core.store.end_watches());
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

/// The settings of an [`ApiServer`].
#[derive(Clone, Debug)]
pub struct ApiServerBuilder {
    env: Env,
    history: usize,
    bookmark_period: Duration,
    streaming_lists: bool,
}

impl ApiServerBuilder {
    /// How many changes each resource remembers for watches that resume; 10,000 unless set, and fewer where they are over 256 MiB in all.
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// How often a quiet watch that allows bookmarks gets one; every 60 s unless set.
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.bookmark_period = period;
        self
    }

    /// Whether a watch may begin with a streamed list (`sendInitialEvents`); it may unless set otherwise. Then it is refused with
    /// 422, as by a real server whose WatchList feature is off, and clients fall back to a list.
    pub fn streaming_lists(mut self, allowed: bool) -> Self {
        self.streaming_lists = allowed;
        self
    }

    /// A fresh server, in memory.
    pub fn build(self) -> ApiServer {
        let mut core = Core::new(&self.env, self.history);
        core.create_defaults();
        self.with(Arc::new(Mutex::new(core)), None)
    }

    /// The server that is kept in a folder, with all it had; a fresh one, if the folder is new or empty.
    ///
    /// From then on every request is answered after what it tells of is on the disk, so that a crash takes nothing back: versions
    /// go on from where they were, and a watch resumes as far as the history reaches. The folder is for its owner alone, and for one
    /// server at a time, until the last clone and the last open watch are dropped. Blocks while it reads.
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
        let core = Arc::new(Mutex::new(core));
        let durable = Durable::start(disk, &core)?;
        Ok(self.with(core, Some(durable)))
    }

    pub(crate) fn with(self, core: Arc<Mutex<Core>>, durable: Option<Durable>) -> ApiServer {
        let mut shared = Shared::new(&self.env, core, durable);
        shared.bookmark_period = self.bookmark_period.max(Duration::from_millis(1));
        shared.streaming_lists = self.streaming_lists;
        ApiServer { shared: Arc::new(shared) }
    }
}

/// The server as a [`tower::Service`], for `kube_client::Client::new` and for tests that speak HTTP.
#[derive(Clone, Debug)]
pub struct ApiService {
    shared: Arc<Shared>,
    stop: Option<CancellationToken>,
}

impl ApiService {
    pub(crate) fn until(mut self, stop: CancellationToken) -> Self {
        self.stop = Some(stop);
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        let answer = handler::handle(shared.clone(), request, self.stop.clone());
        Box::pin(async move { Ok(shared.answer_safely(answer).await) })
    }
}
