//! The program as a whole: its controllers, informers and leader, and the questions that it answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::RwLock;

use super::explained::{Explained, Known, Runs};
use super::key_view::{Explanation, KeyView, ViewRelation};
use super::nearest::nearest;
use super::query::{ExplainError, KeysQuery, cut};
use super::source::ExplainSource;
use super::view::{
    ControllerView, HistogramView, InformerSummary, InformerView, KeyCounts, KeysPage, KindView, LeaderView,
    Overview, ProgramPhase, RelatedView,
};
use super::words::Times;
use super::{informers, keys, record};
use crate::env::Env;
use crate::informer::{Caches, SharedInformerFactory};
use crate::leader::LeaderStatus;
use crate::object::{Kind, ObjectName};
use crate::workqueue::{Cause, KeyState};

/// What a program says about its controllers, keys and informers. Clones share it.
///
/// It is served under `/debug` of the admin server if it is in its [`Pages`](crate::process::Pages), as that of a manager
/// is. See [`Explained`] for an example.
#[derive(Clone)]
pub struct Explain(Arc<Shared>);

struct Shared {
    program: String,
    env: Env,
    phase: AtomicU8,
    controllers: RwLock<Vec<Arc<Known>>>,
    informers: RwLock<Vec<Caches>>,
    leader: RwLock<Option<LeaderStatus>>,
}

const PHASES: [ProgramPhase; 4] =
    [ProgramPhase::Starting, ProgramPhase::Standby, ProgramPhase::Running, ProgramPhase::Stopping];

impl Explain {
    /// Returns what `program` explains: nothing yet.
    pub fn new(program: &str, env: &Env) -> Self {
        Self(Arc::new(Shared {
            program: program.to_owned(),
            env: env.clone(),
            phase: AtomicU8::new(0),
            controllers: RwLock::default(),
            informers: RwLock::default(),
            leader: RwLock::default(),
        }))
    }

    /// Adds a controller, after those that are there.
    pub fn add<K: Kind>(&self, controller: Explained<K>) {
        self.0.controllers.write().push(Arc::new(controller.known));
    }

    /// Adds the informers of a factory, which is not kept alive.
    pub fn informers(&self, factory: &SharedInformerFactory) {
        self.0.informers.write().push(factory.caches());
    }

    /// Sets the election. While another replica leads, the program is in [`ProgramPhase::Standby`].
    pub fn leader(&self, status: &LeaderStatus) {
        *self.0.leader.write() = Some(status.clone());
    }

    /// Sets the phase; [`ProgramPhase::Starting`] at first.
    pub fn set_phase(&self, phase: ProgramPhase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> ProgramPhase {
        let phase = PHASES[usize::from(self.0.phase.load(Ordering::Relaxed)) % PHASES.len()];
        let leads = self.0.leader.read().as_ref().is_none_or(LeaderStatus::is_leader);
        if leads || phase == ProgramPhase::Stopping { phase } else { ProgramPhase::Standby }
    }

    fn leader_view(&self) -> Option<LeaderView> {
        self.0.leader.read().as_ref().map(|status| LeaderView {
            lease: status.name().to_owned(),
            identity: status.identity().to_owned(),
            leader: status.leader(),
            is_leader: status.is_leader(),
        })
    }

    fn times(&self) -> Times {
        Times::new(&self.0.env.clock)
    }

    fn controllers(&self) -> Vec<Arc<Known>> {
        self.0.controllers.read().clone()
    }

    fn controller(&self, name: &str) -> Result<Arc<Known>, ExplainError> {
        let controllers = self.controllers();
        let found = controllers.iter().find(|known| known.name == name).cloned();
        found.ok_or_else(|| ExplainError::NoController {
            name: cut(name, 80),
            suggestions: nearest(name, controllers.iter().map(|known| known.name.clone())),
        })
    }

    /// Returns the keys in each state of a controller, for metrics and tests.
    pub fn counts(&self, controller: &str) -> Result<KeyCounts, ExplainError> {
        self.controller(controller).map(|known| counts(&known))
    }
}

/// Returns the number of keys by state.
fn counts(known: &Known) -> KeyCounts {
    let [running, waiting, parked, retrying, delayed, failed, idle] = known.queue.figures().states;
    let cached: usize = known.mains.iter().map(|main| main.len()).sum();
    let queued = running + waiting + parked + retrying + delayed + failed + idle;
    KeyCounts {
        running,
        waiting,
        parked,
        retrying,
        delayed,
        failed,
        idle,
        cached: cached.saturating_sub(queued),
    }
}

fn controller_view(known: &Known) -> ControllerView {
    let figures = known.queue.figures();
    let runs = known.runs.as_ref().map_or_else(|| counted(known), |runs| runs());
    let triggers =
        Cause::ALL.into_iter().zip(figures.triggers).map(|(cause, count)| (cause.as_str().to_owned(), count));
    let related = known.related.iter().map(|(relation, watched)| RelatedView {
        kind: watched.kind(),
        relation: if *relation == ViewRelation::Owner { "owner" } else { "mapping" }.to_owned(),
    });
    let mut related: Vec<_> = related.collect();
    related.dedup();
    ControllerView {
        name: known.name.clone(),
        kind: known.kind.clone(),
        related,
        workers: known.workers,
        active: runs.active,
        paused: runs.is_paused,
        keys: counts(known),
        oldest_waiting_seconds: figures.oldest_waiting.map(|age| age.as_secs_f64()),
        longest_running_seconds: (figures.running.count > 0).then_some(figures.running.longest.as_secs_f64()),
        adds: figures.adds,
        retries: figures.retries,
        triggers: triggers.collect(),
        reconciles: runs.reconciles,
        terminal_errors: runs.terminal,
        panics: runs.panics,
        timeouts: runs.timeouts,
        reconcile_time: runs.times,
        latency: HistogramView::of(
            figures.latency.count(),
            figures.latency.sum().as_secs_f64(),
            figures.latency.buckets(),
        ),
    }
}

/// What the queue knows of the runs of a controller that a manager does not run.
fn counted(known: &Known) -> Runs {
    let figures = known.queue.figures();
    let work = &figures.work_duration;
    Runs {
        active: figures.running.count,
        reconciles: BTreeMap::from([("total".to_owned(), work.count())]),
        times: HistogramView::of(work.count(), work.sum().as_secs_f64(), work.buckets()),
        ..Runs::default()
    }
}

impl ExplainSource for Explain {
    fn overview(&self) -> Overview {
        let times = self.times();
        let informers = self.informers_view(&times);
        let count = |is: &dyn Fn(&InformerView) -> bool| informers.iter().filter(|view| is(view)).count();
        Overview {
            at: times.wall(times.now),
            program: self.0.program.clone(),
            phase: self.phase(),
            leader: self.leader_view(),
            controllers: self.controllers().iter().map(|known| controller_view(known)).collect(),
            informers: InformerSummary {
                total: informers.len(),
                synced: count(&|view| view.synced),
                degraded: count(&|view| view.degraded.is_some()),
                objects: informers.iter().map(|view| view.objects).sum(),
                bytes: informers.iter().map(|view| view.bytes).sum(),
            },
        }
    }

