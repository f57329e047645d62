//! What do the metrics of a program show? Its parts register here what they count, under names that dashboards know.
//!
//! The registry is the caller's, and is served by an [`AdminServer`](super::AdminServer).

mod events;
mod informers;
mod queues;
mod reports;
mod sheet;

pub use events::register_events;
pub use informers::InformerCollector;
pub use queues::QueueCollector;
pub use reports::register_reports;
