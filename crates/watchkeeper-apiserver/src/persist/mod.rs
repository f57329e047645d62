//! The data directory: private files, checksums, the database, and the thread that writes changes to it.

pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod durable;
pub(crate) mod private;
pub(crate) mod restore;
pub(crate) mod secret;
