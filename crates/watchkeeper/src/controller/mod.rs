//! What do controllers share beside informers, queue and workers? So far the [`Ledger`] of their own writes.

mod ledger;

pub use ledger::{Behind, Ledger};
