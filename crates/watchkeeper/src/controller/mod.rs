//! Controllers, what their reconciles read and write, and the manager that runs them.
//!
//! A [`Controller`] is assembled in one expression and registered with a [`Manager`]. From a change to its consequences:
//! `attach.rs` and `relation.rs` turn changes of cached objects into keys; `running.rs` runs the workers; `reconcile.rs` runs one
//! key; [`Context`] is what the author's code reads from and writes through; `writes/` and `applied.rs` remember what was written.

mod applied;
mod attach;
mod builder;
mod caches;
mod canonical;
mod context;
#[doc(hidden)]
pub mod crd;
mod figures;
mod index_key;
mod manager;
mod outcome;
mod predicate;
mod reconcile;
mod relation;
mod running;
mod selection;
mod setup;
mod stale;
mod watch;
mod writes;

pub use builder::Controller;
pub use caches::View;
pub use context::{Conditions, Context, Live, ReadError, WriteError};
pub use crd::CrdError;
pub use figures::ControllerFigures;
pub use index_key::IndexKey;
#[cfg(all(feature = "admin", feature = "clap", feature = "logging"))]
pub use manager::ManagerArgs;
pub use manager::{
    AccessCheck, Manager, ManagerBuilder, ManagerError, ManagerHandle, MissingAccess, Preflight, Role, Rule,
};
pub use outcome::{Action, Error};
pub use predicate::{annotations_changed, either, generation_changed, labels_changed};
pub use selection::SelectorError;
pub use setup::{IndexError, SetupError};
pub use stale::OnStale;
pub use watch::Watch;
pub use writes::Writes;
