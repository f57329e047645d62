//! Metrics of a leader election, with client-go's names, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::sheet::Sheet;
use crate::leader::LeaderStatus;

/// Registers `leader_election_master_status`, which is 1 while this process leads, and `leader_election_slowpath_total`, the renewals
/// that needed more than one write, both by the name of the Lease.
pub fn register_election(registry: &mut Registry, status: &LeaderStatus) {
    registry.register_collector(Box::new(Election(status.clone())));
}

#[derive(Debug)]
struct Election(LeaderStatus);

impl Collector for Election {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (status, mut sheet) = (&self.0, Sheet(encoder));
        let name = [("name", status.name())];
        let help = "Whether this process is the leader: 1 if it is, 0 otherwise";
        let leads = if status.is_leader() { 1.0 } else { 0.0 };
        sheet.gauges("leader_election_master_status", help)?.gauge(&name, leads)?;
        let help = "Renewals of the lease that needed more than one write";
        sheet.counters("leader_election_slowpath", help)?.counter(&name, status.slow_paths())
    }
}
