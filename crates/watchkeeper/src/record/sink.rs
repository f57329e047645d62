//! The sink that writes events to the API server.

use std::num::NonZeroUsize;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::api::EventApi;
use super::broadcaster::EventStream;
use super::correlator::{CorrelatorOptions, EventCorrelator};
use super::events_v1::SeriesCorrelation;
use super::log_sink::LogSink;
use super::write::Writer;
use crate::env::Env;
use crate::source::Requests;

/// The time for which a stop waits for events to be written.
const GRACE: Duration = Duration::from_secs(5);
/// The maximum number of ongoing series of events.k8s.io/v1.
const SERIES: NonZeroUsize = NonZeroUsize::new(4096).expect("is not zero");

/// Writes events to the API server.
///
/// Events are written one after the other. While the server is unreachable or overloaded, an event is tried up to
/// twelve times, about ten seconds apart; if the server refuses an event, that is reported and the next one is written.
/// An Event that has expired on the server, as Events do after an hour, is created again. Each sink correlates for
/// itself.
#[derive(Debug)]
pub struct ApiSink {
    requests: Requests,
    env: Env,
    api: EventApi,
    correlator: CorrelatorOptions,
    grace: Duration,
}

impl ApiSink {
    /// Returns a sink that writes Events of core/v1 through `requests`.
    pub fn new(requests: &Requests, env: &Env) -> Self {
        Self {
            requests: requests.clone(),
            env: env.clone(),
            api: EventApi::default(),
            correlator: CorrelatorOptions::default(),
            grace: GRACE,
        }
    }

    /// Sets the API of the Events.
    #[must_use]
    pub fn api(mut self, api: EventApi) -> Self {
        self.api = api;
        self
    }

    /// Sets the correlation of events of core/v1.
    #[must_use]
    pub fn correlator(mut self, options: CorrelatorOptions) -> Self {
        self.correlator = options;
        self
    }

    /// Sets the time after the stop after which unwritten events are given up; 5 s by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Writes `events` until there are no more; or until `stop`, and then for the grace period those recorded before
    /// it, each tried once. Dropping the future loses the queued events; whether the current one was written is then
    /// unknown.
    pub async fn run(self, events: EventStream, stop: CancellationToken) {
        let Self { requests, env, api, correlator, grace } = self;
        let counters = events.counters.clone();
        match api {
            EventApi::CoreV1 => {
                let correlation = EventCorrelator::new(correlator, &env.generator);
                Writer { correlation, requests, env, counters, grace }.run(events, stop).await;
            }
            EventApi::EventsV1 => {
                let correlation = SeriesCorrelation::new(SERIES, &env.generator, env.clock.now());
                Writer { correlation, requests, env, counters, grace }.run(events, stop).await;
            }
        }
    }
}

/// A sink that logs and one that writes to the API server, as made by [`recorder`](super::recorder).
#[derive(Debug)]
pub struct EventSink {
    pub(super) log: (LogSink, EventStream),
    pub(super) api: (ApiSink, EventStream),
}

impl EventSink {
    /// Gives up what could not be written so long after the stop; 5 s by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.api.0 = self.api.0.grace(grace);
        self
    }

    /// Logs and writes until `stop`, and then for a few seconds the events recorded before it; or until every recorder
    /// is dropped.
    pub async fn run(self, stop: CancellationToken) {
        let Self { log: (log, to_log), api: (api, to_write) } = self;
        tokio::join!(log.run(to_log, stop.clone()), api.run(to_write, stop));
    }
}
