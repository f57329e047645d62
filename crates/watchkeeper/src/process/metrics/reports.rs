//! Counters of handled errors and caught panics, by the reporting part.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::report::{Incident, Reporter};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

/// Registers `watchkeeper_handled_errors_total` and `watchkeeper_caught_panics_total`, by part, and counts the reports
/// of `reporter` from now on.
pub fn register_reports(registry: &mut Registry, reporter: &Reporter) {
    let (errors, panics) = (Family::<Part, Counter>::default(), Family::<Part, Counter>::default());
    registry.register("watchkeeper_handled_errors", "Errors that were handled; work went on", errors.clone());
    registry.register("watchkeeper_caught_panics", "Panics of user code that were caught", panics.clone());
    reporter.add_hook(move |report| {
        let counters = match report.incident {
            Incident::Error(_) => &errors,
            Incident::Panic(_) => &panics,
        };
        counters.get_or_create(&Part { part: report.part }).inc();
    });
}
