//! The garbage collector: dependents are deleted with their last owner, and nothing else is. Runs with our collector,
//! or on a real server with that of its kube-controller-manager.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod background;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod foreground;
