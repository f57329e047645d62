//! Metrics of informers for Prometheus.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::sheet::Sheet;
use crate::informer::{InformerId, InformerMetrics, InformerStats, MetricsProvider, Observed};
use crate::reflector::ListReason;
use crate::wire::WatchEventType;

/// Exports the metrics of informers to Prometheus. Clones share them.
///
/// ```
/// use std::sync::Arc;
/// use prometheus_client::registry::Registry;
/// use watchkeeper::SharedInformerFactory;
/// use watchkeeper::process::metrics::InformerCollector;
///
/// # fn factory(client: watchkeeper::Client) {
/// let mut registry = Registry::default();
/// let metrics = InformerCollector::register(&mut registry);
/// let factory = SharedInformerFactory::builder(&client).name("my-operator").metrics(Arc::new(metrics)).build();
/// # }
/// ```
#[derive(Clone, Default)]
pub struct InformerCollector(Arc<Mutex<Vec<Arc<Counted>>>>);

/// The counters of one informer; other values are read from it.
struct Counted {
    id: InformerId,
    informer: OnceLock<Weak<dyn Observed>>,
    lists: [AtomicU64; ListReason::ALL.len()],
    events: [AtomicU64; EVENTS.len()],
    rewritten: AtomicU64,
    verifications: AtomicU64,
    differences: AtomicU64,
    latency: Mutex<Latency>,
}

/// The types of events as labels; the last one is any other type.
const EVENTS: [&str; 6] = ["added", "modified", "deleted", "bookmark", "error", "unknown"];

/// Upper bounds of the buckets in seconds: those of Kubernetes' own components.
const BOUNDS: [f64; 13] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, f64::INFINITY];

#[derive(Default)]
struct Latency {
    sum: Duration,
    counts: [u64; BOUNDS.len()],
}

impl InformerCollector {
    /// Registers a collector in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let collector = Self::default();
        registry.register_collector(Box::new(collector.clone()));
        collector
    }
}

impl MetricsProvider for InformerCollector {
    fn informer(&self, mut id: InformerId) -> Arc<dyn InformerMetrics> {
        let mut informers = self.0.lock();
        informers.retain(|counted| counted.is_alive());
        // Two series with the same labels would make the whole page invalid.
        let name = id.name.clone();
        for copy in 2.. {
            if informers.iter().all(|counted| counted.id != id) {
                break;
            }
            id.name = format!("{name} {copy}");
        }
        let counted = Arc::new(Counted {
            id,
            informer: OnceLock::new(),
            lists: Default::default(),
            events: Default::default(),
            rewritten: AtomicU64::default(),
            verifications: AtomicU64::default(),
            differences: AtomicU64::default(),
            latency: Mutex::default(),
        });
        informers.push(counted.clone());
        counted
    }
}

impl Counted {
    /// Returns whether the informer still exists.
    fn is_alive(&self) -> bool {
        self.informer.get().is_none_or(|informer| informer.strong_count() > 0)
    }

    fn stats(&self) -> Option<InformerStats> {
        Some(self.informer.get()?.upgrade()?.stats())
    }

    fn labels(&self) -> [(&'static str, &str); 4] {
        let InformerId { name, group, version, resource } = &self.id;
        [("name", name), ("group", group), ("version", version), ("resource", resource)]
    }

    fn labels_and<'a>(&'a self, key: &'static str, value: &'a str) -> [(&'static str, &'a str); 5] {
        let [name, group, version, resource] = self.labels();
        [name, group, version, resource, (key, value)]
    }
}

impl InformerMetrics for Counted {
    fn made(&self, informer: Weak<dyn Observed>) {
        // Each informer has its own metrics, so this is the first call.
        let _first = self.informer.set(informer);
    }

