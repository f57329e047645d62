//! The built-in controllers of a control plane, on the watchkeeper toolkit.
//!
//! An API server alone only stores objects. These controllers add what kube-controller-manager does on a real cluster;
//! each is a `run` function that works on any API server, and runs only where it is called:
//!
//! - [`garbage_collector`] deletes objects whose owners are gone;
//! - [`namespace_controller`] empties namespaces in deletion, and then lets them go.
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

pub mod garbage_collector;
pub mod namespace_controller;
