//! The context shared by all requests and watches of a server.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};

use crate::failure::Failure;
use crate::http::metrics::RequestCounts;
use crate::http::reply::{self, Reply};
use crate::persist::durable::Durable;
use crate::state::core::{self, Core};

/// The maximum number of large bodies processed concurrently.
const LARGE_AT_ONCE: usize = 4;

/// The default interval of bookmarks on an idle watch.
pub(crate) const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// State shared by all requests and watches.
pub(crate) struct Shared {
    pub(crate) core: Arc<Mutex<Core>>,
    /// Makes changes durable; `None` for a server without a data directory.
    durable: Option<Durable>,
    pub(crate) clock: Clock,
    pub(crate) bookmark_period: Duration,
    pub(crate) streaming_lists: bool,
    generator: Generator,
    pub(crate) requests: RequestCounts,
    watches: AtomicU64,
    changed: Notify,
    /// Permits for processing large bodies received over a socket.
    pub(crate) large: Arc<Semaphore>,
}

impl Shared {
    /// Creates a context with default settings.
    pub(crate) fn new(env: &Env, core: Arc<Mutex<Core>>, durable: Option<Durable>) -> Self {
        Self {
            core,
            durable,
            clock: env.clock.clone(),
            bookmark_period: BOOKMARK_PERIOD,
            streaming_lists: true,
            generator: env.generator.fork("apiserver watches"),
            requests: RequestCounts::default(),
            watches: AtomicU64::new(0),
            changed: Notify::new(),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        }
    }

    /// Runs a write on the core, then wakes waiters for changes.
    pub(crate) fn run<T>(&self, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, has_batch) =
            core::commit_change(&self.core, |core| (write(core), core.store.has_batch()));
        if let Some(durable) = self.durable.as_ref().filter(|_| has_batch) {
            durable.wake();
        }
        self.changed.notify_waiters();
        result
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

    /// Responds once every change that the response may report is durable, so that no client sees a change that a crash
    /// loses.
    pub(crate) async fn answer_safely(&self, answer: impl Future<Output = Reply>) -> Reply {
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
