//! The health of a reflector: what it does, and since when and why its cache is not kept up to date.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::bad::Failure;
use super::metrics::ListReason;
use super::run::Reflector;
use crate::clock::{Clock, Instant};
use crate::object::{Kind, ResourceVersion};
use crate::report::WithCauses;
use crate::source::ListerWatcher;
use crate::wire::{ApiError, Class};

/// The activity of a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Not yet started.
    #[default]
    Idle,
    /// Reading a list.
    Listing,
    /// Reading a watch.
    Watching,
    /// Waiting to try again.
    Waiting,
    /// Waiting for the kind to be served.
    Parked,
    /// Stopped for good.
    Stopped,
}

/// The cause of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The server cannot be reached, or does not answer.
    Unreachable,
    /// The caller may not list the kind, or is not known any more.
    NoPermission,
    /// The caller may not watch the kind, which is polled instead: the cache is late, not wrong.
    Polled,
    /// The server does not have the kind.
    NotServed,
    /// Requests fail for another reason.
    #[default]
    Failing,
}

impl Cause {
    /// Returns the cause as the label of a metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::NoPermission => "no_permission",
            Self::Polled => "polled",
            Self::NotServed => "not_served",
            Self::Failing => "failing",
        }
    }

    fn of(error: &ApiError) -> Self {
        match error.class() {
            Class::Forbidden | Class::Unauthorized => Self::NoPermission,
            Class::ConnectionRefused | Class::Unreachable | Class::ConnectionLost | Class::Timeout => {
                Self::Unreachable
            }
            _ => Self::Failing,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "server unreachable",
            Self::NoPermission => "no permission",
            Self::Polled => "polled",
            Self::NotServed => "kind not served",
            Self::Failing => "requests fail",
        })
    }
}

/// The health of a reflector, readable at any time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// The current activity.
    pub phase: Phase,
    /// The version of the last change that was passed on.
    pub version: ResourceVersion,
    /// The time of the last answer or event of the server.
    pub last_contact: Option<Instant>,
    /// The time since which the cache has not been kept up to date, and the reason. It is cleared when something
    /// arrives again: a list if lists failed; an event, a bookmark or a watch that lasts if watches failed. A watch
    /// that is merely opened does not clear it, nor does one that lasts after one that delivered nothing while lists
    /// failed.
    ///
    /// A kind that is polled, and one that must be there and is not served, is degraded, too.
    pub degraded: Option<(Instant, String)>,
    /// The cause of the problem, while there is one.
    pub(super) cause: Cause,
    /// Whether watches failed: another list alone does not clear the problem.
    pub(super) watch_failed: bool,
    /// Whether a watch lasted without delivering anything, and a list failed: another watch that merely lasts proves
    /// nothing.
    pub(super) unheard: bool,
    /// The time since which changes may have been missed.
    pub(super) stale: Option<Instant>,
    /// The number of complete lists; all but the first are relists.
    pub lists: u64,
    /// The number of complete lists by reason.
    pub lists_by_reason: BTreeMap<ListReason, u64>,
    /// The number of opened watches.
    pub watches: u64,
    /// How often the server's history turned out to be rewritten, for example by a restore from a backup.
    pub rewritten: u64,
    /// The time at which the cache was last compared with the server; see
    /// [`SharedInformer::verify`](crate::SharedInformer::verify).
    pub verified: Option<Instant>,
    /// The number of objects that differed from the server's in such comparisons.
    pub differences: u64,
}

impl Health {
    /// Returns the cause of the problem, if the cache is [degraded](Self::degraded).
    pub fn cause(&self) -> Option<Cause> {
        self.degraded.as_ref().map(|_| self.cause)
    }

    /// Returns the time since which the cache may have missed changes, as far as it is known to be out of date.
    ///
    /// Unlike a [degraded](Self::degraded) one, a cache that is polled, or emptied because its kind is not served, is
    /// not stale.
    pub fn stale_since(&self) -> Option<Instant> {
        self.stale
    }

    /// Records that the watch works.
    fn recovered(&mut self) {
        (self.watch_failed, self.degraded, self.stale) = (false, None, None);
    }
}

