//! How does a program with controllers live and end?
//!
//! It finds its cluster by [flags](ClientArgs), runs [workers](run_workers) that survive their panics, and stops in order when a
//! [signal](signals) asks it to.

mod client_args;
pub mod signals;
mod workers;

pub use client_args::{ClientArgs, ConnectError};
pub use workers::run_workers;
