//! The informer cache: objects by key and by index, with the version that all of it reflects.
//!
//! Readers take a [`Snapshot`] of an [`Indexer`] in O(1); readers and the writer never wait for each other. For users
//! of client-go's `Indexer`:
//!
//! | client-go | here |
//! |---|---|
//! | `Add`, `Update`, `Delete`, `Replace` | [`Indexer::add`] for both, [`Indexer::delete`], [`Indexer::replace`] |
//! | `Transaction`, `Bookmark` | [`Indexer::write`], with [`Batch::set_version`] |
//! | `GetByKey`, `Get` | [`Indexer::get`], [`Indexer::get_like`] |
//! | `List`, `ListKeys` | [`Snapshot::iter`], [`Snapshot::keys`] |
//! | `ByIndex`, `Index` | [`Snapshot::by_index`], [`Snapshot::index`] |
//! | `IndexKeys`, `ListIndexFuncValues` | [`Snapshot::index_keys`], [`Snapshot::index_values`] |
//! | `AddIndexers`, `GetIndexers` | [`Indexer::add_indexes`], [`Snapshot::indexes`] |
//! | `LastStoreSyncResourceVersion` | [`Indexer::version`], [`Indexer::wait_until_fresh`] |

mod asked;
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

pub(crate) use asked::Shown;
pub use batch::Batch;
pub(crate) use field::Field;
pub use index::{Index, NAMESPACE_INDEX, namespace_index};
pub use indexer::{IndexConflict, Indexer, NotFresh};
pub(crate) use indexer::{Subscriber, WeakIndexer};
pub use snapshot::{NoIndex, Snapshot};
pub(crate) use state::IndexPanics;
