//! Kubernetes controllers in Rust with the guarantees of client-go.
//!
//! The modules, in the order in which they build on one another:
//!
//! - [`clock`] and [`report`]: time, randomness and error reports, handed in with an [`Env`] so that every run can be repeated.
//! - [`object`]: cached objects, their names and versions.
//! - [`wire`]: the bytes of lists and watches, cut into objects and errors.
//! - [`source`]: where lists and watches come from, and where requests go.
//! - [`queue`]: the deltas between reflector and store.
//! - [`reflector`]: one kind, listed and watched for as long as the program runs.
//! - [`store`]: the informer cache, with indexes and snapshots.
//! - [`informer`]: one watch and one cache for many handlers.
//! - [`workqueue`]: the keys to reconcile, rate limited and deduplicated.
//! - [`record`]: events for users.
//! - [`controller`]: what controllers share, such as read-your-writes.
//! - [`process`]: flags, workers, signals, metrics and health checks of a program.
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
//! | `prometheus` | [`process::metrics`]: what informers, queues and recorders count |
//!
//! The version of Kubernetes is yours to choose: depend on `k8s-openapi` with one of its features `v1_*`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod controller;
mod env;
mod fair;
pub mod informer;
mod latch;
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

pub use env::Env;
pub use informer::{Informer, SharedInformer, SharedInformerFactory};
pub use object::{Kind, Object, ObjectName, ResourceVersion, Transform};
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
