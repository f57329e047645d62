//! The context shared by all requests and watches of a server.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};

use crate::access::authorize::Authorizer;
use crate::access::tokens::Tokens;
use crate::admission::chain::Chain;
use crate::admission::selection::Admission;
use crate::http::body::{LARGE_AT_ONCE, LARGE_WAITING};
use crate::http::flow::FlowControl;
use crate::http::metrics::RequestCounts;
use crate::persist::durable::Durable;
use crate::state::core::Core;

/// The default interval of bookmarks on an idle watch.
pub(crate) const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// The interval of bookmarks on a watch that a request opens, among its extensions; that of the server if it has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BookmarkPeriod(pub(crate) Duration);

/// State shared by all requests and watches.
pub(crate) struct Shared {
    pub(crate) core: Arc<Mutex<Core>>,
    /// Makes changes durable; `None` for a server without a data directory.
    pub(crate) durable: Option<Durable>,
    pub(crate) clock: Clock,
    pub(crate) bookmark_period: Duration,
    pub(crate) streaming_lists: bool,
    pub(crate) authorizer: Authorizer,
    pub(crate) admission: Arc<Chain>,
    /// Classifies requests; `None` without flow control.
    pub(crate) flow_control: Option<FlowControl>,
    /// Signs the tokens of service accounts.
    pub(crate) tokens: Tokens,
    pub(crate) generator: Generator,
    pub(crate) requests: RequestCounts,
    watches: AtomicU64,
    pub(super) changed: Notify,
    /// Permits for processing large bodies received over a socket.
    pub(super) large: Arc<Semaphore>,
    /// The bytes of large bodies that may wait for their turn.
    pub(super) waiting: Arc<Semaphore>,
}

impl Shared {
    /// Creates a context with default settings.
    pub(crate) fn new(env: &Env, core: Arc<Mutex<Core>>, durable: Option<Durable>, tokens: Tokens) -> Self {
        Self {
            core,
            durable,
            clock: env.clock.clone(),
            bookmark_period: BOOKMARK_PERIOD,
            streaming_lists: true,
            authorizer: Authorizer::default(),
            admission: Arc::new(Admission::none().chain()),
            flow_control: None,
            tokens,
            generator: env.generator.fork("apiserver watches"),
            requests: RequestCounts::default(),
            watches: AtomicU64::new(0),
            changed: Notify::new(),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            waiting: Arc::new(Semaphore::new(LARGE_WAITING)),
        }
    }

    /// Waits until the store has reached a revision, up to `patience`.
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
