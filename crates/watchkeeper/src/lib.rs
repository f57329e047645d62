//! Kubernetes controllers in Rust with the guarantees of client-go.
//!
//! An informer watches a kind and caches its objects. Its handler puts the keys of changed objects into a work queue, and
//! workers reconcile one key after the other:
//!
//! ```
//! use watchkeeper::informer::LookupError;
//! use watchkeeper::k8s_openapi::api::core::v1::ConfigMap;
//! use watchkeeper::prelude::*;
//! use watchkeeper::source::{Reply, ScriptedSource};
//!
//! /// Brings the world in line with the object. Called again after each change, and with backoff after an error.
//! async fn reconcile(key: &ObjectName, maps: &Lister<ConfigMap>) -> Result<(), LookupError> {
//!     match maps.get(key) {
//!         Ok(map) => println!("{key} has {} entries", map.data.as_ref().map_or(0, |data| data.len())),
//!         Err(error) if error.is_not_found() => println!("{key} was deleted"),
//!         Err(error) => return Err(error),
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A program gets these from `signals::install` and `ClientArgs`; this example needs no cluster.
//! let (env, stop) = (Env::system(), CancellationToken::new());
//! let source = ScriptedSource::new();
//! source.on_list(Reply::body(
//!     r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"settings","namespace":"default"}}]}"#,
//! ));
//!
//! let queue = RateLimitingQueue::new("config", limiter::default_controller(), &env);
//! let informer = SharedInformer::<ConfigMap>::builder(source, &env).build();
//! informer.add_handler(enqueue(queue.clone()))?;
//! let lister = informer.lister();
//!
//! # let done = stop.clone();
//! let work = move |item: WorkItem<ObjectName>| {
//!     let maps = lister.clone();
//!     # let done = done.clone();
//!     async move {
//!         match reconcile(item.key(), &maps).await {
//!             Ok(()) => item.forget(),
//!             Err(error) => item.retry(error),
//!         }
//!         # done.cancel();
//!     }
//! };
//! tokio::join!(informer.run(stop.clone()), run_workers(2, &queue, stop.clone(), &env, work));
//! # assert!(queue.is_empty());
//! # Ok(()) }
//! ```
//!
//! # Modules
//!
//! In the order in which they build on one another:
//!
//! - [`clock`] and [`report`]: time, randomness and error reports, passed in with an [`Env`] so that every run can be
//!   repeated.
//! - [`object`]: cached objects, their names and versions.
//! - [`wire`]: splitting the bytes of lists and watches into objects and errors.
//! - [`source`]: sources of lists and watches, and the client for requests.
//! - [`queue`]: the deltas between reflector and store.
//! - [`reflector`]: listing and watching one kind.
//! - [`store`]: the informer cache, with indexes and snapshots.
//! - [`informer`]: one watch and one cache for many handlers.
//! - [`workqueue`]: the keys to reconcile, rate limited and deduplicated.
//! - [`record`]: events for users.
//! - [`leader`]: one leader among several replicas.
//! - [`explain`]: why an object is or is not reconciled.
//! - [`process`]: flags, workers, signals, metrics and health checks of a program.
//! - [`controller`]: controllers, what their reconciles read and write, and the manager that runs them.
//! - [`prelude`]: the items that most controllers need, for one import.
//!
//! # Features
//!
//! All are on by default; without them only the toolkit is compiled.
//!
//! | Feature | What it adds |
//! |---|---|
//! | `admin` | [`process::AdminServer`]: health, readiness and metrics over HTTP |
//! | `clap` | the options in [`process`] implement `clap::Args` |
//! | `logging` | [`process::LogArgs`]: log lines as text or JSON |
//! | `prometheus` | [`process::metrics`]: metrics of informers, queues and recorders |
//!
//! The version of Kubernetes is yours to choose: depend on `k8s-openapi` with one of its features `v1_*`.
#![forbid(unsafe_code)]

#[macro_use]
mod planted;

pub mod clock;
pub mod controller;
mod env;
pub mod explain;
mod fair;
pub mod informer;
mod latch;
pub mod leader;
pub mod object;
pub mod prelude;
pub mod process;
pub mod queue;
pub mod record;
pub mod reflector;
pub mod report;
pub mod source;
pub mod store;
mod sync;
pub mod wire;
pub mod workqueue;

pub use controller::{Controller, Manager};
pub use env::Env;
pub use informer::{Informer, SharedInformer, SharedInformerFactory};
pub use object::{Kind, Object, ObjectName, ResourceVersion, Transform};
#[cfg(watchkeeper_planted)]
pub use planted::{Bug, plant};
pub use source::Client;
pub use workqueue::RateLimitingQueue;

// The crates whose types are in our signatures, so that a program can use the same versions.
#[cfg(feature = "clap")]
pub use clap;
#[cfg(feature = "prometheus")]
pub use prometheus_client;
#[cfg(feature = "logging")]
pub use tracing_subscriber;
pub use {
    bytes, futures, http, jiff, k8s_openapi, kube_client, kube_core, serde_json, tokio, tokio_util, tracing,
};
