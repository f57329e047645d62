//! An embedded, Kubernetes-compatible API server for development and tests.
//!
//! It keeps objects in memory, and in a folder if it is given one, with one version counter, optimistic concurrency, watches that resume without gaps, server-side apply,
//! and CustomResourceDefinitions with their schemas and rules. It runs in process, on a paused clock if need be, or on a loopback socket for
//! kubectl and other clients. It is not a cluster: no controller but the garbage collector ([`collect_garbage`]) comes with
//! it, and whoever has the token may do everything.
//!
//! It answers as a real kube-apiserver 1.36 does; `docs/apiserver-conformance.md` names every answer that is known to differ. Bodies may
//! come in JSON, YAML or protobuf; answers are JSON or YAML. Not served: RBAC, tokens of service accounts, webhooks, and what needs a
//! kubelet (logs, exec, port-forward). What is not served is refused or left to the client's second choice; it is never half done.
//!
//! ```
//! use watchkeeper::Env;
//! use watchkeeper_apiserver::ApiServer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::new(&Env::simulated(1));
//! let version = server.client().apiserver_version().await?;
//! assert_eq!(version.minor, "36");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use kube_client::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};

mod access;
mod codec;
mod collector;
mod failure;
mod fields;
mod http;
mod kinds;
mod listen;
mod persist;
mod state;
mod types;
mod verbs;

pub use crate::http::reply::ReplyBody;
use crate::http::reply::{self, Reply};
pub use collector::collect_garbage;
pub use listen::credentials::{Credentials, CredentialsError};
pub use listen::serve::{ListenOptions, Listening, ServeError};
pub use persist::disk::DataDirError;
pub use state::store::encodings;

use crate::failure::Failure;
use crate::persist::disk::Disk;
use crate::state::core::Core;
use crate::state::durable::Durable;

/// An API server. Clones share one state.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// What every request and every watch shares.
pub(crate) struct Shared {
    pub(crate) core: Arc<Mutex<Core>>,
    /// Writes every change down; none for a server that lives in memory alone.
    durable: Option<Durable>,
    pub(crate) clock: Clock,
    pub(crate) bookmark_period: Duration,
    pub(crate) streaming_lists: bool,
    generator: Generator,
    pub(crate) requests: crate::http::requests::RequestCounts,
    watches: AtomicU64,
    changed: Notify,
    /// The turns of requests with a large body that came over a socket.
    pub(crate) large: Arc<Semaphore>,
}

impl Shared {
    /// Runs a write on the core, and then wakes those who wait for changes.
    pub(crate) fn run<T>(&self, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, has_batch) =
            crate::state::core::change(&self.core, |core| (write(core), core.store.has_batch()));
        if let Some(durable) = self.durable.as_ref().filter(|_| has_batch) {
            durable.wake();
        }
        self.changed.notify_waiters();
        result
    }

    /// Waits until the server has reached a version, but not for ever.
    pub(crate) async fn reach(&self, version: u64, patience: Duration) {
        let deadline = self.clock.now() + patience;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.core.lock().store.revision() >= version {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.clock.sleep_until(deadline) => return,
            }
        }
    }

    /// Answers once everything that the answer may tell of is safe: nobody is to learn of what a crash could take back.
    async fn answer_safely(&self, answer: impl Future<Output = Reply>) -> Reply {
        let Some(durable) = &self.durable else { return answer.await };
        let refusal = |why: Arc<str>| reply::failure(&Failure::internal(&*why));
        if let Err(why) = durable.wait(0).await {
            return refusal(why);
        }
        let answer = answer.await;
        let revision = self.core.lock().store.revision();
        match durable.wait(revision).await {
            Ok(()) => answer,
            Err(why) => refusal(why),
        }
    }

    pub(crate) fn next_watch(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn jitter(&self, duration: Duration) -> Duration {
        self.generator.jitter(duration, 1.0)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
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
            bookmark_period: Duration::from_secs(60),
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
        let core = Core::new(&self.env, self.history);
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
        let core = Core::restore(&self.env, self.history, kept).map_err(|problem| disk.damaged(&problem))?;
        let core = Arc::new(Mutex::new(core));
        let durable = Durable::start(disk, &core)?;
        Ok(self.with(core, Some(durable)))
    }

    fn with(self, core: Arc<Mutex<Core>>, durable: Option<Durable>) -> ApiServer {
        let shared = Shared {
            core,
            durable,
            clock: self.env.clock.clone(),
            bookmark_period: self.bookmark_period.max(Duration::from_millis(1)),
            streaming_lists: self.streaming_lists,
            generator: self.env.generator.fork("apiserver watches"),
            requests: crate::http::requests::RequestCounts::default(),
            watches: AtomicU64::new(0),
            changed: Notify::new(),
            large: Arc::new(Semaphore::new(crate::http::handler::LARGE_AT_ONCE)),
        };
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
        let answer = crate::http::handler::handle(shared.clone(), request, self.stop.clone());
        Box::pin(async move { Ok(shared.answer_safely(answer).await) })
    }
}
