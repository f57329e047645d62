//! Events, by which users learn what a controller did to their objects.
//!
//! An [`EventRecorder`] records events and never waits. Its [`EventBroadcaster`] puts them into the queue of each sink:
//! an [`ApiSink`] writes Events to the API server, correlated so that a repetition costs one small patch and a flood
//! nothing; a [`LogSink`] logs them; an [`EventStream`] is for any other use. A sink that fails or lags never delays
//! the recorder: events that it cannot take are dropped and counted.
//!
//! Most programs need only [`recorder`].

mod api;
mod broadcaster;
mod core_v1;
mod correlator;
mod counts;
mod events_v1;
mod log_sink;
mod name;
mod occurrence;
mod recent;
mod recorder;
mod sink;
#[cfg(test)]
mod testing;
mod write;

pub use api::EventApi;
pub use broadcaster::{EventBroadcaster, EventStream};
pub use correlator::{Correlated, CorrelatorOptions, EventCorrelator, EventKey, KeyHasher};
#[cfg(feature = "prometheus")]
pub(crate) use counts::Counters;
pub use counts::EventCounts;
pub use log_sink::LogSink;
pub use occurrence::{EventType, Occurrence};
pub use recent::RecentEvents;
pub use recorder::{Draft, EventRecorder};
pub use sink::{ApiSink, EventSink};

use tracing::Level;

use crate::source::Client;

/// Returns a recorder for the component `component`, and a sink that its owner must run. The sink logs each event at
/// level INFO and writes it to the API server as an Event of core/v1.
///
/// ```
/// # use k8s_openapi::api::core::v1::Node;
/// # use tokio_util::sync::CancellationToken;
/// # use watchkeeper::record::{self, EventType};
/// # async fn example(client: watchkeeper::Client, stop: CancellationToken, node: Node) {
/// let (recorder, sink) = record::recorder("my-controller", &client);
/// let work = async {
///     recorder.event(&node, EventType::Normal, "Synced", "the node is as it should be");
/// };
/// tokio::join!(work, sink.run(stop));
/// # }
/// ```
pub fn recorder(component: &str, client: &Client) -> (EventRecorder, EventSink) {
    let env = client.env().fork(&format!("events of {component}"));
    let events = EventBroadcaster::new(&env);
    let sink = EventSink {
        log: (LogSink::new(Level::INFO), events.subscribe()),
        api: (ApiSink::new(client.requests(), &env), events.subscribe()),
    };
    (events.recorder(component), sink)
}
