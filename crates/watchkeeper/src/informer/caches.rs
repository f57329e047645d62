//! The state of all caches of a factory, for health checks.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use super::factory::{InformerPanicked, Shared};
use super::metrics::InformerStats;
use crate::reflector::{Cause, Health, Phase};
use crate::source::{Scope, Selection};

/// The state of all caches of a factory, see [`SharedInformerFactory::caches`](super::SharedInformerFactory::caches).
#[derive(Clone, Debug)]
pub struct Caches(pub(super) Weak<Shared>);

/// The state of one cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheState {
    /// The plural name of the kind, with its scope and selection if they are narrowed.
    pub name: String,
    /// The plural name and the group of the kind, such as `deployments.apps`, with scope and selection, for use in URLs.
    pub id: String,
    /// The current activity of the informer.
    pub phase: Phase,
    /// Whether the cache has the initial list.
    pub has_synced: bool,
    /// The current problem.
    pub degraded: Option<Degraded>,
}

/// Everything about one cache.
pub(crate) struct CacheDetail {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Group, version, kind and plural.
    pub(crate) kind: (String, String, String, String),
    pub(crate) scope: Scope,
    pub(crate) selection: Selection,
    pub(crate) has_synced: bool,
    pub(crate) health: Health,
    pub(crate) stats: InformerStats,
}

/// The problem of a cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Degraded {
    /// How long it has lasted.
    pub lasts: Duration,
    /// The wall time at which it began, in RFC 3339.
    pub since: String,
    /// Its cause.
    pub cause: Cause,
    /// The last error.
    pub why: String,
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, cause, why, .. } = self;
        write!(f, "degraded since {since}: {cause}: {why}")
    }
}

impl CacheState {
    /// Returns whether the cache cannot be relied on: it has a problem that has lasted for longer than `patience`, and that
    /// is not merely that it is polled.
    pub fn is_unreliable(&self, patience: Duration) -> bool {
        let is_lasting = |degraded: &Degraded| degraded.lasts > patience && degraded.cause != Cause::Polled;
        self.degraded.as_ref().is_some_and(is_lasting)
    }

    /// Returns why the informer is not there to keep the cache up to date, if it is not: it has not synced, or has stopped.
    pub fn absence(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Stopped => Some("has stopped"),
            _ if !self.has_synced => Some("has not synced yet"),
            _ => None,
        }
    }
}

impl Caches {
    /// Returns the state of every cache, in the order in which they were made; none if the factory is gone.
    pub fn states(&self) -> Option<Vec<CacheState>> {
        let shared = self.0.upgrade()?;
        let clock = &shared.client.env().clock;
        let (now, wall) = (clock.now(), clock.wall());
        let informers = shared.informers.lock();
        let states = informers.iter().map(|(key, entry)| {
            let health = entry.informer.health();
            let cause = health.cause();
            let Health { phase, degraded, .. } = health;
            let degraded = degraded.zip(cause).map(|((since, why), cause)| {
                let lasts = now.saturating_duration_since(since);
                let since = wall.checked_sub(lasts).unwrap_or(wall).strftime("%FT%TZ").to_string();
                Degraded { lasts, since, cause, why }
            });
            CacheState {
                name: key.describe(entry.informer.name()),
                id: key.describe(&entry.informer.resource()).replace(' ', "-"),
                phase,
                has_synced: entry.informer.has_synced(),
                degraded,
            }
        });
        Some(states.collect())
    }

    /// Returns everything about every cache, in the order in which they were made; nothing if the factory is gone.
    pub(crate) fn details(&self) -> Vec<CacheDetail> {
        let Some(shared) = self.0.upgrade() else { return Vec::new() };
        let informers = shared.informers.lock();
        let details = informers.iter().map(|(key, entry)| CacheDetail {
            id: key.describe(&entry.informer.resource()).replace(' ', "-"),
            name: key.describe(entry.informer.name()),
            kind: entry.informer.kind_names(),
            scope: key.scope.clone(),
            selection: key.selection.clone(),
            has_synced: entry.informer.has_synced(),
            health: entry.informer.health(),
            stats: entry.informer.stats(),
        });
        details.collect()
    }

    /// Returns one line for each cache that is unreliable now: it has not synced, has stopped, or has been
    /// [degraded](Health::degraded) for longer than `patience`. A cache that is polled is reliable.
    pub fn troubles(&self, patience: Duration) -> Vec<String> {
        let Some(states) = self.states() else { return vec!["the informers are gone".to_owned()] };
        let troubles = states.iter().filter_map(|state| {
            let CacheState { name, degraded, .. } = state;
            let why = degraded.as_ref().map(|degraded| format!(": {}", degraded.why)).unwrap_or_default();
            match (state.absence(), degraded) {
                (Some(absence), _) => Some(format!("{name} {absence}{why}")),
                (None, Some(Degraded { lasts, cause, .. })) if state.is_unreliable(patience) => {
                    Some(format!("{name} degraded for {} s, {cause}{why}", lasts.as_secs()))
                }
                _ => None,
            }
        });
        troubles.collect()
    }

    /// Returns the informer that was ended by a panic, if one was.
    pub fn panicked(&self) -> Option<InformerPanicked> {
        self.0.upgrade()?.panicked.get().cloned()
    }
}
