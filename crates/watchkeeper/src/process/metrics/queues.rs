//! Metrics of work queues for Prometheus, with client-go's names.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::sheet::{Series, Sheet};
use crate::workqueue::{
    Cause, Histogram, Key, KeyState, Priority, QueueFigures, QueueMetrics, RateLimitingQueue,
};

/// Exports work queues to Prometheus: `workqueue_depth` and the other metrics of client-go, read at each scrape. Clones
/// share the queues.
///
/// It does not keep a queue alive.
///
/// ```
/// use prometheus_client::registry::Registry;
/// use watchkeeper::process::metrics::QueueCollector;
/// use watchkeeper::workqueue::limiter;
/// use watchkeeper::{Env, ObjectName, RateLimitingQueue};
///
/// let queue = RateLimitingQueue::<ObjectName>::new("foos", limiter::default_controller(), &Env::system());
/// let mut registry = Registry::default();
/// QueueCollector::register(&mut registry).add(&queue);
/// ```
#[derive(Clone, Default)]
pub struct QueueCollector(Arc<Mutex<Vec<Weak<dyn QueueMetrics>>>>);

impl QueueCollector {
    /// Registers a collector in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let collector = Self::default();
        registry.register_collector(Box::new(collector.clone()));
        collector
    }

    /// Exports `queue` from now on. Of two queues with one name only the first is exported, as a page must not have a
    /// series twice.
    pub fn add<T: Key>(&self, queue: &RateLimitingQueue<T>) {
        let mut queues = self.0.lock();
        queues.retain(|known| known.strong_count() > 0);
        let is_taken = queues.iter().filter_map(Weak::upgrade).any(|known| known.name() == queue.name());
        if is_taken {
            tracing::warn!(queue = queue.name(), "no metrics of this queue: another has its name");
        } else {
            queues.push(queue.metrics());
        }
    }
}

/// One gauge of a queue.
type Gauge = fn(&QueueFigures) -> f64;

const GAUGES: [(&str, &str, Gauge); 5] = [
    (
        "workqueue_unfinished_work_seconds",
        "Sum of the ages of the current runs: if it keeps growing, workers are stuck",
        |of| of.running.unfinished.as_secs_f64(),
    ),
    ("workqueue_longest_running_processor_seconds", "The age of the oldest current run", |of| {
        of.running.longest.as_secs_f64()
    }),
    ("workqueue_running", "Keys that are with a worker", |of| of.running.count as f64),
    ("workqueue_delayed", "Keys that become due later", |of| of.delayed as f64),
    ("workqueue_parked", "Keys that wait for something outside the queue, such as their own writes", |of| {
        of.parked as f64
    }),
];

impl Collector for QueueCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let asked: Vec<_> = queues.iter().map(|queue| (("name", queue.name()), queue.figures())).collect();
        let mut sheet = Sheet(encoder);
        let mut series = sheet.gauges("workqueue_depth", "Keys that wait for a worker, by priority")?;
        for (name, figures) in &asked {
            for (priority, keys) in Priority::ALL.into_iter().zip(figures.depth) {
                series.gauge(&[*name, ("priority", priority.as_str())], keys as f64)?;
            }
        }
        let mut series = sheet.counters("workqueue_adds", "Adds that led to a run of their own")?;
        for (name, figures) in &asked {
            series.counter(&[*name], figures.adds)?;
        }
        let mut series = sheet.counters("workqueue_retries", "Adds with a delay, rate limited or not")?;
        for (name, figures) in &asked {
            series.counter(&[*name], figures.retries)?;
        }
        let mut series = sheet.counters("watchkeeper_workqueue_triggers", "Adds that say why, by cause")?;
        for (name, figures) in &asked {
            for (cause, adds) in Cause::ALL.into_iter().zip(figures.triggers) {
                series.counter(&[*name, ("cause", cause.as_str())], adds)?;
            }
        }
        let mut series =
            sheet.histograms("workqueue_queue_duration_seconds", "Time from the add to the worker")?;
        for (name, figures) in &asked {
            histogram(&mut series, *name, &figures.queue_duration)?;
        }
        let mut series = sheet.histograms("workqueue_work_duration_seconds", "Time that workers took")?;
        for (name, figures) in &asked {
            histogram(&mut series, *name, &figures.work_duration)?;
        }
        let mut series = sheet.gauges("watchkeeper_workqueue_keys", "Keys that the queue knows, by state")?;
        for (name, figures) in &asked {
            for (state, keys) in KeyState::ALL.into_iter().zip(figures.states) {
                series.gauge(&[*name, ("state", state.as_str())], keys as f64)?;
            }
        }
        let help = "Time that the key has waited which has waited longest for a worker; 0 if none waits";
        let mut series = sheet.gauges("watchkeeper_workqueue_oldest_waiting_seconds", help)?;
        for (name, figures) in &asked {
            series.gauge(&[*name], figures.oldest_waiting.unwrap_or_default().as_secs_f64())?;
        }
        let help = "Time from the arrival of a changed object to the end of the reconcile that saw it";
        let mut series = sheet.histograms("watchkeeper_change_to_reconciled_seconds", help)?;
        for (name, figures) in &asked {
            let buckets: Vec<_> = figures.latency.buckets().collect();
            series.histogram(&[*name], figures.latency.sum().as_secs_f64(), &buckets)?;
        }
        for (metric, help, gauge) in GAUGES {
            let mut series = sheet.gauges(metric, help)?;
            for (name, figures) in &asked {
                series.gauge(&[*name], gauge(figures))?;
            }
        }
        Ok(())
    }
}

fn histogram(series: &mut Series<'_>, name: (&'static str, &str), of: &Histogram) -> fmt::Result {
    let buckets: Vec<_> = of.buckets().collect();
    series.histogram(&[name], of.sum().as_secs_f64(), &buckets)
}

impl fmt::Debug for QueueCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.0.lock();
        f.debug_list()
            .entries(queues.iter().filter_map(Weak::upgrade).map(|queue| queue.name().to_owned()))
            .finish()
    }
}
