//! Traces of the reflector, the two queues and the work queue, as text that a person can read.
//!
//! A trace is a file of steps with their results (see `trace.rs`). The tests carry out the steps and compare what
//! happens. `UPDATE_TRACES=1 cargo test -p watchkeeper --test traces` writes what happened into the files.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod queues;
mod reflector;
mod trace;
mod workqueue;
