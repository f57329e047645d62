//! Metrics of a client's credentials, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::sheet::Sheet;
use crate::source::Client;

/// Registers `watchkeeper_credential_age_seconds`, `watchkeeper_credential_reloads_total`,
/// `watchkeeper_credential_reload_failures_total` and, of credentials whose end is known,
/// `watchkeeper_credential_expiry_timestamp_seconds` of `client`. A client made from kube's has none of them.
pub fn register_credentials(registry: &mut Registry, client: &Client) {
    registry.register_collector(Box::new(Credentials(client.clone())));
}

#[derive(Debug)]
struct Credentials(Client);

impl Collector for Credentials {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(status) = self.0.credentials() else { return Ok(()) };
        let mut sheet = Sheet(encoder);
        sheet
            .gauges(
                "watchkeeper_credential_age_seconds",
                "Time since the credentials in use were first read",
            )?
            .gauge(&[], status.age.as_secs_f64())?;
        sheet
            .counters("watchkeeper_credential_reloads", "How often new credentials replaced others")?
            .counter(&[], status.reloads)?;
        sheet
            .counters(
                "watchkeeper_credential_reload_failures",
                "How often credentials could not be read again",
            )?
            .counter(&[], status.failures)?;
        let Some(expires) = status.expires else { return Ok(()) };
        sheet
            .gauges(
                "watchkeeper_credential_expiry_timestamp_seconds",
                "When the credentials in use expire, in seconds since the epoch",
            )?
            .gauge(&[], expires.as_duration().as_secs_f64())
    }
}
