//! The data folder: private files, checksums, the database.

pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod private;
