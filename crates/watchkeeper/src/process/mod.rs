//! How does a program with controllers live and end?
//!
//! It runs [workers](run_workers) that survive their panics, and it stops in order when a [signal](signals) asks it to.

pub mod signals;
mod workers;

pub use workers::run_workers;
