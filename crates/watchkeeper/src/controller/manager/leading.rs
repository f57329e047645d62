//! What a manager does while it leads, or always if there is no election.

use std::time::Duration;

use futures::future::join_all;
use futures::join;
use tokio_util::sync::CancellationToken;

use super::run::{ManagerError, drain_parts, start, until_stopped};
use super::{CatchUp, Registered, Runnable};
use crate::env::Env;
use crate::informer::SharedInformerFactory;
use crate::latch::Latch;
use crate::leader::Leadership;

/// Controllers and runnables of the leader, with what they need to start and to stop.
pub(super) struct Leading<'a> {
    pub(super) name: &'a str,
    pub(super) env: &'a Env,
    pub(super) factory: &'a SharedInformerFactory,
    pub(super) controllers: Vec<Registered>,
    pub(super) runnables: Vec<Runnable>,
    pub(super) catch_up: &'a [CatchUp],
    pub(super) sync_timeout: Duration,
    pub(super) drain: Duration,
    /// Set when the controllers have started.
    pub(super) running: &'a Latch,
    pub(super) tokens: &'a Tokens,
}

/// What ends, in this order.
#[derive(Default)]
pub(super) struct Tokens {
    /// Cancelled by the stop, and when a part dies.
    pub(super) ending: CancellationToken,
    /// Cancelled when controllers and runnables are to end.
    pub(super) working: CancellationToken,
    /// Cancelled when no event is recorded any more.
    pub(super) recording: CancellationToken,
    /// Cancelled when the events are written.
    pub(super) recorded: CancellationToken,
    /// Cancelled when the caches are to end, and when an informer panics.
    pub(super) caching: CancellationToken,
}

impl Leading<'_> {
    /// Runs until the end; with a leadership, the lease may be released when this returns.
    pub(super) async fn run(self, leadership: Option<Leadership>) -> Result<(), ManagerError> {
        let Tokens { ending, working, recording, recorded, caching } = self.tokens;
        // However this ends, everything else does.
        let _ended = ending.clone().drop_guard();
        if leadership.is_some() {
            tokio::select! {
                biased;
                () = ending.cancelled() => return Ok(()),
                () = caching.cancelled() => return Ok(()),
                fresh = catch_up(self.factory, self.catch_up, self.sync_timeout, self.env) => fresh?,
            }
        }
        let Self { name, env, controllers, runnables, drain, running, .. } = self;
        let mut parts = start(controllers, runnables, working, drain);
        tracing::info!(manager = name, "controllers are running");
        running.set();
        let cause = until_stopped(&mut parts, ending, caching).await;
        ending.cancel();
        working.cancel();
        let drained = drain_parts(&mut parts, drain, env).await;
        // What is left of the parts must not write when another leads.
        drop(parts);
        if let Some(leadership) = leadership {
            leadership.step_down();
            recording.cancel();
            recorded.cancelled().await;
        }
        cause.and(drained)
    }
}

/// Waits until the caches reflect all that the leader before has written.
async fn catch_up(
    factory: &SharedInformerFactory,
    optional: &[CatchUp],
    timeout: Duration,
    env: &Env,
) -> Result<(), ManagerError> {
    // A kind that is optional may not be served any more.
    let optional = env.clock.timeout(timeout, join_all(optional.iter().map(|catch_up| catch_up())));
    let (caches, _optional) = join!(factory.catch_up(timeout), optional);
    Ok(caches?)
}
