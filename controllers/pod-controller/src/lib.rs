//! The classic work-queue example: watches the Pods of a namespace and prints what happens to them.
//!
//! [`Controller`] has the shape of client-go's `examples/workqueue`: an indexer, an informer that is not shared, and a rate-limiting queue of
//! keys between its handler and the workers.
#![forbid(unsafe_code)]

mod controller;
mod options;
mod output;

pub use controller::{Controller, NotSynced};
pub use options::{Options, RunError, run};
pub use output::Output;

/// The name under which the controller reports.
pub const COMPONENT: &str = "pod-controller";
