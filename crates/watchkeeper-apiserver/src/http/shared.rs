//! The context shared by all requests and watches of a server.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};

use crate::failure::{Failure, Result};
use crate::http::backlog::Backlog;
use crate::http::metrics::RequestCounts;
use crate::http::reply::{self, Reply};
use crate::persist::durable::Durable;
use crate::state::core::{self, Core};
use crate::state::duty::Duty;

/// The maximum number of large bodies processed concurrently.
const LARGE_AT_ONCE: usize = 4;

/// The maximum number of bytes of large bodies that wait for a permit.
const LARGE_WAITING: usize = 64 << 20;

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
    /// The bytes of large bodies that may wait for their turn.
    pub(crate) waiting: Arc<Semaphore>,
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
            waiting: Arc::new(Semaphore::new(LARGE_WAITING)),
        }
    }

    /// Runs a write on the core, then wakes waiters for changes.
    pub(crate) fn run<T>(self: &Arc<Self>, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, duties) = self.run_part(write);
        // Dropping the backlog does the remaining work.
        Backlog::new(self).extend(duties);
        result
    }

    /// As [`Shared::run`], but leaves the remaining work of the write to the caller.
    pub(crate) fn run_part<T>(&self, write: impl FnOnce(&mut Core) -> T) -> (T, VecDeque<Duty>) {
        let (result, duties, has_batch) = core::commit_change(&self.core, |core| {
            (write(core), std::mem::take(&mut core.duties), core.store.has_batch())
        });
        if let Some(durable) = self.durable.as_ref().filter(|_| has_batch) {
            durable.wake();
        }
        self.changed.notify_waiters();
        (result, duties)
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

    /// Waits for the turn of a request with a large body. Refused if too much is waiting already.
    pub(crate) async fn large_turn(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        if let Ok(turn) = self.large.clone().try_acquire_owned() {
            return Ok(turn);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let waiting = self.waiting.try_acquire_many(bytes).map_err(|_| Failure::too_many_requests());
        let _waiting = waiting?;
        self.large.clone().acquire_owned().await.map_err(|closed| Failure::internal(closed.to_string()))
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn large_bodies_that_wait_are_bounded_in_bytes() {
        let env = Env::simulated(1);
        let shared = Shared::new(&env, Arc::new(Mutex::new(Core::new(&env, 10))), None);
        let turns: Vec<_> = (0..LARGE_AT_ONCE)
            .map(|_| shared.large_turn(LARGE_WAITING + 1).now_or_never().unwrap().unwrap())
            .collect();
        let mut waiting = Box::pin(shared.large_turn(LARGE_WAITING - 1));
        assert!(waiting.as_mut().now_or_never().is_none());
        let refused = shared.large_turn(2).now_or_never().unwrap().unwrap_err();
        let details = refused.details.as_ref().unwrap();
        assert_eq!((refused.code, refused.reason, details.retry_after), (429, "TooManyRequests", 1));
        drop(turns);
        assert!(waiting.as_mut().now_or_never().unwrap().is_ok());
        drop(waiting);
        assert_eq!(shared.waiting.available_permits(), LARGE_WAITING);
    }
}
