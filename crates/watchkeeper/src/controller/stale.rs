//! What becomes of reconciles while a cache is out of date.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::manager::ManagerError;
use crate::clock::{Clock, Instant};
use crate::env::Env;
use crate::informer::SharedInformer;
use crate::object::Kind;

/// What a manager does about a controller one of whose caches is out of date; see
/// [`ManagerBuilder::on_stale`](super::ManagerBuilder::on_stale).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum OnStale {
    /// The controller goes on with the last known state
    #[default]
    Continue,
    /// No reconcile of the controller starts until its caches are up to date
    Pause,
    /// The manager stops, with an error that names the cache
    Exit,
}

/// The policy, and the caches that it is about.
pub(super) struct Staleness {
    policy: OnStale,
    after: Duration,
    watched: Vec<Watched>,
}

struct Watched {
    controller: String,
    cache: String,
    /// Since when the cache may have missed changes, and why.
    stale: Box<dyn Fn() -> Option<(Instant, String)> + Send + Sync>,
    /// Waits until that begins or ends.
    turn: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Staleness {
    pub(super) fn new(policy: OnStale, after: Duration) -> Self {
        Self { policy, after, watched: Vec::new() }
    }

    /// Notes that a controller depends on an informer.
    pub(super) fn add<W: Kind>(&mut self, controller: &str, informer: &SharedInformer<W>) {
        let (cache, informer, turning) = (informer.name().to_owned(), informer.clone(), informer.clone());
        let stale = move || {
            let health = informer.health();
            health.stale_since().map(|since| (since, health.degraded.map(|(_, why)| why).unwrap_or_default()))
        };
        let turn = move || turning.staleness_turns().boxed();
        let (controller, stale, turn) = (controller.to_owned(), Box::new(stale), Box::new(turn));
        self.watched.push(Watched { controller, cache, stale, turn });
    }

    /// Applies the policy to controllers until `stop`.
    pub(super) async fn watch(
        self,
        pauses: Vec<(String, Arc<Pause>)>,
        env: Env,
        stop: CancellationToken,
    ) -> Result<(), ManagerError> {
        if self.policy == OnStale::Continue {
            return Ok(());
        }
        loop {
            // Waited for before the caches are looked at, so that no change is lost in between.
            let turns: Vec<_> = self.watched.iter().map(|watched| (watched.turn)()).collect();
            for (controller, pause) in &pauses {
                let stale = self.stale(controller, env.clock.now());
                match stale {
                    Some((cache, why)) if self.policy == OnStale::Exit => {
                        let after = self.after;
                        return Err(ManagerError::Stale { cache: cache.to_owned(), after, why });
                    }
                    Some((cache, why)) if pause.begin() => {
                        tracing::warn!(
                            controller,
                            cache,
                            why,
                            "reconciles are paused: a cache is out of date"
                        );
                    }
                    None if pause.end() => {
                        tracing::info!(controller, "reconciles go on: the caches are up to date");
                    }
                    _ => {}
                }
            }
            if stop.run_until_cancelled(self.next(turns, &env.clock)).await.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits until one of `turns`, or until a cache has been out of date for too long. Cancel-safe.
    async fn next(&self, turns: Vec<BoxFuture<'static, ()>>, clock: &Clock) {
        let now = clock.now();
        let since = self.watched.iter().filter_map(|watched| Some((watched.stale)()?.0));
        let due = since.map(|since| since + self.after).filter(|due| *due > now).min();
        let turn = async {
            match turns.is_empty() {
                true => std::future::pending().await,
                false => drop(select_all(turns).await),
            }
        };
        match due {
            Some(due) => tokio::select! {
                biased;
                () = turn => {}
                () = clock.sleep_until(due) => {}
            },
            None => turn.await,
        }
    }

    /// The first cache of a controller that has been out of date for too long, and why.
    fn stale(&self, controller: &str, now: Instant) -> Option<(&str, String)> {
        let of_it = self.watched.iter().filter(|watched| watched.controller == controller);
        let mut stale = of_it.filter_map(|watched| {
            let (since, why) = (watched.stale)()?;
            (now.saturating_duration_since(since) >= self.after).then_some((watched.cache.as_str(), why))
        });
        stale.next()
    }
}

/// Holds up the workers of a controller. They go on in FIFO order.
#[derive(Debug, Default)]
pub(super) struct Pause {
    is_on: AtomicBool,
    ended: Notify,
}

impl Pause {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns whether it was not on before.
    fn begin(&self) -> bool {
        !self.is_on.swap(true, Ordering::AcqRel)
    }

    /// Returns whether it was on before.
    fn end(&self) -> bool {
        let was_on = self.is_on.swap(false, Ordering::AcqRel);
        self.ended.notify_waiters();
        was_on
    }

    /// Waits until it is not on. Cancel-safe.
    pub(super) async fn passed(&self) {
        loop {
            // Registered before the check, so that no wake-up is lost in between.
            let ended = self.ended.notified();
            if !self.is_on() {
                return;
            }
            ended.await;
        }
    }
}
