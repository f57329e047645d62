//! The lock, the shared pointer and the signal of the parts that a model checker examines.
//!
//! Unit tests put [`model`] in their place, which is the checker's own inside a model and the real one outside.

#[cfg(test)]
pub(crate) mod model;

#[cfg(not(test))]
pub(crate) use arc_swap::ArcSwap;
#[cfg(test)]
pub(crate) use model::{ArcSwap, Mutex, MutexGuard, Notify};
#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use tokio::sync::Notify;
