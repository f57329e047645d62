//! An operator on the embedded server: its children, its manager, and what faults do to it.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod absent;
mod access;
mod children;
mod contexts;
mod faults;
mod kind;
mod logs;
mod manager;
mod many;
mod outcomes;
mod refusing;
mod stale;
mod triggers;
mod website;
