//! The verbs, one file for each: reads and deletes run on the [`Core`](crate::state::core::Core) under its lock, writes for
//! the most part on what they have [`Seen`](draft::Seen) of it.

pub(crate) mod apply;
mod bootstrap;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod draft;
mod evict;
pub(crate) mod json_patch;
pub(crate) mod list;
pub(crate) mod merge_patch;
pub(crate) mod patch;
pub(crate) mod pods;
pub(crate) mod scale;
pub(crate) mod strategic;
mod typed;
pub(crate) mod update;
pub(crate) mod write;
