//! The API verbs, one file each. Reads and deletes run on the [`Core`](crate::state::core::Core) under its lock; writes
//! work on a snapshot of it, [`Seen`](draft::Seen).

pub(crate) mod apply;
mod bootstrap;
pub(crate) mod create;
mod default_roles;
mod definitions;
pub(crate) mod delete;
pub(crate) mod draft;
pub(crate) mod duties;
mod evict;
mod flow_control;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod merge_patch;
pub(crate) mod patch;
pub(crate) mod pods;
pub(crate) mod scale;
pub(crate) mod strategic;
mod touch_up;
pub(crate) mod update;
pub(crate) mod write;
