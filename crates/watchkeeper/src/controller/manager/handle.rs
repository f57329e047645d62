//! Questions to a manager that runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::caches::Caches;
use super::super::figures::{ControllerFigures, Figures};
use super::super::stale::Pause;
use super::Registered;
use crate::informer::{CacheState, SharedInformerFactory};
use crate::latch::Latch;
use crate::object::ObjectName;
use crate::workqueue::{KeyRecord, RateLimitingQueue};

/// A handle to ask about the controllers of a manager while it runs; see [`Manager::handle`](super::Manager::handle). Clones share
/// it, and it does not keep the manager's informers alive.
#[derive(Clone)]
pub struct ManagerHandle(Arc<Shared>);

struct Shared {
    controllers: Vec<Known>,
    caches: Arc<Caches>,
    informers: crate::informer::Caches,
    running: Arc<Latch>,
}

struct Known {
    name: String,
    queue: RateLimitingQueue<ObjectName>,
    figures: Arc<Figures>,
    pause: Arc<Pause>,
    overdue: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl ManagerHandle {
    pub(super) fn new(
        controllers: &[Registered],
        caches: &Arc<Caches>,
        factory: &SharedInformerFactory,
        running: &Arc<Latch>,
    ) -> Self {
        let controllers = controllers.iter().map(|registered| Known {
            name: registered.name.clone(),
            queue: registered.queue.clone(),
            figures: registered.figures.clone(),
            pause: registered.pause.clone(),
            overdue: registered.controller.overdue(),
        });
        Self(Arc::new(Shared {
            controllers: controllers.collect(),
            caches: caches.clone(),
            informers: factory.caches(),
            running: running.clone(),
        }))
    }

    /// Waits until the caches have synced and the controllers have started; for ever if the manager fails before. Cancel-safe.
    pub async fn wait_until_running(&self) {
        self.0.running.wait().await;
    }

    /// The names of the controllers.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        self.0.controllers.iter().map(|known| known.name.as_str())
    }

    /// What the queue of a controller knows of a key; `None` for a key or controller that is not known.
    pub fn explain(&self, controller: &str, key: &ObjectName) -> Option<KeyRecord<ObjectName>> {
        self.queue(controller)?.explain(key)
    }

    /// The queue of a controller.
    pub fn queue(&self, controller: &str) -> Option<&RateLimitingQueue<ObjectName>> {
        self.0.controllers.iter().find(|known| known.name == controller).map(|known| &known.queue)
    }

    /// The controllers that start no reconciles now, as a cache is out of date; see
    /// [`ManagerBuilder::on_stale`](super::ManagerBuilder::on_stale).
    pub fn paused(&self) -> Vec<&str> {
        let paused = self.0.controllers.iter().filter(|known| known.pause.is_on());
        paused.map(|known| known.name.as_str()).collect()
    }

    /// The figures of all controllers.
    pub fn figures(&self) -> Vec<ControllerFigures> {
        self.0.controllers.iter().map(|known| known.figures.now((known.overdue)())).collect()
    }

    /// Mistakes of the program that showed while it ran, such as reads of kinds that are not watched.
    pub fn mistakes(&self) -> Vec<String> {
        self.0.caches.mistakes()
    }

    /// The state of every cache; none once the manager has ended.
    pub fn caches(&self) -> Vec<CacheState> {
        self.0.informers.states().unwrap_or_default()
    }

    /// Why the caches cannot be relied on now, a line for each that cannot: see
    /// [`Caches::troubles`](crate::informer::Caches::troubles).
    pub fn troubles(&self, patience: Duration) -> Vec<String> {
        self.0.informers.troubles(patience)
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.controllers()).finish()
    }
}
