//! The built-in controllers of a control plane, on the watchkeeper toolkit.
//!
//! An API server alone only stores objects. These controllers add what kube-controller-manager does on a real cluster;
//! each works on any API server, and runs only where it is called:
//!
//! - [`garbage_collector`] deletes objects whose owners are gone;
//! - [`namespace_controller`] empties namespaces in deletion, and then lets them go;
//! - [`service_account`] gives namespaces their service account and CA certificate, and aggregates cluster roles;
//! - [`cluster`] runs workloads: [`deployment`], [`replica_set`], [`replication_controller`], [`stateful_set`],
//!   [`daemon_set`], [`job`] and [`cron_job`] make Pods, [`disruption`] counts those that may be evicted, [`scheduler`] binds
//!   them to [`nodes`] that do not exist, [`kubelet`] pretends to run them, and [`node_lifecycle`] notices nodes that die.
//!   [`endpoint_slice`], [`endpoints`] and [`endpoint_slice_mirroring`] say which Pods are behind a Service.
//!   [`pod_collector`] removes Pods that no kubelet will remove, and [`storage_protection`] keeps claims and volumes in use.
//!   [`resource_quota`] counts what quotas limit.
//!   Each of these registers with a [`Manager`](watchkeeper::controller::Manager), so that a program can choose. They need
//!   the types of Kubernetes 1.36; without the feature `workloads`, the crate compiles with those of every version.
//!
//! ```
//! use tokio_util::sync::CancellationToken;
//! use watchkeeper::{Client, Env};
//! use watchkeeper_apiserver::ApiServer;
//! use watchkeeper_controllers::{garbage_collector, namespace_controller};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let env = Env::simulated(1);
//! let client = Client::from_kube(ApiServer::new(&env).client(), &env);
//! let stop = CancellationToken::new();
//! let token = stop.clone();
//! let controllers = tokio::spawn(async move {
//!     tokio::join!(garbage_collector::run(&client, token.clone()), namespace_controller::run(&client, token))
//! });
//!
//! stop.cancel();
//! controllers.await.unwrap();
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "workloads")]
pub mod cluster;
#[cfg(feature = "workloads")]
pub mod cron_job;
#[cfg(feature = "workloads")]
pub mod daemon_set;
#[cfg(feature = "workloads")]
pub mod deployment;
#[cfg(feature = "workloads")]
pub mod disruption;
#[cfg(feature = "workloads")]
pub mod endpoint_slice;
#[cfg(feature = "workloads")]
pub mod endpoint_slice_mirroring;
#[cfg(feature = "workloads")]
pub mod endpoints;
#[cfg(feature = "workloads")]
mod family;
pub mod garbage_collector;
#[cfg(feature = "workloads")]
pub mod job;
#[cfg(feature = "workloads")]
pub mod kubelet;
pub mod namespace_controller;
#[cfg(feature = "workloads")]
pub mod node_lifecycle;
#[cfg(feature = "workloads")]
pub mod nodes;
#[cfg(feature = "workloads")]
pub mod pod_collector;
#[cfg(feature = "workloads")]
mod pods;
#[cfg(feature = "workloads")]
pub mod replica_set;
#[cfg(feature = "workloads")]
pub mod replication_controller;
#[cfg(feature = "workloads")]
pub mod resource_quota;
#[cfg(feature = "workloads")]
mod revisions;
#[cfg(feature = "workloads")]
pub mod scheduler;
pub mod service_account;
#[cfg(feature = "workloads")]
mod services;
#[cfg(feature = "workloads")]
pub mod stateful_set;
#[cfg(feature = "workloads")]
pub mod storage_protection;

/// The time as objects hold it: in whole seconds.
#[cfg(feature = "workloads")]
fn now<K: watchkeeper::Kind>(cx: &watchkeeper::controller::Context<K>) -> jiff::Timestamp {
    let now = cx.env().clock.wall();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
}
