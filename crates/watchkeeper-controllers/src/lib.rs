//! The built-in controllers of a control plane, on the watchkeeper toolkit.
//!
//! An API server alone only stores objects. These controllers add what kube-controller-manager does on a real cluster;
//! each is a `run` function that works on any API server, and runs only where it is called:
//!
//! - [`garbage_collector`] deletes objects whose owners are gone.
//!
//! ```
//! use tokio_util::sync::CancellationToken;
//! use watchkeeper::{Clients, Env};
//! use watchkeeper_apiserver::ApiServer;
//! use watchkeeper_controllers::garbage_collector;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let env = Env::simulated(1);
//! let clients = Clients::from_client(ApiServer::new(&env).client(), &env);
//! let stop = CancellationToken::new();
//! let token = stop.clone();
//! let collector = tokio::spawn(async move { garbage_collector::run(&clients, token).await });
//!
//! stop.cancel();
//! collector.await.unwrap();
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod garbage_collector;
