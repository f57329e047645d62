//! The program as a whole: its controllers, informers and leader, and the questions that it answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::RwLock;

use super::controllers::{controller_view, counts};
use super::explained::{Explained, Known};
use super::explanation::parse;
use super::facts::WatchFacts;
use super::key_view::Explanation;
use super::nearest::nearest;
use super::query::{ExplainError, KeysQuery, cut};
use super::record::Around;
use super::source::ExplainSource;
use super::view::{InformerSummary, InformerView, KeyCounts, KeysPage, LeaderView, Overview, ProgramPhase};
use super::words::Times;
use super::{explanation, informers, keys};
use crate::env::Env;
use crate::informer::{Caches, SharedInformerFactory};
use crate::leader::LeaderStatus;
use crate::object::Kind;
use crate::record::{EventRecorder, RecentEvents};
use crate::workqueue::{Priority, Trigger};

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
    events: RwLock<Option<RecentEvents>>,
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
            events: RwLock::default(),
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

    /// Sets the recorder whose events are shown in timelines. Its broadcaster is not kept alive.
    pub fn events(&self, recorder: &EventRecorder) {
        *self.0.events.write() = Some(recorder.recent());
    }

    /// Sets the phase; [`ProgramPhase::Starting`] at first.
    pub fn set_phase(&self, phase: ProgramPhase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> ProgramPhase {
        let phase = PHASES[usize::from(self.0.phase.load(Ordering::Relaxed)) % PHASES.len()];
        match &*self.0.leader.read() {
            Some(status) if !status.is_leader() && phase != ProgramPhase::Stopping => {
                // A manager enters the election when its caches have synced: until then, it waits for those.
                let is_syncing = phase == ProgramPhase::Starting && status.leader().is_empty();
                if is_syncing && !self.unsynced().is_empty() { phase } else { ProgramPhase::Standby }
            }
            _ => phase,
        }
    }

    /// Returns the informers whose caches have not synced.
    fn unsynced(&self) -> Vec<WatchFacts> {
        let caches = self.0.informers.read().clone();
        caches.iter().flat_map(informers::unsynced).collect()
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
        self.controller(controller).map(|known| counts(&known, &known.queue.figures()))
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

    fn program(&self) -> String {
        self.0.program.clone()
    }

    fn keys(&self, controller: &str, query: &KeysQuery) -> Result<KeysPage, ExplainError> {
        let known = self.controller(controller)?;
        keys::page(&known, query, &self.times())
    }

    fn explain(&self, kind: &str, key: &str) -> Result<Explanation, ExplainError> {
        let (controllers, times) = (self.controllers(), self.times());
        let phase = self.phase();
        let around = Around {
            phase,
            unsynced: if phase == ProgramPhase::Starting { self.unsynced() } else { Vec::new() },
            leader: self.leader_view(),
            controllers: &controllers,
            events: self.0.events.read().clone(),
            times: &times,
        };
        explanation::explain(&around, kind, key)
    }

    fn informers(&self) -> Vec<InformerView> {
        self.informers_view(&self.times())
    }

    fn reconcile_now(&self, controller: &str, key: &str) -> Result<(), ExplainError> {
        let known = self.controller(controller)?;
        let key = known.named(&parse(key)?)?;
        if self.phase() != ProgramPhase::Running || known.queue.is_shutting_down() {
            let leader = self.leader_view().filter(|leader| !leader.is_leader).map(|leader| leader.leader);
            let leader = leader.filter(|leader| !leader.is_empty());
            return Err(ExplainError::NotRunning { controller: known.name.clone(), leader });
        }
        let is_cached = known.mains.iter().any(|main| main.has(&key));
        if !is_cached && known.queue.state(&key).is_none() {
            let kind = known.kind.kind.clone();
            return Err(ExplainError::NoObject { kind, key: cut(&key.to_string(), 80) });
        }
        known.queue.add_because(key, Priority::High, Trigger::Manual);
        Ok(())
    }
}

impl Explain {
    fn informers_view(&self, times: &Times) -> Vec<InformerView> {
        let caches = self.0.informers.read().clone();
        caches.iter().flat_map(|caches| informers::views(caches, times)).collect()
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
