//! Unit tests that need the whole server.

mod definitions;
mod durable;
mod duties;
mod metrics;
mod requests;
