//! What only the embedded server can be asked: what it does with its history, at which moment, and what it does not tell. All other tests of
//! the server also run on a real one.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

#[path = "../common/mod.rs"]
mod common;
mod kinds;
mod lists;
mod objects;
mod refusals;
mod watch_property;
mod watches;
