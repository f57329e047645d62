//! Kubernetes controllers in Rust with the guarantees of client-go.
#![forbid(unsafe_code)]

pub mod clock;
mod env;
pub mod object;
pub mod report;

pub use env::Env;
pub use object::ObjectName;

pub mod process;
pub mod workqueue;
