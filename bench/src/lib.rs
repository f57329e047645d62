//! Benchmarks as programs: a server that is faster than its clients, and the measures taken of them.
#![forbid(unsafe_code)]

pub mod informer;
pub mod measure;
pub mod queue;
pub mod serve;
pub mod store;
