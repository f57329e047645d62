//! What is a cached object?
mod name;

pub use name::{KeyError, ObjectName};
