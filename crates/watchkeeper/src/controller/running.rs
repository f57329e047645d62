//! A controller that runs: its workers, and the keys that come from outside.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, join};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::reconcile::Reconciler;
use super::stale::Pause;
use crate::object::{Kind, ObjectName};
use crate::process::Workers;
use crate::workqueue::{Priority, RateLimitingQueue, Trigger};

/// A controller whose kind is forgotten.
pub(super) trait Run: Send {
    /// Runs workers until `stop`, then lets the reconciles under way finish for up to `grace`.
    fn run(self: Box<Self>, stop: CancellationToken, grace: Duration) -> BoxFuture<'static, ()>;
    /// Runs that began although a cache had not seen the key's own writes.
    fn overdue(&self) -> Box<dyn Fn() -> u64 + Send + Sync>;
}

pub(super) struct RunningController<K: Kind> {
    pub(super) reconciler: Arc<Reconciler<K>>,
    pub(super) queue: RateLimitingQueue<ObjectName>,
    pub(super) events: Vec<mpsc::Receiver<ObjectName>>,
    pub(super) workers: usize,
    pub(super) pause: Arc<Pause>,
}

impl<K: Kind> Run for RunningController<K> {
    fn run(self: Box<Self>, stop: CancellationToken, grace: Duration) -> BoxFuture<'static, ()> {
        let Self { reconciler, queue, events, workers, pause } = *self;
        async move {
            let shared = reconciler.shared.clone();
            // Dropped with this future: what it owns ends with it.
            let _unfinished = Unfinished(&shared.writes);
            let stopped = stop.clone();
            let work = Workers::new(workers).grace(grace).run_queue(&queue, stop.clone(), &shared.env, {
                move |item| {
                    let (reconciler, pause, stopped) = (reconciler.clone(), pause.clone(), stopped.clone());
                    async move {
                        // A key that is not started before the stop is left to the next life.
                        if stopped.run_until_cancelled(pause.passed()).await.is_some() {
                            reconciler.process(item).await;
                        }
                    }
                }
            });
            let external = join_all(events.into_iter().map(|keys| forward(keys, &queue, &stop)));
            join!(work, external);
            // Each has a deadline, which is not much longer than the grace period.
            shared.writes.join().await;
        }
        .boxed()
    }

    fn overdue(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
        let writes = self.reconciler.shared.writes.clone();
        Box::new(move || writes.overdue())
    }
}

struct Unfinished<'a>(&'a super::writes::Writes);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Enqueues the keys of a channel until it is closed, or until `stop`.
async fn forward(
    mut keys: mpsc::Receiver<ObjectName>,
    queue: &RateLimitingQueue<ObjectName>,
    stop: &CancellationToken,
) {
    while let Some(Some(key)) = stop.run_until_cancelled(keys.recv()).await {
        queue.add_because(key, Priority::Normal, Trigger::External);
    }
}