/// The health of a reflector, which others read and wait for.
#[derive(Debug, Default)]
pub(crate) struct SharedHealth {
    health: Mutex<Health>,
    /// Notified when the cache begins or ends to be stale.
    turned: Arc<Notify>,
}

impl SharedHealth {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Health> {
        self.health.lock()
    }

    /// Waits until the cache begins or ends to be stale after this call. Cancel-safe.
    pub(crate) fn turn(&self) -> impl Future<Output = ()> + Send + 'static {
        self.turned.clone().notified_owned()
    }

    /// Applies a change that may begin or end a problem of the cache called `name`; an end is logged.
    fn update(&self, name: &str, clock: &Clock, change: impl FnOnce(&mut Health)) {
        let mut health = self.health.lock();
        let (degraded, stale) = (health.degraded.as_ref().map(|(since, _)| *since), health.stale.is_some());
        change(&mut health);
        let ended = degraded.filter(|_| health.degraded.is_none());
        let has_turned = stale != health.stale.is_some();
        drop(health);
        if let Some(since) = ended {
            let seconds = clock.now().saturating_duration_since(since).as_secs();
            tracing::info!(reflector = name, seconds, "the cache is kept up to date again");
        }
        if has_turned {
            self.turned.notify_waiters();
        }
    }

    /// Records that the watch works, unless it has to show that by delivering something.
    pub(super) fn lasts(&self, name: &str, clock: &Clock) {
        self.update(name, clock, |health| {
            if !health.unheard {
                health.recovered();
            }
        });
    }
}

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    pub(super) fn contact(&self, version: &ResourceVersion) {
        self.update(|health| {
            health.version.clone_from(version);
            health.last_contact = Some(self.env.clock.now());
            (health.unheard, health.stale) = (false, None);
            if !health.watch_failed {
                health.degraded = None;
            }
        });
    }

    /// Records that the watch brings nothing because nothing has changed.
    pub(super) fn quiet(&self) {
        self.update(|health| {
            health.recovered();
            health.unheard = false;
            health.last_contact = Some(self.env.clock.now());
        });
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Health)) {
        self.health.update(&self.name, &self.env.clock, change);
    }

    /// Keeps the time at which the problem began, with the newest reason.
    pub(super) fn degrade(&self, cause: Cause, phase: &'static str, why: &str) {
        self.degrade_fresh(cause, phase, why);
        self.update(|health| _ = health.stale.get_or_insert_with(|| self.env.clock.now()));
    }

    /// Does the same for a cache that is right all the same.
    pub(super) fn degrade_fresh(&self, cause: Cause, phase: &'static str, why: &str) {
        let mut health = self.health.lock();
        let since = health.degraded.as_ref().map_or_else(|| self.env.clock.now(), |(since, _)| *since);
        health.degraded = Some((since, format!("{phase} {}: {why}", self.name)));
        health.cause = cause;
    }

    /// Records that the kind is polled; reported when that begins.
    pub(super) fn polled(&self, error: &ApiError, begins: bool) {
        let phase = match error.class() {
            Class::Forbidden => "polled, no permission to watch",
            _ => "polled, cannot watch",
        };
        let why = WithCauses(error).to_string();
        self.degrade_fresh(Cause::Polled, phase, &why);
        self.notify(error);
        if begins {
            self.env.reporter.error("reflector", &self.name, &Failure { phase, why });
        }
    }

    pub(super) fn failed(&self, phase: &'static str, error: &ApiError) {
        let why = WithCauses(error).to_string();
        self.degrade(Cause::of(error), phase, &why);
        self.notify(error);
        if error.class() == Class::Expired {
            tracing::debug!(reflector = self.name, "{phase}: {why}");
        } else {
            self.env.reporter.error("reflector", &self.name, &Failure { phase, why });
        }
    }

    /// Calls the user's hook, which must not bring down the reflector.
    pub(super) fn notify(&self, error: &ApiError) {
        if let Some(hook) = &self.options.on_error {
            self.env.reporter.guard("watch error hook", &self.name, || hook(error));
        }
    }
}
