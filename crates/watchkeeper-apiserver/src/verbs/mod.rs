//! What can be asked of an object? One file per verb; all run on the [`Core`](crate::core::Core) under its lock.

pub(crate) mod apply;
pub(crate) mod create;
pub(crate) mod delete;
mod evict;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod pods;
pub(crate) mod scale;
mod typed;
pub(crate) mod update;
