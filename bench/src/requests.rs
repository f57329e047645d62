//! The requests that an API server has counted.

/// A counter of `apiserver_request_total`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter<'a> {
    labels: &'a str,
    pub(crate) count: u64,
}

impl<'a> Counter<'a> {
    /// The value of a label; empty if it is missing.
    pub(crate) fn label(&self, name: &str) -> &'a str {
        let mut labels = self.labels.split(',');
        let found = labels.find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
        found.and_then(|value| value.strip_suffix('"')).unwrap_or_default()
    }
}

/// The counters in the text of `/metrics`.
pub(crate) fn counters(text: &str) -> impl Iterator<Item = Counter<'_>> {
    text.lines().filter_map(|line| {
        let (labels, count) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
        Some(Counter { labels, count: count.parse::<f64>().unwrap_or_default() as u64 })
    })
}
