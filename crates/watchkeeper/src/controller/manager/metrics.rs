//! Metrics of controllers, under controller-runtime's names, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::super::figures::ControllerFigures;
use super::ManagerHandle;
use crate::process::metrics::{
    InformerCollector, QueueCollector, Sheet, register_credentials, register_events, register_process,
    register_reports,
};
use crate::record::EventRecorder;
use crate::source::Client;

/// Registers what is known before any controller is: process, reports, credentials, events and informers.
pub(super) fn register(
    registry: &mut Registry,
    client: &Client,
    recorder: &EventRecorder,
) -> InformerCollector {
    register_process(registry);
    register_reports(registry, &client.env().reporter);
    register_credentials(registry, client);
    register_events(registry, recorder);
    InformerCollector::register(registry)
}

/// Registers the controllers and their queues.
pub(super) fn register_controllers(registry: &mut Registry, handle: &ManagerHandle) {
    let queues = QueueCollector::register(registry);
    for controller in handle.controllers() {
        if let Some(queue) = handle.queue(controller) {
            queues.add(queue);
        }
    }
    registry.register_collector(Box::new(ControllerCollector(handle.clone())));
}

#[derive(Debug)]
struct ControllerCollector(ManagerHandle);

/// A counter of a controller.
type Count = fn(&ControllerFigures) -> u64;

const COUNTERS: [(&str, &str, Count); 5] = [
    ("controller_runtime_reconcile_errors", "Reconciles that failed", |of| of.errors),
    ("controller_runtime_terminal_reconcile_errors", "Reconciles that failed and are not retried", |of| {
        of.terminal
    }),
    ("controller_runtime_reconcile_panics", "Reconciles that panicked", |of| of.panics),
    ("controller_runtime_reconcile_timeouts", "Reconciles that did not end in time", |of| of.timeouts),
    ("watchkeeper_overdue_reconciles", "Reconciles that did not wait longer for their own writes", |of| {
        of.overdue
    }),
];

impl Collector for ControllerCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.figures();
        let mut sheet = Sheet(encoder);
        let mut series = sheet.counters("controller_runtime_reconcile", "Reconciles, by their result")?;
        for figures in &all {
            for (result, count) in figures.reconciles {
                series.counter(&[("controller", &figures.controller), ("result", result)], count)?;
            }
        }
        for (metric, help, count) in COUNTERS {
            let mut series = sheet.counters(metric, help)?;
            for figures in &all {
                series.counter(&[("controller", &figures.controller)], count(figures))?;
            }
        }
        let mut series =
            sheet.histograms("controller_runtime_reconcile_time_seconds", "How long reconciles took")?;
        for figures in &all {
            series.histogram(
                &[("controller", &figures.controller)],
                figures.time.as_secs_f64(),
                &figures.times,
            )?;
        }
        let mut series =
            sheet.gauges("controller_runtime_max_concurrent_reconciles", "Workers of a controller")?;
        for figures in &all {
            series.gauge(&[("controller", &figures.controller)], figures.workers as f64)?;
        }
        let mut series = sheet.gauges("controller_runtime_active_workers", "Workers that reconcile now")?;
        for figures in &all {
            series.gauge(&[("controller", &figures.controller)], figures.active as f64)?;
        }
        let help = "Whether reconciles are paused, as a cache is out of date";
        let mut series = sheet.gauges("watchkeeper_controller_paused", help)?;
        let paused = self.0.paused();
        for figures in &all {
            let is_paused = paused.contains(&figures.controller.as_str());
            series.gauge(&[("controller", &figures.controller)], f64::from(u8::from(is_paused)))?;
        }
        Ok(())
    }
}
