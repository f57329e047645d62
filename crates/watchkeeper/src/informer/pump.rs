//! The loop of every informer: a reflector that fills the queue, a consumer that empties it, and a resync timer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::metrics::InformerMetrics;
use crate::clock::Instant;
use crate::env::Env;
use crate::latch::Latch;
use crate::object::{Kind, Maker};
use crate::queue::{DeltaQueue, Popped};
use crate::reflector::{Options, Phase, Reflector, SharedHealth};
use crate::source::ListerWatcher;

/// The loop of every informer and controller, and its observable state.
pub(super) struct Pump<K: Kind> {
    /// The name in reports.
    pub(super) name: String,
    pub(super) env: Env,
    pub(super) queue: Arc<DeltaQueue<K>>,
    pub(super) health: Arc<SharedHealth>,
    pub(super) metrics: Arc<dyn InformerMetrics>,
    /// Set when it has run and stopped.
    pub(super) stopped: Latch,
}

/// The consumer of the deltas.
pub(super) trait Consumer<K>: Send + Sync + 'static {
    /// Applies deltas.
    fn process(&self, popped: &Popped<K>) -> Outcome;

    /// Called once, when the initial list has been processed.
    fn synced(&self) {}

    /// Returns the interval of resync checks; called once, at the start.
    fn check_period(&self) -> Option<Duration>;

    /// Returns whether a resync is due.
    fn is_due(&self, now: Instant) -> bool;
}

/// The outcome of processing deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// They are finished, whether they could be applied or not.
    Done,
    /// They could not be applied, and go back into the queue.
    Requeue,
}

/// A function that runs a pump.
pub(super) type Start<K> = Box<
    dyn FnOnce(
            Arc<Pump<K>>,
            Arc<dyn Consumer<K>>,
            CancellationToken,
        ) -> Pin<Box<dyn Future<Output = ()> + Send>>
        + Send,
>;

/// A source with its type erased: returns the pump that reads from it.
pub(super) type SourceStart<K> = Box<dyn FnOnce(Maker<K>, Options) -> Start<K> + Send>;

pub(super) fn start_from<K: Kind, S: ListerWatcher>(source: S) -> SourceStart<K> {
    Box::new(move |maker, options| start(source, maker, options))
}

/// The delay after the first of several failures in a row; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

fn start<K: Kind, S: ListerWatcher>(source: S, maker: Maker<K>, options: Options) -> Start<K> {
    Box::new(move |pump, consumer, stop| {
        Box::pin(async move {
            let Pump { name, env, queue, health, .. } = &*pump;
            let (name, queue, health) = (name.clone(), queue.clone(), health.clone());
            let reflector = Reflector::new(name, source, queue, maker, env, health, options);
            // If the queue is closed from outside, everything ends with the loop.
            let stop = stop.child_token();
            let _ending = Ending(&pump);
            let drive = async {
                pump.drive(&*consumer, &stop).await;
                stop.cancel();
            };
            tokio::join!(reflector.run(stop.clone()), drive, pump.resync(&*consumer, &stop));
        })
    })
}

impl<K: Kind> Pump<K> {
    /// Runs the loop between queue and consumer until the stop, or until the queue is closed and empty.
    async fn drive(&self, consumer: &dyn Consumer<K>, stop: &CancellationToken) {
        let (mut is_synced, mut pause) = (false, FIRST_PAUSE);
        loop {
            let popped = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                popped = self.queue.pop() => popped,
            };
            let Some(popped) = popped else { return };
            let (outcome, took) = self.queue.timed(&popped, |popped| consumer.process(popped));
            self.metrics.processed(popped.deltas.len(), took);
            match outcome {
                Outcome::Done => self.queue.processed(),
                Outcome::Requeue => self.queue.add_if_not_present(popped),
            }
            self.metrics.queued(self.queue.len());
            if !is_synced && self.queue.has_synced() {
                is_synced = true;
                consumer.synced();
            }
            if outcome == Outcome::Requeue {
                // The deltas that failed are popped again soon: the delay prevents a busy loop.
                stop.run_until_cancelled(self.env.clock.sleep(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                pause = FIRST_PAUSE;
                crate::fair::give_way().await;
            }
        }
    }

    /// Runs the timer of resyncs; relists do not affect it.
    async fn resync(&self, consumer: &dyn Consumer<K>, stop: &CancellationToken) {
        let Some(period) = consumer.check_period() else { return };
        let tick = async {
            loop {
                self.env.clock.sleep(period).await;
                if consumer.is_due(self.env.clock.now()) {
                    self.queue.resync();
                }
            }
        };
        stop.run_until_cancelled(tick).await;
    }
}

/// Closes the queue and marks the end, also if the future is dropped.
struct Ending<'a, K: Kind>(&'a Pump<K>);

impl<K: Kind> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        let Pump { name, env, queue, health, stopped, .. } = self.0;
        queue.close();
        queue.ended();
        {
            let mut health = health.lock();
            health.phase = Phase::Stopped;
            if std::thread::panicking() {
                // The problem may have begun before.
                let since = health.degraded.as_ref().map_or_else(|| env.clock.now(), |(since, _)| *since);
                health.degraded = Some((since, format!("{name} stopped by a panic")));
            }
        }
        stopped.set();
    }
}
