//! Kinds that go and come: the cache of one that is not served is emptied, and the reflector waits for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bad::Failure;
use super::health::{Cause, Phase};
use super::run::{PATIENCE, Reflector, silent};
use crate::object::{Kind, ResourceVersion};
use crate::source::ListerWatcher;
use crate::wire::ApiError;

/// The number of answers in a row that show that a kind is gone, if its objects are cached: an API server that has just
/// started, or has not yet heard of a new kind, may be wrong for a moment.
const ANSWERS: u32 = 2;
/// The least time between them.
const BETWEEN: Duration = Duration::from_secs(1);

const PHASE: &str = "parked";
const WHY: &str = "the server does not serve the kind: is its CRD installed?";

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Returns whether a request failed because the server does not have the kind.
    pub(super) async fn is_gone(&self, error: &ApiError) -> bool {
        if !error.is_not_found() {
            return false;
        }
        let needed = if self.plan.has_listed() { ANSWERS } else { 1 };
        for answer in 1..=needed {
            if !matches!(self.ask_served().await, Ok(false)) {
                return false;
            }
            if answer < needed {
                self.wait(self.env.generator.jitter(BETWEEN, 1.0)).await;
            }
        }
        true
    }

    async fn ask_served(&self) -> Result<bool, ApiError> {
        let asked = self.env.clock.timeout(PATIENCE, self.source.is_served());
        asked.await.unwrap_or_else(|_| Err(silent()))
    }

    /// Empties the cache, whose kind is not served. Returns the delay before the next request.
    pub(super) fn park(&mut self) -> Duration {
        let was_listed = self.plan.has_listed();
        // First, so that whoever sees the cache change sees why.
        self.absent();
        // A kind that must be there has not synced before it was.
        if was_listed || self.is_optional() {
            // The lowest version: nobody waits for what was written to this cache.
            self.queue.replace(Vec::new(), ResourceVersion::from(0));
            self.health.lock().version = ResourceVersion::from(0);
        }
        if self.is_optional() {
            tracing::info!(reflector = self.name, "an optional kind is not served");
        } else {
            let failure = Failure { phase: PHASE, why: WHY.to_owned() };
            self.env.reporter.error("reflector", &self.name, &failure);
        }
        self.plan.park(self.env.clock.now())
    }

    /// Asks whether a parked kind is served. Returns the delay before the next request.
    pub(super) async fn look(&mut self) -> Duration {
        self.health.lock().phase = Phase::Parked;
        match self.ask_served().await {
            Ok(true) => {
                tracing::info!(reflector = self.name, "the kind is served");
                self.plan.unpark(self.env.clock.now());
                return Duration::ZERO;
            }
            Ok(false) => {
                self.absent();
                // The empty cache is the server's state.
                self.verifier.list_begins();
                self.verifier.listed(&ResourceVersion::from(0), self.env.clock.now());
            }
            Err(error) => self.failed("cannot ask for", &error),
        }
        self.plan.park(self.env.clock.now())
    }

    /// Records that the kind is not served now: the empty cache is right.
    fn absent(&self) {
        let is_optional = self.is_optional();
        self.update(|health| {
            (health.phase, health.last_contact) = (Phase::Parked, Some(self.env.clock.now()));
            (health.watch_failed, health.stale) = (false, None);
            if is_optional {
                health.degraded = None;
            }
        });
        if !is_optional {
            self.degrade_fresh(Cause::NotServed, PHASE, WHY);
        }
    }

    fn is_optional(&self) -> bool {
        self.options.optional.load(Ordering::Relaxed)
    }
}
