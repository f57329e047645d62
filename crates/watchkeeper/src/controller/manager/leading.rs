//! What a manager does while it leads, or always if there is no election.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::stale::Staleness;
use super::run::{ManagerError, drain_parts, guarded, start, until_stopped};
use super::{Registered, Runnable};
use crate::env::Env;
use crate::explain::{Explain, ProgramPhase};
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
    /// What becomes of the controllers while their caches are out of date. A standby has nothing to pause, and no reason to end.
    pub(super) staleness: Staleness,
    pub(super) sync_timeout: Duration,
    pub(super) drain: Duration,
    /// Set when the controllers have started.
    pub(super) running: &'a Latch,
    pub(super) explain: &'a Explain,
    pub(super) tokens: &'a Tokens,
    /// Called with the error of a part that has died, before the others are drained.
    pub(super) died: &'a (dyn Fn(&ManagerError) + Sync),
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
                // The caches must reflect all that the leader before has written.
                fresh = self.factory.catch_up(self.sync_timeout) => {
                    fresh.map_err(ManagerError::from).inspect_err(self.died)?;
                }
            }
        }
        let Self { name, env, controllers, runnables, staleness, drain, running, explain, died, .. } = self;
        let pauses = controllers.iter().map(|known| (known.name.clone(), known.pause.clone())).collect();
        let watch = staleness.watch(pauses, env.clone(), working.clone());
        let mut parts = start(controllers, runnables, working, drain);
        parts.push(guarded("the watch over stale caches".to_owned(), watch));
        tracing::info!(manager = name, "controllers are running");
        explain.set_phase(ProgramPhase::Running);
        running.set();
        let cause = until_stopped(&mut parts, ending, caching).await.inspect_err(died);
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
