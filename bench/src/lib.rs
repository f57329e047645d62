//! Benchmarks as programs: a server that is faster than its clients, and measurements of those clients.
#![forbid(unsafe_code)]

pub mod apiserver;
pub mod behind;
mod child;
pub mod cluster;
pub mod controller;
pub mod foos;
#[cfg(feature = "http2")]
mod http2;
pub mod idle;
pub mod informer;
pub mod latency;
pub mod measure;
mod plot;
pub mod queue;
pub mod relist;
mod requests;
pub mod scale;
pub mod serve;
pub mod sim;
pub mod store;
pub mod sync;
pub mod takeover;
pub mod weather;
pub mod worst;
