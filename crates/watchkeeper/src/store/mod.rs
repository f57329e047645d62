//! Where are the objects kept? In an [`Indexer`]: by key and by index, with the version that all of it reflects.
//!
//! Readers take a [`Snapshot`] in O(1) and never wait for the writer, nor it for them. Who knows client-go's `Indexer` finds here:
//!
//! | client-go | here |
//! |---|---|
//! | `Add`, `Update`, `Delete`, `Replace` | [`Indexer::add`], [`Indexer::update`], [`Indexer::delete`], [`Indexer::replace`] |
//! | `Transaction`, `Bookmark` | [`Indexer::write`], with [`Batch::set_version`] |
//! | `GetByKey`, `Get` | [`Indexer::get`], [`Indexer::get_like`] |
//! | `List`, `ListKeys` | [`Snapshot::iter`], [`Snapshot::keys`] |
//! | `ByIndex`, `Index` | [`Snapshot::by_index`], [`Snapshot::index`] |
//! | `IndexKeys`, `ListIndexFuncValues` | [`Snapshot::index_keys`], [`Snapshot::index_values`] |
//! | `AddIndexers`, `GetIndexers` | [`Indexer::add_indexes`], [`Snapshot::indexes`] |
//! | `LastStoreSyncResourceVersion` | [`Indexer::version`], [`Indexer::wait_until_fresh`] |

mod batch;
mod field;
mod index;
mod indexer;
mod publish;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod trie;

/// What [`publish`] stands on; a model checker puts its own in their place.
mod sync {
    pub(super) use arc_swap::ArcSwap as Place;
    pub(super) use parking_lot::Mutex as Lock;
    pub(super) use tokio::sync::Notify as Signal;
}

pub use batch::Batch;
pub use index::{Index, NAMESPACE_INDEX, namespace_index};
pub(crate) use indexer::WeakIndexer;
pub use indexer::{IndexConflict, Indexer, NotFresh};
pub use snapshot::{NoIndex, Snapshot};
pub(crate) use state::IndexPanics;
