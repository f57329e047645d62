//! Where are the objects kept? In an [`Indexer`]: by key and by index, with the version that all of it reflects.
//!
//! Readers take a [`Snapshot`] in O(1) and never wait for the writer, nor it for them.

mod index;
mod indexer;
#[cfg(test)]
mod tests;
mod trie;

pub use index::{Index, NAMESPACE_INDEX, namespace_index};
pub(crate) use indexer::Batch;
pub use indexer::{IndexConflict, Indexer, Snapshot};
