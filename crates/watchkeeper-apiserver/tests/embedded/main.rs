//! Tests that only the embedded server supports: they control its history, its clock or the timing of requests. All
//! other tests of the server also run on a real one.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

#[path = "../common/mod.rs"]
mod common;
mod kinds;
mod lists;
mod objects;
mod refusals;
mod watch_property;
mod watches;
