//! `--faults`: faults between the control plane and the clients of its socket.

use std::time::Duration;

use tracing::warn;
use watchkeeper::clock::Clock;
use watchkeeper_apiserver::ApiServer;
use watchkeeper_sim::{FaultKind, FaultLayer, FaultLayerError};

/// The flags about faults.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct FaultArgs {
    /// Let faults happen to requests and watches on the socket, as this seed decides: lost and refused requests, answers that are lost after the
    /// server has acted, slow ones, broken, stalled and expired watches, delayed and doubled events. Each is logged. Not to kubectl, health
    /// checks, discovery, Events and Leases, and not to what runs in this process
    #[arg(long, value_name = "SEED")]
    pub(crate) faults: Option<u64>,
    /// Share of requests and events that a fault happens to, from 0 to 1 [default: 0.05]
    #[arg(long, value_name = "RATE", requires = "faults", value_parser = rate, allow_negative_numbers = true)]
    pub(crate) fault_rate: Option<f64>,
    /// Kinds of faults [default: all but foreign, undecodable and oversized, which change objects]: lose-request, lose-answer, refuse,
    /// refuse-after, slow-request, slow-answer, double, expire, expire-later, never-open, too-large, cut, stall, delay, duplicate, hide,
    /// no-bookmarks, restart, compact, unreachable, foreign, undecodable, oversized
    #[arg(long, value_name = "LIST", requires = "faults", value_delimiter = ',', value_parser = kind)]
    pub(crate) fault_kinds: Vec<FaultKind>,
    /// Longest delay of a slow request, answer or event, in seconds [default: 5]
    #[arg(long, value_name = "SECONDS", requires = "faults", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) fault_delay: Option<Duration>,
}

fn rate(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    rate.ok_or("expected a number from 0 to 1, such as 0.05")
}

fn kind(name: &str) -> Result<FaultKind, String> {
    let known = name.parse::<FaultKind>().ok().filter(|kind| FaultLayer::KINDS.contains(kind));
    let names = || FaultLayer::KINDS.map(FaultKind::name).join(", ");
    known.ok_or_else(|| {
        format!("no such kind of fault between a server and its clients; there are {}", names())
    })
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("expected a number of seconds above 0, such as 0.5")
}

impl FaultArgs {
    /// The layer to put before the server, if there are to be faults.
    pub(crate) fn layer(
        &self,
        server: &ApiServer,
        clock: &Clock,
    ) -> Result<Option<FaultLayer>, FaultLayerError> {
        let Some(seed) = self.faults else { return Ok(None) };
        let mut settings = FaultLayer::builder(seed);
        if let Some(rate) = self.fault_rate {
            settings = settings.rate(rate);
        }
        if !self.fault_kinds.is_empty() {
            settings = settings.kinds(self.fault_kinds.iter().copied());
        }
        if let Some(longest) = self.fault_delay {
            settings = settings.longest_delay(longest);
        }
        settings
            .on_fault(|hit| warn!(fault = %hit.fault, at = %hit.site, "fault injected"))
            .build(server, clock)
            .map(Some)
    }

    /// What there is to expect, in one line.
    pub(crate) fn summary(&self) -> Option<String> {
        let seed = self.faults?;
        let percent = (self.fault_rate.unwrap_or(0.05) * 1e6).round() / 1e4;
        let kinds = match &self.fault_kinds[..] {
            [] => String::new(),
            kinds => format!(": {}", kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")),
        };
        Some(format!("of seed {seed} at {percent} % of requests and events{kinds}"))
    }
}
