//! What do controllers share beside informers, queue and workers? So far the [`Ledger`] of their own writes.

#[cfg_attr(not(test), expect(dead_code, reason = "for the context of a controller, which is not there yet"))]
mod applied;
#[cfg_attr(not(test), expect(dead_code, reason = "for the context of a controller, which is not there yet"))]
mod canonical;
#[doc(hidden)]
pub mod crd;
mod ledger;

pub use ledger::{Behind, Ledger};