    fn listed(&self, reason: ListReason, _items: usize) {
        self.lists[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn event(&self, event: &WatchEventType) {
        let at = match event {
            WatchEventType::Added => 0,
            WatchEventType::Modified => 1,
            WatchEventType::Deleted => 2,
            WatchEventType::Bookmark => 3,
            WatchEventType::Error => 4,
            WatchEventType::Unknown(_) => 5,
        };
        self.events[at].fetch_add(1, Ordering::Relaxed);
    }

    fn history_rewritten(&self) {
        self.rewritten.fetch_add(1, Ordering::Relaxed);
    }

    fn verified(&self, differences: usize) {
        self.verifications.fetch_add(1, Ordering::Relaxed);
        self.differences.fetch_add(differences as u64, Ordering::Relaxed);
    }

    fn processed(&self, _deltas: usize, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len() - 1);
        let mut latency = self.latency.lock();
        latency.sum += took;
        latency.counts[bucket] += 1;
    }
}

/// One gauge of an informer.
type Gauge = fn(&InformerStats) -> Option<f64>;

const GAUGES: [(&str, &str, Gauge); 6] = [
    ("informer_queued_items", "Entries queued for the store", |of| Some(of.queued as f64)),
    ("informer_queued_bytes", "Bytes queued for the store", |of| Some(of.queued_bytes as f64)),
    ("informer_store_objects", "Objects in the store", |of| Some(of.objects as f64)),
    ("informer_store_bytes", "Bytes of the objects in the store, without decoded values", |of| {
        Some(of.bytes as f64)
    }),
    ("informer_store_resource_version", "The resource version that the store reflects", |of| {
        of.version.to_string().parse().ok()
    }),
    ("informer_last_contact_seconds", "Time since the last data from the API server", |of| {
        of.silent_for.map(|silent| silent.as_secs_f64())
    }),
];

impl Collector for InformerCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let informers = self.0.lock().clone();
        let asked: Vec<_> = informers.iter().filter_map(|of| Some((of, of.stats()?))).collect();
        let mut sheet = Sheet(encoder);
        for (name, help, gauge) in GAUGES {
            let mut series = sheet.gauges(name, help)?;
            for (of, stats) in &asked {
                gauge(stats).map_or(Ok(()), |value| series.gauge(&of.labels(), value))?;
            }
        }
        let help = "Time since which the cache has not been kept up to date, while it is not, by the cause";
        let mut series = sheet.gauges("informer_degraded_seconds", help)?;
        for (of, stats) in &asked {
            if let Some((lasts, cause)) = stats.degraded {
                series.gauge(&of.labels_and("cause", cause.as_str()), lasts.as_secs_f64())?;
            }
        }
        let mut series =
            sheet.gauges("informer_handler_pending_notifications", "Pending notifications of a handler")?;
        for (of, stats) in &asked {
            for handler in &stats.handlers {
                series.gauge(&of.labels_and("handler", &handler.name), handler.pending as f64)?;
            }
        }
        let help = "Notifications that were merged or cancelled because a handler was too far behind";
        let mut series = sheet.counters("informer_handler_coalesced_notifications", help)?;
        for (of, stats) in &asked {
            for handler in &stats.handlers {
                series.counter(&of.labels_and("handler", &handler.name), handler.coalesced)?;
            }
        }
        let mut series = sheet.counters("informer_handler_panics", "Panics of a handler, all caught")?;
        for (of, stats) in &asked {
            for handler in &stats.handlers {
                series.counter(&of.labels_and("handler", &handler.name), handler.panics)?;
            }
        }
        let help = "Callbacks of a handler that blocked their thread for more than 100 ms";
        let mut series = sheet.counters("informer_handler_slow_callbacks", help)?;
        for (of, stats) in &asked {
            for handler in &stats.handlers {
                series.counter(&of.labels_and("handler", &handler.name), handler.slow)?;
            }
        }
        let mut series = sheet.counters("informer_decodes", "Objects that were decoded into their type")?;
        for (of, stats) in &asked {
            series.counter(&of.labels(), stats.decodes)?;
        }
        let mut series = sheet.counters("informer_lists", "Complete lists by their reason")?;
        for (of, _) in &asked {
            for (reason, count) in ListReason::ALL.into_iter().zip(&of.lists) {
                series.counter(&of.labels_and("reason", reason.as_str()), count.load(Ordering::Relaxed))?;
            }
        }
        let mut series = sheet.counters("informer_watch_events", "Watch events by their type")?;
        for (of, _) in &asked {
            for (event, count) in EVENTS.into_iter().zip(&of.events) {
                series.counter(&of.labels_and("type", event), count.load(Ordering::Relaxed))?;
            }
        }
        let help = "How often the server's history was rewritten, for example by a restore from a backup";
        let mut series = sheet.counters("informer_history_rewritten", help)?;
        for (of, _) in &asked {
            series.counter(&of.labels(), of.rewritten.load(Ordering::Relaxed))?;
        }
        let help = "How often the cache was compared with the server";
        let mut series = sheet.counters("informer_verifications", help)?;
        for (of, _) in &asked {
            series.counter(&of.labels(), of.verifications.load(Ordering::Relaxed))?;
        }
        let help = "Objects whose cached state differed from the server's in such comparisons";
        let mut series = sheet.counters("informer_cache_differences", help)?;
        for (of, _) in &asked {
            series.counter(&of.labels(), of.differences.load(Ordering::Relaxed))?;
        }
        let help = "How long it took to apply deltas to the store and hand them to the handlers' mailboxes";
        let mut series = sheet.histograms("informer_processing_latency_seconds", help)?;
        for (of, _) in &asked {
            let (sum, counts) = {
                let latency = of.latency.lock();
                (latency.sum.as_secs_f64(), latency.counts)
            };
            let buckets: Vec<_> = BOUNDS.into_iter().zip(counts).collect();
            series.histogram(&of.labels(), sum, &buckets)?;
        }
        Ok(())
    }
}

impl fmt::Debug for InformerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.0.lock();
        f.debug_list().entries(informers.iter().map(|counted| &counted.id)).finish()
    }
}
