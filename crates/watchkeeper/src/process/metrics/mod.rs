//! Metrics of a program, under the names that dashboards expect.
//!
//! The caller owns the registry, which an [`AdminServer`](super::AdminServer) serves.

mod credentials;
mod election;
mod events;
mod informers;
mod process;
mod queues;
mod reports;
mod sheet;

pub use credentials::register_credentials;
pub use election::register_election;
pub use events::register_events;
pub use informers::InformerCollector;
pub use process::register_process;
pub use queues::QueueCollector;
pub use reports::register_reports;
#[cfg(feature = "admin")]
pub(crate) use sheet::Sheet;
