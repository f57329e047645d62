//! How do users learn what a controller did? By Events on their objects.
//!
//! An [`EventRecorder`] takes events and never waits; an [`EventSink`] writes them to the API server, on a task of its owner's.

mod recorder;
mod sink;

pub use recorder::{EventRecorder, EventType};
pub use sink::EventSink;

use crate::source::Clients;

/// Events that wait for the API server at most; more are dropped and counted.
const PENDING: usize = 1000;

/// A recorder for the component `component`, and the sink that its owner must run.
pub fn recorder(component: &str, clients: &Clients) -> (EventRecorder, EventSink) {
    let (sender, receiver) = tokio::sync::mpsc::channel(PENDING);
    let env = clients.env().fork(&format!("events of {component}"));
    (EventRecorder::new(component, sender, &env), EventSink::new(clients.requests().clone(), receiver, env))
}
