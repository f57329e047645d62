//! Encoding of values that are read at each scrape.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The labels of one series.
pub(crate) type Labels<'a> = [(&'static str, &'a str)];

/// A page of metrics while it is written.
pub(crate) struct Sheet<'a>(pub(crate) DescriptorEncoder<'a>);

impl Sheet<'_> {
    pub(crate) fn gauges(&mut self, name: &'static str, help: &str) -> Result<Series<'_>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge).map(Series)
    }

    /// The encoder adds `_total` to the name.
    pub(crate) fn counters(&mut self, name: &'static str, help: &str) -> Result<Series<'_>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Counter).map(Series)
    }

    pub(crate) fn histograms(&mut self, name: &'static str, help: &str) -> Result<Series<'_>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Histogram).map(Series)
    }
}

/// The series of one metric.
pub(crate) struct Series<'a>(MetricEncoder<'a>);

impl Series<'_> {
    pub(crate) fn gauge(&mut self, labels: &Labels<'_>, value: f64) -> fmt::Result {
        // An empty family would be written with `{}`.
        match labels.is_empty() {
            true => self.0.encode_gauge(&value),
            false => self.0.encode_family(&labels)?.encode_gauge(&value),
        }
    }

    pub(crate) fn counter(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    pub(crate) fn seconds(&mut self, seconds: f64) -> fmt::Result {
        self.0.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
    }

    /// Writes a histogram from the number of values in each bucket, not cumulated.
    pub(crate) fn histogram(&mut self, labels: &Labels<'_>, sum: f64, buckets: &[(f64, u64)]) -> fmt::Result {
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.0.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
    }
}