    fn keys(&self, controller: &str, query: &KeysQuery) -> Result<KeysPage, ExplainError> {
        let known = self.controller(controller)?;
        keys::page(&known, query, &self.times())
    }

    fn explain(&self, kind: &str, key: &str) -> Result<Explanation, ExplainError> {
        let controllers = self.controllers();
        let name: ObjectName = key.parse().map_err(|_| ExplainError::BadKey(cut(key, 80)))?;
        let times = self.times();
        let (phase, leader) = (self.phase(), self.leader_view());
        let mut found: Option<KindView> = None;
        let mut views: Vec<KeyView> = Vec::new();
        let mut asked = name;
        for known in &controllers {
            let is_main = matches(&known.kind, kind);
            let is_related = |watched: &KindView| matches(watched, kind);
            let related = known.related.iter().find(|(_, watched)| is_related(&watched.kind()));
            let is_namespaced = match (is_main, related) {
                (true, _) => known.mains.iter().any(|main| main.is_namespaced()),
                (false, Some((_, watched))) => watched.is_namespaced(),
                (false, None) => continue,
            };
            let key = match asked.namespace() {
                None if is_namespaced => ObjectName::namespaced("default", asked.name()),
                _ => asked.clone(),
            };
            if is_main {
                found.get_or_insert_with(|| known.kind.clone());
                views.push(record::view(known, &key, phase, leader.as_ref(), &controllers, &times));
            }
            if let Some((relation, watched)) = related {
                found.get_or_insert_with(|| watched.kind());
                views.push(record::related_view(known, *relation, &watched.kind(), &key, &times));
            }
            asked = key;
        }
        let Some(found) = found else {
            let kinds = controllers.iter().flat_map(|known| {
                let related = known.related.iter().map(|(_, watched)| watched.kind().kind);
                std::iter::once(known.kind.kind.clone()).chain(related).collect::<Vec<_>>()
            });
            return Err(ExplainError::NoKind { kind: cut(kind, 80), suggestions: nearest(kind, kinds) });
        };
        views.sort_by_key(|view| view.relation);
        let worst = views.iter().rev().max_by_key(|view| view.verdict.level);
        Ok(Explanation {
            at: times.wall(times.now),
            kind: found,
            key: asked.to_string(),
            verdict: worst.map(|view| view.verdict.clone()).unwrap_or_default(),
            views,
        })
    }

    fn informers(&self) -> Vec<InformerView> {
        self.informers_view(&self.times())
    }
}

impl Explain {
    fn informers_view(&self, times: &Times) -> Vec<InformerView> {
        let caches = self.0.informers.read().clone();
        caches.iter().flat_map(|caches| informers::views(caches, times)).collect()
    }

    /// Returns the state of a key in the first controller that reconciles its kind.
    pub(super) fn state_in(
        controllers: &[Arc<Known>],
        kind: &str,
        key: &ObjectName,
    ) -> Option<(String, KeyState)> {
        let known = controllers.iter().find(|known| known.kind.kind == kind)?;
        let state = known.queue.explain(key).map_or(KeyState::Cached, |record| record.state);
        Some((known.name.clone(), state))
    }
}

/// Returns whether `asked` means this kind: `Deployment`, `deployments`, `deployment.apps` or `deployments.apps`.
fn matches(kind: &KindView, asked: &str) -> bool {
    let asked = asked.to_ascii_lowercase();
    let (name, group) = match asked.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (asked.as_str(), None),
    };
    let is_named = name == kind.kind.to_ascii_lowercase() || name == kind.plural.to_ascii_lowercase();
    is_named && group.is_none_or(|group| group == kind.group.to_ascii_lowercase())
}

impl HistogramView {
    pub(crate) fn of(count: u64, sum_seconds: f64, buckets: impl Iterator<Item = (f64, u64)>) -> Self {
        let filled = buckets.filter(|(_, count)| *count > 0);
        let buckets = filled.map(|(bound, count)| super::view::BucketView {
            up_to_seconds: bound.is_finite().then_some(bound),
            count,
        });
        Self { count, sum_seconds, buckets: buckets.collect() }
    }
}

impl fmt::Debug for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controllers = self.controllers();
        f.debug_struct("Explain")
            .field("program", &self.0.program)
            .field("controllers", &controllers.iter().map(|known| known.name.as_str()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
