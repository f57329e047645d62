//! The state behind the lock: revisions, stored objects, history, watches.

pub(crate) mod core;
pub(crate) mod renew;
pub(crate) mod selector;
pub(crate) mod store;
