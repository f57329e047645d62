//! What does a program tell Prometheus of its informers and queues?
//!
//! Figures are read when they are asked for, under the names that client-go's have: dashboards made for Go controllers work. The parts
//! themselves count next to nothing, and know nothing of Prometheus.

mod informers;
mod sheet;

pub use informers::InformerCollector;
