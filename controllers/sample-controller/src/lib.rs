//! The Foo operator: for each `Foo` a Deployment of its own, kept at the replicas that the Foo asks for.
//!
//! [`Controller`] has the shape of Kubernetes' sample-controller, part by part, so that someone who knows that one finds everything here.
#![forbid(unsafe_code)]

pub mod api;
mod controller;
mod deployment;
mod example;
mod options;
mod program;

pub use controller::{Controller, SyncError};
pub use deployment::new_deployment;
pub use example::{CRD, CRD_STATUS_SUBRESOURCE, EXAMPLE, example};
pub use options::Options;
pub use program::{Program, RunError, run, serve};

/// The name under which the controller writes and records events.
pub const COMPONENT: &str = "sample-controller";
