//! The Foo controller: keeps one Deployment per `Foo`, at the replicas that the Foo asks for.
//!
//! [`Controller`] has the structure of Kubernetes' sample-controller, so that readers of that one find everything here.
#![forbid(unsafe_code)]

pub mod api;
mod controller;
mod deployment;
mod example;
mod options;
mod program;
pub mod role;

pub use controller::{Controller, SyncError};
pub use deployment::new_deployment;
pub use example::{CRD, CRD_STATUS_SUBRESOURCE, EXAMPLE, example};
pub use options::Options;
pub use program::{Program, RunError, run, serve};

/// The name under which the controller writes and records events.
pub const COMPONENT: &str = "sample-controller";
