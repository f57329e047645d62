//! Metrics of recorded events, read from their broadcaster at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use crate::record::{Counters, EventRecorder};

/// Registers `watchkeeper_events_recorded_total`, `..._dropped_total`, `..._filtered_total`, `..._written_total` and
/// `..._failed_total` of the broadcaster of `recorder`: its [`EventCounts`](crate::record::EventCounts). It does not
/// keep the broadcaster alive.
pub fn register_events(registry: &mut Registry, recorder: &EventRecorder) {
    registry.register_collector(Box::new(Events(recorder.counters().clone())));
}

#[derive(Debug)]
struct Events(Arc<Counters>);

impl Collector for Events {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.now();
        let all = [
            ("recorded", "Events that were recorded", counts.recorded),
            ("dropped", "Events that found the queue of a sink full", counts.dropped),
            ("filtered", "Events that were not written because their object had too many", counts.filtered),
            ("written", "Writes of events that the API server accepted", counts.written),
            ("failed", "Writes of events that were given up", counts.failed),
        ];
        for (name, help, count) in all {
            let counter = ConstCounter::new(count);
            let name = format!("watchkeeper_events_{name}");
            counter.encode(encoder.encode_descriptor(&name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
