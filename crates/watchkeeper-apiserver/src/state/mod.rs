//! The state behind the lock: revisions, stored objects, the watch cache's history, and watches.

pub(crate) mod checkpoint;
pub(crate) mod core;
pub(crate) mod duty;
pub(crate) mod renew;
pub(crate) mod selector;
pub(crate) mod store;
