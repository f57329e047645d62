//! A program with controllers: flags, logs, workers, signals, metrics and health checks.
//!
//! A program finds its cluster by [flags](ClientArgs), [logs](LogArgs), serves [metrics and health
//! checks](AdminServer), waits for its [caches](crate::informer::wait_for_sync), runs [workers](Workers) that survive
//! panics, and shuts down gracefully on a [signal](signals).

#[cfg(feature = "admin")]
mod admin;
mod client_args;
mod credentials;
mod kubeconfig;
#[cfg(feature = "logging")]
mod log_args;
#[cfg(feature = "prometheus")]
pub mod metrics;
mod pod;
mod proxy;
pub mod signals;
mod unstalled;
mod workers;

#[cfg(feature = "admin")]
pub use admin::{AdminAddress, AdminArgs, AdminError, AdminServer, Alarm, Checks, Gate, Pages};
pub use client_args::{ClientArgs, ConnectError};
#[cfg(feature = "logging")]
pub use log_args::{LogArgs, LogError, LogFormat};
pub use pod::pod_namespace;
pub use unstalled::Unstalled;
pub use workers::{Workers, run_workers};
