//! Unit tests that need the whole server.

mod durable;
mod duties;
mod metrics;
